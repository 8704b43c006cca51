"""Register tiles for kernels: names for `quant.llvm.tiles` and, dot products, `quant.llvm.dots`."""

from typing import Any

from quant.later import Later


def __getattr__(name: str) -> Any:
    home = "dots" if name.startswith("dot_") else "tiles"
    return Later(f"quant.llvm.{home}", name)
