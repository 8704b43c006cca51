"""Register tiles for kernels: names for `quant.llvm.tiles`."""

from typing import Any

from quant.later import Later


def __getattr__(name: str) -> Any:
    return Later("quant.llvm.tiles", name)
