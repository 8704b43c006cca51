"""Opens a model on a torch device: which device, how many layers of it, which kernels."""

import importlib.util
import warnings
from typing import Any

from localllm.backends.torch.device import Device, import_torch, open_device
from localllm.batch import PAGE, Model
from localllm.errors import Unavailable
from localllm.gguf import GGUF
from localllm.program import Program


def open_model(
    gguf: GGUF, program: Program, name: str, *, auto: bool, lanes: int, context: int, pages: int,
    max_rows: int, asked: bool, gpu_layers: int | str = "auto", progress=None,
) -> Model:  # fmt: skip
    """A model whose first layers, or all of them, are on the device of that name.

    gpu_layers: how many; "auto" for as many as fit. auto: whether the device was a guess, so that
    the CPU takes over, with a warning, where it cannot be used. asked: whether context and pages
    were asked for, so that they may not be less. Raises Unavailable for a device that is not
    there, TooLarge for too little memory, Unsupported and BadFile.
    """
    common: dict[str, Any] = {
        "context": context, "pages": pages, "max_rows": max_rows, "progress": progress,
    }  # fmt: skip
    try:
        torch: Any = import_torch(name)
        device = open_device(name, torch)
    except Unavailable as error:
        if not auto:
            raise
        warnings.warn(f"The CPU runs this model: {error.message}", stacklevel=2)
        return _on_cpu(gguf, program, lanes, common)
    from localllm.backends.torch.plan import plan

    chosen = plan(
        gguf, program, device, device.free(torch), wanted=gpu_layers, pages=pages,
        asked=asked, rows=max_rows,
    )  # fmt: skip
    if not chosen.layers:
        return _on_cpu(gguf, program, lanes, common)
    common |= {"kernels": kernels_for(device), "pages": chosen.pages}
    common["context"] = min(context, chosen.pages * PAGE)
    if chosen.layers >= chosen.total:
        from localllm.backends.torch.model import TorchModel

        model: Any = TorchModel(gguf, program, device, **common)
        model.device = f"{device.name}, {chosen}"
        return model
    from localllm.backends.torch.offload import SplitModel  # numba

    split = SplitModel(gguf, program, device, chosen.layers, lanes=lanes, **common)
    split.device = f"{device.name}, {chosen}; the rest on {split.rest.device}"
    return split


def _on_cpu(gguf: GGUF, program: Program, lanes: int, common: dict[str, Any]) -> Model:
    from localllm.backends.cpu.model import CPUModel  # numba

    model: Any = CPUModel(gguf, program, lanes=lanes, **common)
    return model


def kernels_for(device: Device):
    """Kernels of our own, where the device can have them: Triton's, on CUDA."""
    if device.kind != "cuda" or importlib.util.find_spec("triton") is None:
        return None
    from localllm.backends.torch import triton

    return triton
