"""Torch devices, measured and checked in under ten minutes: writes benchmarks/GPU.md.

    python benchmarks/gpu.py [--device cuda] [--minutes 9] [--only NAME ...] [--out FILE]

Models that are installed are taken as they are; for the others files of their shapes are made, with
random weights. "Right" compares 64 tokens' logits with exact arithmetic (f32 on torch's CPU): the
device must be no further from it than the CPU backend, whose activations are int8.
"""

import argparse
import platform
import statistics
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import shapes
import torch

from localllm import machine, models, store
from localllm.batch import PAGE, Batch, Model
from localllm.bench.costs import costs
from localllm.bench.grid import Case
from localllm.bench.ours import Ours
from localllm.gguf import GGUF
from localllm.machinecode import keep
from localllm.units import size

CASES = [Case("pp", 512), *(Case("tg", 64, batch=batch) for batch in (1, 8, 32))]
PAGES, REPEATS, CHECKED, CLOSE = 512, 3, 64, 0.05
NEEDED = 25  # seconds a GB of weights takes at most: made, loaded three times, measured


@dataclass
class Result:
    """What one model showed; rates in tokens/s, share of the device's bandwidth at tg64."""

    name: str
    weights: int
    errors: dict[str, float] = field(default_factory=dict)  # device -> NMSE against exact logits
    rates: dict[str, float] = field(default_factory=dict)
    share: float = 0.0
    held: int = 0
    note: str = ""

    @property
    def right(self) -> bool:
        ours, cpu = self.errors["device"], self.errors["cpu"]
        return bool(ours <= cpu) and cpu < CLOSE


def main() -> None:
    """Measure each model while there is time, and write down what there is after each."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--minutes", type=float, default=9)
    parser.add_argument("--only", nargs="*", default=[shape.name for shape in shapes.SHAPES])
    parser.add_argument("--out", type=Path, default=Path(__file__).with_name("GPU.md"))
    chosen = parser.parse_args()
    until = time.monotonic() + 60 * chosen.minutes
    keep()
    speed, results = bandwidth(chosen.device), []
    for shape in shapes.SHAPES:
        if shape.name not in chosen.only:
            continue
        with tempfile.TemporaryDirectory() as folder:
            path, made = file_of(shape, Path(folder))
            result = Result(shape.name + (" (random weights)" if made else ""), path.stat().st_size)
            left = until - time.monotonic()
            if left < 20 + NEEDED * result.weights / 1e9:
                result.note = "not measured: no time left"
            else:
                measure(path, chosen.device, speed, result)
        results.append(result)
        chosen.out.write_text(report(chosen.device, speed, results), encoding="utf-8")
        print(line(result), flush=True)


def file_of(shape: shapes.Shape, folder: Path) -> tuple[Path, bool]:
    """The installed model of that name, or one that is made; and whether it was made."""
    installed = store.find(shape.name)
    if installed is not None:
        return Path(installed.path), False
    return shapes.write(shape, folder / "model.gguf"), True


def measure(path: Path, device: str, speed: float, result: Result) -> None:
    """Fill in a result."""
    with GGUF.open(path) as gguf:
        context, pages = min(1024, gguf.get(".context_length", int)), PAGES * 3
        sizes = {"context": context, "pages": pages, "threads": machine.threads().count}
        rows = {}
        for name, where in (("exact", "torch-cpu"), ("cpu", "cpu"), ("device", device)):
            model = models.load(gguf, device=where, **sizes)
            rows[name] = logits(model)
            if name == "device":
                rates(model, gguf, speed, result)
            model.close()
    exact = rows.pop("exact").astype("f8")
    for name, got in rows.items():
        result.errors[name] = float(((got - exact) ** 2).sum() / (exact**2).sum())


def logits(model: Model) -> np.ndarray:
    """(CHECKED, vocab) f32 of one random text: half of it as a prompt, then token by token."""
    ids = np.random.default_rng(7).integers(0, model.vocab, CHECKED, dtype=np.int32)
    table = np.arange(model.pages - 8, model.pages, dtype=np.int32)[None]
    half, rows = min(CHECKED // 2, model.max_wanted), []
    steps = [(0, half), *((at, at + 1) for at in range(half, CHECKED))]
    for first, end in steps:
        count = end - first
        begins, starts = np.array([0, count], np.int32), np.array([first], np.int32)
        batch = Batch(ids[first:end], begins, starts, table, np.arange(count, dtype=np.int32))
        rows.append(model.forward(batch).copy())
    assert table.size * PAGE >= CHECKED
    return np.concatenate(rows)


def rates(model: Model, gguf: GGUF, speed: float, result: Result) -> None:
    """Tokens/s of each case: the middle of a few runs after two that do not count."""
    ours = Ours(model)
    for case in CASES:
        ours.prepare(case)
        for _ in range(2):  # a graph is captured when a shape comes for the third time
            ours.run(case)
        seconds = statistics.median(ours.run(case) for _ in range(REPEATS))
        result.rates[case.name] = case.total / seconds
        if case.name == "tg64":
            layers = models.record(gguf).layers
            kv = sum(2 * a.kv_heads * (a.k_dims + a.v_dims) for a in layers)
            result.share = costs(gguf, kv).bytes_read(case) / seconds / speed
    if torch.cuda.is_available():
        result.held = torch.cuda.max_memory_allocated()
        torch.cuda.reset_peak_memory_stats()


def bandwidth(device: str) -> float:
    """Bytes/s that the device's memory is read and written with, by copying a large tensor."""
    kind = "cpu" if device == "torch-cpu" else device
    source = torch.ones(1 << (28 if kind == "cuda" else 24), device=kind)
    target, best = torch.empty_like(source), float("inf")
    for _ in range(5):
        since = time.perf_counter()
        for _ in range(4):
            target.copy_(source)
        target[0].item()  # waits for all of it
        best = min(best, time.perf_counter() - since)
    return 4 * 2 * source.nbytes / best


def line(r: Result) -> str:
    """One row of the table."""
    if r.note:
        return f"| {r.name} | {size(r.weights)} | {r.note} |" + " |" * (len(CASES) + 2)
    errors = f"{r.errors['device']:.1e} / {r.errors['cpu']:.1e} {'✓' if r.right else '✗ WRONG'}"
    speeds = " | ".join(f"{r.rates[case.name]:,.0f}" for case in CASES)
    return (
        f"| {r.name} | {size(r.weights)} | {errors} | {speeds} | {r.share:.0%} | {size(r.held)} |"
    )


def report(device: str, speed: float, results: list[Result]) -> str:
    """The page: what ran where, and a table."""
    name = torch.cuda.get_device_name() if torch.cuda.is_available() else platform.processor()
    names = " | ".join(case.name for case in CASES)
    rows = "\n".join(map(line, results))
    return f"""# Torch devices, measured

`python benchmarks/gpu.py --device {device}` on {name or platform.machine()}, torch \
{torch.__version__}; its memory copies {size(speed)}/s. Tokens/s, the middle of {REPEATS} runs. \
Error: squared error over squared signal of {CHECKED} tokens' logits against f32 arithmetic, the \
device's / the CPU backend's. Share: bytes a token must read, of what the memory can do.

| model | file | error | {names} | share, tg64 | memory |
|{"---|" * (len(CASES) + 5)}
{rows}
"""


if __name__ == "__main__":
    main()
