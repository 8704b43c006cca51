"""Opens a torch device, or says in one line what to install or change."""

import importlib
from dataclasses import dataclass
from types import ModuleType
from typing import Any

from localllm.errors import Unavailable
from localllm.units import size

INDEX = "https://download.pytorch.org/whl/cu126"
NAMES = {"torch-cpu": "cpu"}  # ours -> torch's
CHUNKS = {"cpu": 1 << 20}  # weights that are unpacked at once: within a cache there,
CHUNK = 1 << 24  # and enough to keep a GPU busy here


@dataclass(frozen=True)
class Device:
    """Where tensors lie. exact: products in f32; else in f16, the rows scaled beforehand."""

    name: str
    kind: str  # cpu, cuda, mps
    exact: bool
    chunk: int

    def free(self, torch: Any) -> int | None:
        """Bytes that are free on it; None where they are the machine's own."""
        if self.kind == "cuda":
            return torch.cuda.mem_get_info()[0]
        if self.kind == "mps":
            used = torch.mps.driver_allocated_memory()
            return max(0, torch.mps.recommended_max_memory() - used)
        return None


def import_torch(device: str) -> ModuleType:
    """torch itself. Raises Unavailable where it is missing or broken."""
    try:
        return importlib.import_module("torch")
    except ImportError as error:
        if isinstance(error, ModuleNotFoundError) and error.name == "torch":
            raise Unavailable(
                f"--device {device} needs torch, which is not installed.",
                "pip install 'localllm[torch]', or use --device cpu.",
            ) from None
        raise Unavailable(
            f"torch is installed, but does not load: {first_line(error)}",
            "Install it again, or use --device cpu.",
        ) from error
    except OSError as error:  # a library of its own that is missing
        raise Unavailable(
            f"torch is installed, but does not load: {first_line(error)}",
            "Install it again, or use --device cpu.",
        ) from error


def open_device(name: str, torch: Any) -> Device:
    """The device of that name. Raises Unavailable, saying what is in the way."""
    if name == "cuda":
        _demand_cuda(torch)
        return Device(torch.cuda.get_device_name(), "cuda", exact=False, chunk=CHUNK)
    if name == "mps":
        if not torch.backends.mps.is_available():
            raise Unavailable(
                f"This torch ({torch.__version__}) has no Apple GPU to run on.",
                "It takes macOS 14 on Apple silicon; use --device cpu.",
            )
        return Device("Apple GPU", "mps", exact=False, chunk=CHUNK)
    return Device("torch CPU", "cpu", exact=True, chunk=CHUNKS["cpu"])


def _demand_cuda(torch: Any) -> None:
    if torch.version.cuda is None and getattr(torch.version, "hip", None) is None:
        raise Unavailable(
            f"This torch ({torch.__version__}) was built without CUDA.",
            f"pip install torch --index-url {INDEX}, or use --device cpu.",
        )
    if torch.cuda.is_available():
        return
    try:
        torch.cuda.init()
    except (RuntimeError, AssertionError) as error:
        raise Unavailable(
            f"torch cannot use the GPU: {first_line(error)}",
            "Update the driver, or install a torch that was built for it, or use --device cpu.",
        ) from error
    raise Unavailable("torch finds no GPU.", "Check nvidia-smi, or use --device cpu.")


def first_line(error: BaseException) -> str:
    """The first sentence of what a library says went wrong."""
    lines = str(error).strip().splitlines() or [type(error).__name__]
    return lines[0].split(". ")[0].rstrip(".") + "."


def out_of_memory(free: int | None) -> str:
    """What to say of a device whose memory ran out."""
    return "" if free is None else f" ({size(free)} free)"
