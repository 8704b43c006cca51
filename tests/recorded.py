"""Runs programs on the CPU backend: files in memory, batches of parts, chunks, page tables."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import gguf
import numpy as np

from localllm.backends.cpu.model import CPUModel
from localllm.batch import PAGE, Batch
from localllm.gguf import TensorInfo
from localllm.program import Program, Recorder


class Tensors:
    """What a backend reads of an open file, made of arrays."""

    path, architecture = Path("memory.gguf"), "test"

    def __init__(self, **arrays: np.ndarray):
        self.tensors: dict[str, TensorInfo] = {}
        self._blocks: dict[str, np.ndarray] = {}
        for name, array in arrays.items():
            self.add(name.replace("__", "."), array)

    def add(self, name: str, array: np.ndarray, kind: str = "F32") -> None:
        """An array of numbers as a tensor in blocks of that type."""
        self.add_blocks(name, array.shape, gguf.quantize(array.astype("f4"), _id(kind)), kind)

    def add_blocks(self, name: str, shape: tuple[int, ...], blocks: np.ndarray, kind: str) -> None:
        """A tensor of blocks that are there already."""
        flat = np.ascontiguousarray(blocks).view(np.uint8)
        rows = shape[0] if len(shape) > 1 else 1
        self.tensors[name] = TensorInfo(name, kind, shape, 0, flat.size)
        self._blocks[name] = flat.reshape(rows, -1)

    def blocks(self, name: str) -> np.ndarray:
        return self._blocks[name]

    def release(self, name: str) -> None:
        assert name in self._blocks

    def recorder(self) -> Recorder:
        """To record a program on these tensors."""
        return Recorder({name: info.shape for name, info in self.tensors.items()})


def _id(kind: str) -> gguf.GGMLQuantizationType:
    return gguf.GGMLQuantizationType[kind]


def model_of(tensors: Tensors, program: Program, **options) -> CPUModel:
    """The program on the CPU, small unless `options` say otherwise."""
    options = {"lanes": 2, "context": 512, "pages": 48, "max_rows": 64, "pin": False, **options}
    return CPUModel(tensors, program, **options)  # type: ignore[arg-type]


@dataclass
class Part:
    """A sequence's share of a batch: ids from position `start` on; wanted rows, all if None;
    rows whose hidden rows are wanted."""

    ids: list[int]
    pages: np.ndarray
    start: int = 0
    wanted: list[int] | None = None
    hidden: Sequence[int] = ()


def batch_of(*parts: Part) -> Batch:
    """Several sequences' rows as one batch."""
    sizes = [len(part.ids) for part in parts]
    begins = np.cumsum([0, *sizes])
    width = max(-(-(part.start + size) // PAGE) for part, size in zip(parts, sizes, strict=True))
    tables = np.zeros((len(parts), width), np.int32)
    wanted: list[int] = []
    hidden: list[int] = []
    for row, part in enumerate(parts):
        used = part.pages[: -(-(part.start + sizes[row]) // PAGE)]
        tables[row, : len(used)] = used
        rows = range(sizes[row]) if part.wanted is None else part.wanted
        wanted += [int(begins[row]) + n for n in rows]
        hidden += [int(begins[row]) + n for n in part.hidden]
    flat = [id for part in parts for id in part.ids]
    starts = [part.start for part in parts]
    return Batch(i32(flat), i32(begins), i32(starts), tables, i32(wanted), i32(hidden))


def i32(values) -> np.ndarray:
    """As the fields of a Batch are."""
    return np.array(values, np.int32)


def hidden(model, ids, chunk: int) -> np.ndarray:
    """(T, width) f32 of one sequence, `chunk` tokens a step."""
    rows = []
    for at in range(0, len(ids), chunk):
        part = ids[at : at + chunk]
        model.forward(batch_of(Part(part, np.arange(model.pages), at, [], range(len(part)))))
        rows.append(model.hidden().copy())
    return np.concatenate(rows)


def logits(model, ids, chunk: int | None = None, pages: np.ndarray | None = None) -> np.ndarray:
    """(T, vocab) f32 of one sequence, `chunk` tokens a step, on these pages."""
    chunk = chunk or min(model.max_wanted, model.max_rows)
    pages = np.arange(model.pages) if pages is None else pages
    ids = list(ids)
    steps = [Part(ids[at : at + chunk], pages, at) for at in range(0, len(ids), chunk)]
    return np.concatenate([model.forward(batch_of(step)).copy() for step in steps])
