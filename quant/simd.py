"""Vector values for kernels: load, store, fma, exp ...: names for `quant.llvm.vectors`.

A vector has one 32-bit lane for each of LANES rows. Addresses are plain integers."""

from typing import Any

from quant.later import Later
from quant.target import BYTES, HALVES, LANES

__all__ = ["BYTES", "HALVES", "LANES"]


def __getattr__(name: str) -> Any:
    return Later("quant.llvm.vectors", name)
