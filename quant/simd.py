"""Vector values for kernels: names for `quant.llvm.vectors` and, what reads or writes memory,
`quant.llvm.memory`.

A vector has one 32-bit lane for each of LANES rows. Addresses are plain integers."""

from typing import Any

from quant.later import Later
from quant.target import BYTES, HALVES, LANES

__all__ = ["BYTES", "HALVES", "LANES"]

MEMORY = ("load_", "store_", "get_", "put_", "prefetch", "column", "stack", "in_order")


def __getattr__(name: str) -> Any:
    home = "memory" if name.startswith(MEMORY) else "vectors"
    return Later(f"quant.llvm.{home}", name)
