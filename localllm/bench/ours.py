"""Our side of a benchmark: forward passes on a model, nothing sampled, as llama-bench does it."""

import functools
import time
from collections.abc import Sequence

import numpy as np

from localllm.batch import PAGE, Batch, Model
from localllm.bench.grid import Case

IDS = 1000  # the ids used are below this, and below the vocabulary


@functools.lru_cache(8)
def ids_of(length: int, vocab: int) -> np.ndarray:
    """(length,) i32: the same tokens for every sequence of everybody who is measured.

    A shorter sequence is the beginning of a longer one: what is computed once stays right.
    """
    return np.random.default_rng(1).integers(0, min(IDS, vocab), length, dtype=np.int32)


class Ours:
    """Runs cases on a model whose pages nobody else uses."""

    def __init__(self, model: Model):
        self.model = model
        self._free = iter(range(model.pages))
        self._tables: list[list[int]] = []  # the pages of each sequence, in order of position
        self._held: list[int] = []  # tokens that are computed of each

    def prepare(self, case: Case) -> None:
        """Pages for all, and what comes before, unless an earlier case had it: not measured."""
        while len(self._tables) < case.batch:
            self._tables.append([])
            self._held.append(0)
        for sequence, table in enumerate(self._tables[: case.batch]):
            table.extend(next(self._free) for _ in range(-(-case.length // PAGE) - len(table)))
            self._prompt(sequence, self._held[sequence], case.depth)

    def run(self, case: Case) -> float:
        """Seconds for the case's tokens."""
        since = time.perf_counter()
        if case.kind == "pp":
            for sequence in range(case.batch):
                self._prompt(sequence, case.depth, case.length)
        else:
            self._generation(case)
        return time.perf_counter() - since

    def _prompt(self, sequence: int, start: int, end: int) -> None:
        """Positions `start` to `end`, in passes as long as the model takes."""
        ids, pages = ids_of(end, self.model.vocab), self._tables[sequence][: -(-end // PAGE)]
        table = np.array([pages], np.int32)
        for first in range(start, end, self.model.max_rows):
            self._forward([ids[first : first + self.model.max_rows]], [first], table)
        self._held[sequence] = max(self._held[sequence], end)

    def _generation(self, case: Case) -> None:
        """One token of every sequence in each pass."""
        ids, pages = ids_of(case.length, self.model.vocab), -(-case.length // PAGE)
        tables = np.array([table[:pages] for table in self._tables[: case.batch]], np.int32)
        for position in range(case.depth, case.length):
            rows = [ids[position : position + 1]] * case.batch
            self._forward(rows, [position] * case.batch, tables)

    def _forward(self, rows: Sequence[np.ndarray], starts: list[int], tables: np.ndarray) -> None:
        begins = np.concatenate([[0], np.cumsum([len(r) for r in rows])]).astype(np.int32)
        wanted = begins[1:] - 1
        self.model.forward(
            Batch(np.concatenate(rows), begins, np.array(starts, np.int32), tables, wanted)
        )
