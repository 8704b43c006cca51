"""A batch as tensors whose shapes repeat: filled up to a few sizes, its sequences in groups."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from localllm.batch import PAGE, Batch
from localllm.program import Rope


def bucket(count: int) -> int:
    """The least of 1, 2, 3, 4, 6, 8, 12, 16, 24 ... that is not below `count`."""
    power = 1 << max(count - 1, 0).bit_length()
    return power * 3 // 4 if power >= 4 and count <= power * 3 // 4 else power


@dataclass(frozen=True, slots=True)
class Shape:
    """The sizes of a step; steps of one shape run the same calls.

    wanted: rows that go on to the end; logits: the first so many of them, whose logits are wanted.
    groups: (sequences, rows of each, pages of each), whose attention is worked out together.
    """

    rows: int
    wanted: int
    logits: int
    groups: tuple[tuple[int, int, int], ...]

    @property
    def decodes(self) -> bool:
        """Whether every sequence has one row."""
        return len(self.groups) == 1 and self.groups[0][1] == 1


@dataclass(frozen=True, slots=True)
class Numbers:
    """A batch written down for the device: all its integers, and the turns of its ropes."""

    shape: Shape
    integers: np.ndarray  # (n,) i64
    turns: np.ndarray  # (n,) f32


def write(batch: Batch, ropes: Sequence[Rope], spare: int) -> Numbers:
    """Write a batch down. What fills it up repeats its last row, but for its K and V, which go to
    the page `spare`, that no table holds."""
    counts, begins = np.diff(batch.begins), batch.begins[:-1]
    sequence = np.repeat(np.arange(len(counts)), counts)
    positions = np.arange(len(sequence)) - begins[sequence] + batch.starts[sequence]
    slots = batch.tables[sequence, positions // PAGE].astype(np.int64) * PAGE + positions % PAGE
    rows = bucket(len(positions))
    kept = np.concatenate([batch.wanted, batch.hidden])
    wanted, logits = (bucket(len(some)) if len(some) else 0 for some in (kept, batch.wanted))
    places = np.full(rows, spare * PAGE)
    places[: len(slots)] = slots
    positions = _fill(positions, rows)
    arrays = [_fill(batch.ids, rows), positions, places, _fill(kept, wanted)]
    groups, singles = [], np.flatnonzero(counts == 1)
    for members in [singles] * bool(len(singles)) + [[s] for s in np.flatnonzero(counts > 1)]:
        shape, its_rows, tables = _group(batch, np.asarray(members), positions, spare)
        groups.append(shape)
        arrays += [its_rows, tables]
    integers = np.concatenate([array.ravel() for array in arrays]).astype(np.int64)
    return Numbers(Shape(rows, wanted, logits, tuple(groups)), integers, _turns(positions, ropes))


def _group(batch: Batch, members: np.ndarray, positions: np.ndarray, spare: int):
    """The shape of a group, and its rows and tables: either many of one row, or one of many."""
    first = batch.begins[members[0]]
    if len(members) > 1 or batch.begins[members[0] + 1] == first + 1:
        members = _fill(members, bucket(len(members)))
        rows, each = batch.begins[members], 1
    else:
        rows = np.arange(first, batch.begins[members[0] + 1])
        rows = _fill(rows, bucket(len(rows)))
        each = len(rows)
    pages = bucket(int(positions[rows].max()) // PAGE + 1)
    tables = np.zeros((len(members), pages), np.int64)
    known = min(pages, batch.tables.shape[1])
    tables[:, :known] = batch.tables[members, :known]
    return (
        (len(members), each, pages),
        rows,
        tables.clip(0, spare),
    )  # what is not needed may be wild


def _fill(array: np.ndarray, size: int) -> np.ndarray:
    """The array, its last element repeated up to a size."""
    return np.pad(array, (0, size - len(array)), mode="edge") if len(array) else array


def _turns(positions: np.ndarray, ropes: Sequence[Rope]) -> np.ndarray:
    """For each rope the cosines of every row's angles, then the sines."""
    parts = [np.zeros(0)]
    for rope in ropes:
        angles = np.outer(positions, np.array(rope.speeds))
        parts += [np.cos(angles) * rope.magnitude, np.sin(angles) * rope.magnitude]
    return np.concatenate([part.ravel() for part in parts]).astype(np.float32)


class Group:
    """Sequences whose attention is worked out together: M of R rows, with tables of P pages."""

    def __init__(self, rows: Tensor, tables: Tensor, positions: Tensor):
        self.rows, self.tables = rows, tables  # (M, R), (M, P)
        self.positions = positions[rows]  # (M, R)
        self.views: dict[tuple[int, torch.dtype], tuple[Tensor, Tensor]] = {}

    def view(self, window: int, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
        """Pages (M, p) that the rows see through a window (0: all), and what is added to the
        scores (M, 1, R, 16 p): 0, or minus infinity for what a row must not see."""
        if (window, dtype) not in self.views:
            self.views[window, dtype] = self._view(window, dtype)
        return self.views[window, dtype]

    def _view(self, window: int, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
        rows, most = self.rows.shape[1], self.tables.shape[1]
        pages = most
        if window:
            pages = min(most, bucket((window + rows + PAGE - 2) // PAGE + 1))
        numbers = torch.arange(pages, device=self.rows.device).expand(len(self.rows), pages)
        if pages < most:
            first = (self.positions[:, :1] - window + 1).clamp(min=0) // PAGE
            numbers = numbers + first
        slots = torch.arange(PAGE, device=self.rows.device)
        keys = (numbers[:, :, None] * PAGE + slots).flatten(1)[:, None]  # (M, 1, 16 p)
        at = self.positions[:, :, None]
        hidden = keys > at
        if window:
            hidden = hidden | (keys <= at - window)
        bias = torch.zeros(hidden.shape, dtype=dtype, device=hidden.device)
        bias = bias.masked_fill_(hidden, float("-inf"))[:, None]
        return self.tables.gather(1, numbers.clamp(max=most - 1)), bias


class Step:
    """A batch on the device: views of the tensors that `Numbers` became."""

    def __init__(self, shape: Shape, integers: Tensor, turns: Tensor, ropes: Sequence[Rope]):
        self.shape = shape
        sizes = [shape.rows] * 3 + [shape.wanted]
        for sequences, rows, pages in shape.groups:
            sizes += [sequences * rows, sequences * pages]
        self.ids, self.positions, self.slots, self.wanted, *rest = integers.split(sizes)
        self.groups = [
            Group(rows.view(m, r), tables.view(m, p), self.positions)
            for (m, r, p), rows, tables in zip(shape.groups, rest[::2], rest[1::2], strict=True)
        ]
        parts = turns.split([shape.rows * len(rope.speeds) for rope in ropes for _ in "cs"])
        tables = [part.view(shape.rows, 1, -1) for part in parts]
        self.turns = dict(zip(ropes, zip(tables[::2], tables[1::2], strict=True), strict=True))
