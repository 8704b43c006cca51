"""Models: a file's architecture recorded as a program, its needs in memory, and its loading."""

import importlib
import os
import pkgutil
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Any

from localllm.backends.torch.present import choose
from localllm.batch import PAGE
from localllm.errors import BadFile, Unsupported
from localllm.gguf import GGUF
from localllm.models import arch
from localllm.program import Attention, Program, Recorder

KV_TYPES = ("f16", "q8_0")
Progress = Callable[[str, int, int], None]


@dataclass(frozen=True, slots=True)
class Footprint:
    """Bytes a model needs: its weights, one page of KV, how many pages, and what steps work in."""

    weights: int
    page_bytes: int
    pages: int
    scratch: int

    @property
    def total(self) -> int:
        """All of it."""
        return self.weights + self.page_bytes * self.pages + self.scratch


def supported() -> list[str]:
    """The architectures there is a file for."""
    return sorted(module.name for module in pkgutil.iter_modules(arch.__path__))


def record(gguf: GGUF) -> Program:
    """The program of a file. Raises Unsupported, naming the architecture, and BadFile."""
    name = gguf.architecture
    if name not in supported():
        raise Unsupported(
            f"{gguf.path.name} is of the architecture {name!r}, which localllm does not run.",
            f"It runs {', '.join(supported())}.",
        )
    recorder = Recorder({info.name: info.shape for info in gguf.tensors.values()})
    importlib.import_module(f"{arch.__name__}.{name}").record(recorder, gguf)
    _check_ends(recorder, gguf)
    return recorder.program


def _check_ends(recorder: Recorder, gguf: GGUF) -> None:
    """Ids are rows of the embedding and of the output alike, and both are as wide as said."""
    first, last = recorder.program.ops[0], recorder.program.ops[-1]
    rows = recorder.shapes[f"{first.weight}.weight"][0]
    if rows != last.width:
        raise BadFile(f"The embedding has {rows} rows, the output {last.width}.")
    width = gguf.get(".embedding_length", int)
    if first.width != width:
        raise BadFile(f"The embedding is {first.width} wide, but 'embedding_length' is {width}.")


def estimate(
    gguf: GGUF, context: int | None = None, kv_type: str = "f16", max_rows: int = 512
) -> Footprint:
    """What running a file takes, without loading it. Raises as `record` does."""
    program = record(gguf)
    tokens = context or gguf.get(".context_length", int)
    widest = max(op.width for op in program.ops if op.kind != "logits")
    vocab, width = program.ops[-1].width, program.ops[0].width
    scratch = max_rows * (widest * 3 + width * 8) * 4 + 32 * vocab * 4
    weights = sum(info.nbytes for info in gguf.tensors.values())
    pages = -(-tokens // PAGE)
    return Footprint(weights, sum(page_bytes(a, kv_type) for a in program.layers), pages, scratch)


def page_bytes(layer: Attention, kv_type: str = "f16") -> int:
    """Bytes that a page takes in one layer: K and V with a scale for each token and head, int8 K
    with a short one for each 16 dims."""
    k, v = -(-layer.k_dims // 32) * 32, -(-layer.v_dims // 32) * 32
    if layer.pages_of(kv_type) == "f16":
        return layer.kv_heads * PAGE * (2 * layer.k_dims + 4 + 2 * v + 4)
    return layer.kv_heads * PAGE * (k + k // 8 + v + 4)


def load(
    gguf: GGUF,
    *,
    device: str = "auto",
    threads: int | None = None,
    context: int | None = None,
    kv_type: str = "f16",
    max_rows: int = 512,
    pages: int | None = None,
    gpu_layers: int | str = "auto",
    sample: Callable[[], Sequence[int]] | None = None,
    progress: Progress | None = None,
    until: Callable[[], Future] | None = None,
):
    """A model that runs, on the device of that name.

    context: the most tokens of a sequence, the trained length if None · pages: of KV, enough for
    one sequence if None · max_rows: tokens a step · sample: gives ids of some text, from which
    int8 pages learn what K looks like, ids from all over if None · gpu_layers: how many layers a
    GPU gets, "auto" for what fits · until: starts what others do meanwhile; when that is done the
    CPU's model is given back though some weights are not repacked yet, which its steps then do.
    Raises Unsupported, BadFile; Unavailable, TooLarge for a GPU.
    """
    if kv_type not in KV_TYPES:
        known = " and ".join(KV_TYPES)
        raise Unsupported(f"KV pages of type {kv_type!r} are not known.", f"Known are {known}.")
    where, asked = choose(device), bool(context or pages)
    context = min(context or 1 << 30, gguf.get(".context_length", int))
    sizes: dict[str, Any] = {
        "lanes": threads or len(_cores()), "context": context,
        "pages": pages or -(-context // PAGE), "max_rows": max_rows, "progress": progress,
    }  # fmt: skip
    if where != "cpu" and gpu_layers != 0:
        from localllm.backends.torch.opening import open_model  # torch: only where it is asked for

        if kv_type != "f16":
            raise Unsupported(
                f"KV pages of type {kv_type} are for the CPU.", "Use f16, or --device cpu."
            )
        sizes |= {"auto": device == "auto", "asked": asked, "gpu_layers": gpu_layers}
        return open_model(gguf, record(gguf), where, **sizes)
    from localllm.backends.cpu.model import CPUModel  # numba: only what computes pays for it

    return CPUModel(gguf, record(gguf), kv_type=kv_type, sample=sample, until=until, **sizes)


def _cores() -> list[int]:
    if hasattr(os, "sched_getaffinity"):
        return sorted(os.sched_getaffinity(0))
    return list(range(os.cpu_count() or 1))
