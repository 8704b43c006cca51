"""Which instruction set kernels are written for: what Numba compiles for, asked of LLVM once.

`NUMBA_CPU_NAME` and `NUMBA_CPU_FEATURES` decide when both are set, else the host does. A wrong
intrinsic aborts the process, so a level is chosen only when every feature it uses is there.
"""

import os
from typing import NamedTuple

import llvmlite.binding as llvm


class Target(NamedTuple):
    """An instruction set: its name, 32-bit lanes in a vector, and the features it needs."""

    name: str
    lanes: int
    needs: frozenset[str]

    @property
    def signed(self) -> bool:
        """Whether integer dots take signed weights; those of x86 take unsigned ones."""
        return not self.x86

    @property
    def narrow(self) -> bool:
        """Whether integer dots give sums of 16 bits, which are widened later (`quant.narrow`)."""
        return self.name == "avx2"

    @property
    def x86(self) -> bool:
        """Whether x86 intrinsics may be used."""
        return self.name in X86


def _target(name: str, lanes: int, needs: str) -> Target:
    return Target(name, lanes, frozenset(needs.split()))


LEVELS = (
    _target("avx512-vnni", 16, "avx512f avx512bw avx512vl avx512vnni avx2 fma f16c"),
    _target("avx512vl-vnni", 8, "avx512vl avx512vnni avx2 fma f16c"),
    _target("avx-vnni", 8, "avxvnni avx2 fma f16c"),
    _target("avx2", 8, "avx2 fma f16c"),
    _target("neon-dotprod", 4, "neon dotprod"),
    _target("plain", 4, ""),
)
X86 = frozenset({"avx512-vnni", "avx512vl-vnni", "avx-vnni", "avx2"})


def features() -> frozenset[str]:
    """The features that Numba compiles with, named as LLVM names them."""
    name, wanted = os.environ.get("NUMBA_CPU_NAME"), os.environ.get("NUMBA_CPU_FEATURES")
    if name and wanted is not None:
        return frozenset(f[1:] for f in wanted.split(",") if f.startswith("+"))
    host = llvm.get_host_cpu_features()
    return frozenset(feature for feature, there in host.items() if there)


def choose(available: frozenset[str]) -> Target:
    """The best level whose features are all available."""
    return next(level for level in LEVELS if level.needs <= available)


TARGET = choose(features())
LANES = TARGET.lanes
BYTES = 4 * LANES  # of a vector
HALVES = 2 * LANES  # bytes of LANES 16-bit numbers
