"""What this machine offers, which kernels it gets, what is slow and why."""

import importlib.util
import os
import platform
from collections.abc import Iterator
from importlib.metadata import version
from pathlib import Path
from typing import Any

import psutil

from localllm import __version__, cgroup, machine, paths
from localllm.machinecode import keep
from localllm.probe import Memory, product_rate
from localllm.units import size
from quant.target import TARGET

FORMATS = ("Q4_K", "Q8_0")  # whose loops are timed
BUSY = 0.25  # share of the cores that others may use before it is worth a word
ROOM = 1 << 30  # bytes of disk under which a pull is likely to fail


def examine() -> dict[str, Any]:
    """Everything as plain data: sizes in bytes, rates a second."""
    threads, kernels = machine.threads(), keep()
    busy = psutil.cpu_percent(interval=0.2) / 100
    rates = {name: product_rate(name, threads.count) for name in FORMATS}
    report = {
        "versions": {"localllm": __version__, "python": platform.python_version()}
        | {name: version(name) for name in ("numba", "llvmlite", "numpy")},
        "cpu": machine.cpu_name(),
        "instructions": TARGET.name,
        "vector_bits": 32 * TARGET.lanes,
        "threads": threads.count,
        "threads_why": threads.why,
        "busy": busy,
        "memory": machine.total_memory(),
        "memory_available": machine.available_memory(),
        "bandwidth_one_thread": Memory(1).bandwidth(),
        "bandwidth": Memory(threads.count).bandwidth(),
        "multiply_adds": rates,
        "torch": importlib.util.find_spec("torch") is not None,
        "kernels": str(kernels),
        "kernels_size": folder_size(kernels),
        "models": str(paths.models()),
        "disk_free": disk_free(paths.models()),
    }
    return report | {"remarks": list(remarks(report))}


def remarks(report: dict[str, Any]) -> Iterator[str]:
    """What is slow or will fail here, and what to do about it."""
    if report["instructions"] == "plain":
        yield "No vector instructions that the kernels know: expect a tenth of the usual speed."
    elif report["instructions"] == "avx2":
        yield "AVX2 without VNNI: prompts take about twice as long as on newer processors."
    quota = cgroup.limits().cpus
    if quota is not None and quota < (psutil.cpu_count(logical=False) or 1):
        yield f"A cgroup grants {quota:g} CPUs: more threads than that stand still in turns."
    if report["busy"] > BUSY:
        yield (
            f"Other programs use {report['busy']:.0%} of the processor: a team of threads waits "
            "for its slowest one, so generation suffers most."
        )
    if report["memory_available"] < report["memory"] // 4:
        yield f"Only {size(report['memory_available'])} of memory are free."
    if report["disk_free"] < ROOM:
        yield f"Only {size(report['disk_free'])} of disk are free for models."
    if os.environ.get("NUMBA_DISABLE_JIT", "0") not in ("", "0"):
        yield "NUMBA_DISABLE_JIT is set: nothing can run."
    if not os.access(nearest(paths.cache()), os.W_OK):
        yield f"{paths.cache()} cannot be written: kernels are compiled anew at every start."


def folder_size(folder: Path) -> int:
    """Bytes of all files below it."""
    return sum(file.stat().st_size for file in folder.rglob("*") if file.is_file())


def nearest(folder: Path) -> Path:
    """The folder, or the first above it that is there."""
    return next(path for path in (folder, *folder.parents) if path.exists())


def disk_free(folder: Path) -> int:
    return psutil.disk_usage(str(nearest(folder))).free


def lines(report: dict[str, Any]) -> Iterator[str]:
    """The report for people."""
    versions = report["versions"]
    yield "localllm {localllm} · Python {python} · Numba {numba} · NumPy {numpy}".format(**versions)
    yield f"processor  {report['cpu']}"
    yield f"kernels    {report['instructions']}, vectors of {report['vector_bits']} bits"
    yield f"threads    {report['threads']}: {report['threads_why']}"
    free, whole = size(report["memory_available"]), size(report["memory"])
    yield f"memory     {free} free of {whole}"
    one, all_ = report["bandwidth_one_thread"] / 1e9, report["bandwidth"] / 1e9
    yield f"bandwidth  {all_:.1f} GB/s, one thread {one:.1f} GB/s"
    rates = ", ".join(
        f"{name} {rate / 1e9:.0f} G" for name, rate in report["multiply_adds"].items()
    )
    yield f"products   {rates} multiply-adds/s"
    yield f"torch      {'installed' if report['torch'] else 'not installed'}"
    yield f"cache      {report['kernels']}, {size(report['kernels_size'])}"
    yield f"models     {report['models']}, {size(report['disk_free'])} of disk free"
    yield f"A file of 1 GB can generate at most {report['bandwidth'] / 1e9:.0f} tokens/s here."
    for remark in report["remarks"]:
        yield f"! {remark}"
