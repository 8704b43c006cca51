"""What this machine offers, which kernels it gets, what is slow and why."""

import importlib.util
import os
import platform
import shutil
import time
from collections.abc import Iterator
from importlib.metadata import version
from pathlib import Path
from typing import Any

import psutil

from localllm import __version__, cgroup, machine, paths, store
from localllm.machinecode import keep
from localllm.probe import Memory, product_rate
from localllm.units import size
from localllm.verdict import remarks, verdict
from quant.target import TARGET

FORMATS = ("Q4_K", "Q8_0")  # whose loops are timed
SAMPLE = 64 << 20  # bytes of a model that are read to time the disk


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
        "cores": psutil.cpu_count(logical=False) or 1,
        "quota": cgroup.limits().cpus,
        "torch": importlib.util.find_spec("torch") is not None,
        "gpu": gpu(),
        "kernels": str(kernels),
        "kernels_size": folder_size(kernels),
        "stale": sum(folder_size(f) for f in kernels.parent.iterdir() if f != kernels),
        "cache_writable": os.access(nearest(paths.cache()), os.W_OK),
        "models": str(paths.models()),
        "disk_rate": disk_rate(),
        "disk_free": disk_free(paths.models()),
    }
    return report | {"verdict": list(verdict(report)), "remarks": list(remarks(report))}


def folder_size(folder: Path) -> int:
    """Bytes of all files below it."""
    return sum(file.stat().st_size for file in folder.rglob("*") if file.is_file())


def nearest(folder: Path) -> Path:
    """The folder, or the first above it that is there."""
    return next(path for path in (folder, *folder.parents) if path.exists())


def gpu() -> str:
    """A GPU that torch could use, whether torch is here or not; "" where none is seen."""
    if shutil.which("nvidia-smi") or Path("/proc/driver/nvidia").exists():
        return "An NVIDIA GPU"
    return "Apple's GPU" if (platform.system(), platform.machine()) == ("Darwin", "arm64") else ""


def disk_rate() -> float | None:
    """Bytes a second that the disk gives of the largest model; None where there is no way to tell.

    The system is asked to forget what it has of that stretch in memory.
    """
    models = [path for model in store.installed() if model.present for path in model.files]
    largest = max(models, key=lambda path: path.stat().st_size, default=None)
    if largest is None or not hasattr(os, "posix_fadvise"):
        return None
    with largest.open("rb", buffering=0) as file:
        os.posix_fadvise(file.fileno(), 0, SAMPLE, os.POSIX_FADV_DONTNEED)
        since = time.perf_counter()
        amount = sum(len(file.read(1 << 20)) for _ in range(SAMPLE >> 20))
        return amount / max(1e-9, time.perf_counter() - since)


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
    yield f"GPU        {report['gpu'] or 'none'}"
    yield f"torch      {'installed' if report['torch'] else 'not installed'}"
    yield f"cache      {report['kernels']}, {size(report['kernels_size'])}"
    rate = f", read at {size(report['disk_rate'])}/s" if report["disk_rate"] else ""
    yield f"models     {report['models']}, {size(report['disk_free'])} of disk free{rate}"
    yield ""
    yield from report["verdict"]
    for remark in report["remarks"]:
        yield f"! {remark}"
