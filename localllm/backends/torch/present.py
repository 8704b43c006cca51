"""Which device a name means, found out without torch: only what is asked for is imported."""

import importlib.metadata
import importlib.util
import os
import platform
import sys
from pathlib import Path

from localllm.errors import BadRequest

DEVICES = ("auto", "cpu", "cuda", "mps", "torch-cpu")
NVIDIA, AMD, WSL = "/proc/driver/nvidia/version", "/dev/kfd", "/dev/dxg"  # where Linux shows a GPU


def choose(device: str) -> str:
    """ "cpu" for our own backend, else a name for `open_device`. Raises BadRequest.

    "auto" is a GPU only where torch is installed, built for it, and the system shows one.
    """
    if device not in DEVICES:
        raise BadRequest(f"There is no device {device!r}.", f"Use one of {', '.join(DEVICES)}.")
    return _gpu() or "cpu" if device == "auto" else device


def _gpu() -> str | None:
    if importlib.util.find_spec("torch") is None:
        return None
    if sys.platform == "darwin":
        return "mps" if platform.machine() == "arm64" else None
    if sys.platform == "win32":
        there = (Path(os.environ.get("SYSTEMROOT", "")) / "System32" / "nvcuda.dll").is_file()
    else:
        there = any(map(os.path.exists, (NVIDIA, AMD, WSL)))
    return "cuda" if there and not _cpu_only() else None


def _cpu_only() -> bool:
    """Whether the torch that is installed says in its version that it has no GPU in it."""
    try:
        return importlib.metadata.version("torch").endswith("+cpu")
    except importlib.metadata.PackageNotFoundError:
        return False
