"""The other side of a benchmark: the same passes by llama-cpp-python's low-level interface."""

import importlib
import sys
import time
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np

from localllm.batch import PAGE
from localllm.bench.grid import Case
from localllm.bench.ours import ids_of
from localllm.errors import Unavailable

UBATCH = 512
Q8_0 = 8  # the number of ggml's type


def library(folder: Path | None = None) -> ModuleType:
    """llama_cpp, from that folder if one is given. Raises Unavailable when it is not there."""
    if folder and not (folder / "llama_cpp").is_dir():
        raise Unavailable(
            f"{folder} holds no llama_cpp.",
            f"pip install --target {folder} --no-binary llama-cpp-python llama-cpp-python",
        )
    if folder:
        sys.path.insert(0, str(folder.resolve()))
    try:
        module = importlib.import_module("llama_cpp")
    except (ImportError, OSError, RuntimeError) as error:
        raise Unavailable(
            f"llama-cpp-python cannot be loaded: {error}", "pip install 'localllm[bench]'"
        ) from None
    finally:
        if folder:
            sys.path.remove(str(folder.resolve()))
    module.llama_backend_init()
    return module


class Peers:
    """One model, and a context with flash attention on and one with it off."""

    def __init__(
        self,
        path: Path,
        longest: int,
        batch: int,
        threads: int,
        kv_type: str,
        folder: Path | None = None,
    ):
        self.api = library(folder)
        self._quiet = self.api.llama_log_callback(lambda *_: None)
        self.api.llama_log_set(self._quiet, None)
        parameters = self.api.llama_model_default_params()
        parameters.n_gpu_layers = 0
        self.model = self.api.llama_model_load_from_file(str(path).encode(), parameters)
        if not self.model:
            raise Unavailable(f"llama.cpp cannot load {path.name}.")
        vocab = self.api.llama_model_get_vocab(self.model)
        self.vocab = self.api.llama_vocab_n_tokens(vocab)
        self.sides = [
            Peer(self, flash, longest, batch, threads, kv_type)
            for flash in (True, False)
            if flash or kv_type == "f16"  # it cannot do quantized V without
        ]

    def close(self) -> None:
        for side in self.sides:
            self.api.llama_free(side.context)
        self.api.llama_model_free(self.model)


class Peer:
    """One context: runs cases as Ours does."""

    def __init__(
        self, home: Peers, flash: bool, longest: int, batch: int, threads: int, kv_type: str
    ):
        self.api, self.flash, self.vocab = home.api, flash, home.vocab
        options = self.api.llama_context_default_params()
        options.n_ctx = batch * -(-longest // PAGE) * PAGE
        options.n_batch = options.n_ubatch = max(UBATCH, batch)
        options.n_seq_max, options.kv_unified = batch, False  # faster than all in one stretch
        options.n_threads = options.n_threads_batch = threads
        options.flash_attn_type = int(flash)
        if kv_type != "f16":
            options.type_k = options.type_v = Q8_0
        self.context = self.api.llama_init_from_model(home.model, options)
        if not self.context:
            raise Unavailable("llama.cpp cannot make a context for this benchmark.")
        self.memory = self.api.llama_get_memory(self.context)
        self._held = [0] * batch  # tokens that are computed of each sequence

    def prepare(self, case: Case) -> None:
        """What comes before, unless an earlier case had it: computed once, then copied to the
        other sequences. Not measured; the copy is made in the next pass."""
        if self._held[0] < case.depth:
            self._prompt(0, self._held[0], case.depth)
        self._cut(case)
        for sequence in range(1, case.batch):
            if self._held[sequence] < case.depth:
                self.api.llama_memory_seq_rm(self.memory, sequence, -1, -1)
                self.api.llama_memory_seq_cp(self.memory, 0, sequence, -1, -1)
                self._held[sequence] = case.depth

    def _cut(self, case: Case) -> None:
        """Forget what lies behind the case's depth."""
        for sequence in range(case.batch):
            self.api.llama_memory_seq_rm(self.memory, sequence, case.depth, -1)
            self._held[sequence] = min(self._held[sequence], case.depth)

    def run(self, case: Case) -> float:
        """Seconds for the case's tokens."""
        self._cut(case)
        since = time.perf_counter()
        if case.kind == "pp":
            for sequence in range(case.batch):
                self._prompt(sequence, case.depth, case.length)
        else:
            self._generation(case)
        return time.perf_counter() - since

    def _prompt(self, sequence: int, start: int, end: int) -> None:
        ids = ids_of(end, self.vocab)
        for first in range(start, end, UBATCH):
            rows = ids[first : first + UBATCH]
            where = range(first, first + len(rows))
            self._decode(rows, where, [sequence] * len(rows), len(rows) - 1)
        self._held[sequence] = end

    def _generation(self, case: Case) -> None:
        ids = ids_of(case.length, self.vocab)
        for position in range(case.depth, case.length):
            ids_now = ids[position : position + 1].repeat(case.batch)
            self._decode(ids_now, [position] * case.batch, range(case.batch), 0)
        self._held[: case.batch] = [case.length] * case.batch

    def _decode(self, ids: np.ndarray, positions: Any, sequences: Any, wanted: int) -> None:
        """One llama_decode; logits from row `wanted` on."""
        batch = self.api.llama_batch_init(len(ids), 0, 1)
        try:
            batch.n_tokens = len(ids)
            for row, (id, position, sequence) in enumerate(
                zip(ids.tolist(), positions, sequences, strict=True)
            ):
                batch.token[row], batch.pos[row] = id, position
                batch.n_seq_id[row], batch.seq_id[row][0] = 1, sequence
                batch.logits[row] = row >= wanted
            if self.api.llama_decode(self.context, batch):
                raise Unavailable("llama.cpp could not run a pass of this benchmark.")
            self.api.llama_synchronize(self.context)
        finally:
            self.api.llama_batch_free(batch)
