"""Q4_1: 32 weights in 20 bytes.   [d f16][m f16][nibbles: q0 | q16 << 4 ..]   w = d * q + m

Tile: LANES scales, LANES minima, then 4 vectors: low nibbles columns 0 to 15, high ones the rest.
"""

import numpy as np

from quant.format import columns, halves_apart, integer_format
from quant.later import inline
from quant.nibbles import nibble
from quant.products import with_minimum
from quant.simd import HALVES, column, get_f16
from quant.sums import fours

BLOCK = np.dtype([("d", "<f2"), ("m", "<f2"), ("q", "u1", 16)])


def unpack(blocks: np.ndarray) -> np.ndarray:
    """(n, 20) u8 -> (n, 32) f32."""
    b = np.ascontiguousarray(blocks).view(BLOCK)[:, 0]
    q = np.concatenate([b["q"] & 15, b["q"] >> 4], 1)
    return b["d"].astype("f4")[:, None] * q + b["m"].astype("f4")[:, None]


@inline
def weight(block, i):
    """One weight of a block."""
    return get_f16(block) * np.float32(nibble(block + 4, i)) + get_f16(block + 2)


@inline
def tile(source, stride, target):
    """One block of LANES rows."""
    halves_apart(column(source, stride), target)
    columns(source + 4, stride, 4, target + 2 * HALVES)


FORMAT = integer_format("Q4_1", __name__, unpack, with_minimum, tile, weight, integers=fours)
