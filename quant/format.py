"""One block format: its place in the file, its NumPy twin, and its kernels."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from quant.jit import Kernel
from quant.later import inline, stamp
from quant.products import kernels_of
from quant.simd import BYTES, LANES, column, store_bytes, store_part
from quant.types import by_name


@dataclass(frozen=True)
class Format:
    """A ggml block format that localllm runs.

    weights: in a block of `bytes` bytes · unpack: (n, bytes) u8 -> (n, weights) f32 ·
    product, repack, unpack_row: see `quant.products` · integer: whether activations are int8
    panels, else rows of f32 · step: columns that `blocks` counts in `product`.
    """

    name: str
    weights: int
    bytes: int
    unpack: Callable[[np.ndarray], np.ndarray]
    product: Kernel
    repack: Kernel
    unpack_row: Kernel
    integer: bool

    @property
    def step(self) -> int:
        """Columns that one of `product`'s blocks spans."""
        return 32 if self.integer else 1

    def tile_bytes(self, columns: int) -> int:
        """Bytes of LANES rows of that many columns, which a block divides."""
        return columns // self.weights * self.bytes * LANES


def integer_format(name: str, home: str, unpack, loop, tile, weight, **constants) -> Format:
    """A format of a loop of `quant.products` with its helpers and constants filled in.

    weight(block, i): one weight of a block, f32, the same bits as `unpack` has.
    """
    kind = by_name(name)
    lower = name.lower()
    filled = stamp(loop, f"{lower}_dot", TILE_BYTES=kind.bytes * LANES, **constants)
    kernels = kernels_of(lower, home, kind.weights, inline(filled), tile, weight)
    return Format(name, kind.weights, kind.bytes, unpack, *kernels, integer=True)


@inline
def columns(source, stride, count, to):
    """`count` columns of four bytes of LANES rows, one vector each."""
    for k in range(count):
        store_bytes(to + BYTES * k, column(source + 4 * k, stride))


@inline
def bytes_apart(x, to):
    """The four bytes of each lane, LANES bytes of each."""
    store_part(to, x, 8, 0)
    store_part(to + LANES, x, 8, 1)
    store_part(to + 2 * LANES, x, 8, 2)
    store_part(to + 3 * LANES, x, 8, 3)


@inline
def halves_apart(x, to):
    """The two 16-bit numbers of each lane, LANES of each."""
    store_part(to, x, 16, 0)
    store_part(to + 2 * LANES, x, 16, 1)
