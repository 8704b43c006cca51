"""Q5_1: 32 weights in 24 bytes.   [d f16][m f16][fifth bits u32][nibbles]   w = d * q + m

Tile: LANES scales, LANES minima, then 5 vectors (see `quant.nibbles.pack_fives`).
"""

import numpy as np

from quant.format import halves_apart, integer_format
from quant.formats.q5_0 import fifths, pack
from quant.later import inline
from quant.nibbles import fifth
from quant.products import LEFT, with_minimum
from quant.simd import HALVES, column, get_f16
from quant.sums import fives

BLOCK = np.dtype([("d", "<f2"), ("m", "<f2"), ("h", "<u4"), ("q", "u1", 16)])


def unpack(blocks: np.ndarray) -> np.ndarray:
    """(n, 24) u8 -> (n, 32) f32."""
    b = np.ascontiguousarray(blocks).view(BLOCK)[:, 0]
    return b["d"].astype("f4")[:, None] * fifths(b["q"], b["h"]) + b["m"].astype("f4")[:, None]


@inline
def weight(block, i):
    """One weight of a block."""
    q = np.float32(fifth(block + 8, block + 4, i))
    return get_f16(block) * q + get_f16(block + 2)


@inline
def tile(source, stride, target):
    """One block of LANES rows."""
    halves_apart(column(source, stride), target)
    pack(source + 4, stride, target + 2 * HALVES)


FORMAT = integer_format(
    "Q5_1", __name__, unpack, with_minimum, tile, weight, integers=fives, FACTOR=1 / 8, LOW=LEFT
)
