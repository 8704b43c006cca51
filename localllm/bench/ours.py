"""Our side of a benchmark: forward passes on a model, nothing sampled, as llama-bench does it."""

import functools
import time
from collections.abc import Sequence

import numpy as np

from localllm.batch import PAGE, Batch, Model
from localllm.bench.grid import Case

IDS = 1000  # the ids used are below this, and below the vocabulary


@functools.lru_cache(8)
def ids_of(case: Case, vocab: int) -> np.ndarray:
    """(batch, length) i32: the same tokens for everybody who is measured."""
    random = np.random.default_rng(1)
    return random.integers(0, min(IDS, vocab), (case.batch, case.length), dtype=np.int32)


class Ours:
    """Runs cases on a model whose pages nobody else uses."""

    def __init__(self, model: Model):
        self.model = model

    def prepare(self, case: Case) -> None:
        """Compute what comes before: not measured."""
        if case.depth:
            self._prompts(case, 0, case.depth)

    def run(self, case: Case) -> float:
        """Seconds for the case's tokens."""
        since = time.perf_counter()
        if case.kind == "pp":
            self._prompts(case, case.depth, case.length)
        else:
            self._generation(case)
        return time.perf_counter() - since

    def _prompts(self, case: Case, start: int, end: int) -> None:
        """Sequence after sequence, in passes as long as the model takes."""
        ids, tables = ids_of(case, self.model.vocab), self._tables(case)
        for sequence in range(case.batch):
            for first in range(start, end, self.model.max_rows):
                rows = ids[sequence, first : min(end, first + self.model.max_rows)]
                self._forward([rows], [first], tables[sequence : sequence + 1])

    def _generation(self, case: Case) -> None:
        """One token of every sequence in each pass."""
        ids, tables = ids_of(case, self.model.vocab), self._tables(case)
        for position in range(case.depth, case.length):
            rows = [ids[sequence, position : position + 1] for sequence in range(case.batch)]
            self._forward(rows, [position] * case.batch, tables)

    def _forward(self, rows: Sequence[np.ndarray], starts: list[int], tables: np.ndarray) -> None:
        begins = np.concatenate([[0], np.cumsum([len(r) for r in rows])]).astype(np.int32)
        wanted = begins[1:] - 1
        self.model.forward(
            Batch(np.concatenate(rows), begins, np.array(starts, np.int32), tables, wanted)
        )

    def _tables(self, case: Case) -> np.ndarray:
        """(batch, pages) i32: pages in order, as many as the case needs."""
        pages = -(-case.length // PAGE)
        return np.arange(case.batch * pages, dtype=np.int32).reshape(case.batch, pages)
