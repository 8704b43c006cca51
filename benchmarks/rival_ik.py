"""ik_llama.cpp as `rivals.py` measures it: run with the Python that has ik-llama-cpp-python.

    PYTHON rival_ik.py MODEL THREADS LONGEST

Reads a request a line on stdin, writes an answer a line; `rivals.py` says what is in them. Weights
are repacked when they are loaded, or not; each with flash attention and without.
"""

import ctypes
import random
import sys
import time
from importlib.metadata import version

from ik_llama_cpp import _ctypes_api as api
from rival_loop import answer

UBATCH = 512
LOG = ctypes.CFUNCTYPE(None, ctypes.c_int, ctypes.c_char_p, ctypes.c_void_p)
silent = LOG(lambda *_: None)


class Setting:
    """One way to run the model."""

    def __init__(self, path: str, threads: int, longest: int, repack: bool, flash: bool):
        self.name = ", ".join(["repacked"] * repack + ["flash"] * flash) or "plain"
        model_options = api.llama_model_default_params()
        model_options.n_gpu_layers, model_options.repack_tensors = 0, repack
        model_options.use_mmap = not repack  # what is mapped is not repacked
        self.model = api.llama_model_load_from_file(path.encode(), model_options)
        options = api.llama_context_default_params()
        options.n_ctx, options.n_batch, options.n_ubatch = longest, UBATCH, UBATCH
        options.n_threads = options.n_threads_batch = threads
        options.flash_attn = flash
        self.context = self.model and api.llama_init_from_model(self.model, options)
        if not self.context:
            sys.exit(f"ik_llama.cpp cannot load {path}")

    def run(self, kind: str, tokens: int) -> float:
        """Seconds for a prompt of so many tokens, or for so many after each other."""
        api.llama_kv_cache_clear(self.context)
        ids = [random.Random(1).randrange(1000) for _ in range(tokens)]
        step = UBATCH if kind == "pp" else 1
        since = time.perf_counter()
        for first in range(0, tokens, step):
            self.decode(ids[first : first + step], first)
        return time.perf_counter() - since

    def decode(self, ids: list[int], first: int) -> None:
        """One pass, logits of its last row."""
        batch = api.llama_batch_init(len(ids), 0, 1)
        batch.n_tokens = len(ids)
        for row, id in enumerate(ids):
            batch.token[row], batch.pos[row] = id, first + row
            batch.n_seq_id[row], batch.seq_id[row][0] = 1, 0
            batch.logits[row] = row == len(ids) - 1
        if api.llama_decode(self.context, batch):
            sys.exit("ik_llama.cpp could not run a pass")
        api._lib.llama_synchronize(ctypes.c_void_p(self.context))
        api.llama_batch_free(batch)


def about() -> str:
    """The version, and what it was compiled for."""
    system = api._lib.llama_print_system_info
    system.restype = ctypes.c_char_p
    parts = [part.split(" = ") for part in system().decode().split(" | ") if " = " in part]
    built = ", ".join(name for name, value in parts if value.strip() == "1")
    return f"ik-llama-cpp-python {version('ik-llama-cpp-python')} ({built})"


def main(path: str, threads: str, longest: str) -> None:
    api._lib.llama_log_set(silent, None)
    api.llama_backend_init()
    sizes = int(threads), int(longest)
    settings = [Setting(path, *sizes, repack, flash) for repack in (1, 0) for flash in (1, 0)]
    answer(about(), settings)


if __name__ == "__main__":
    main(*sys.argv[1:])
