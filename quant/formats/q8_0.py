"""Q8_0: 32 weights in 34 bytes.   [d f16][q0 .. q31 i8]   w = d * q

Tile: LANES scales, then 8 vectors of 4 columns (+ 128 where dots take unsigned weights).
"""

import numpy as np

from quant.format import columns, integer_format
from quant.later import inline
from quant.nibbles import signed
from quant.products import symmetric
from quant.simd import (
    BYTES,
    HALVES,
    column,
    get_f16,
    load_bytes,
    splat_byte,
    stack,
    store_bytes,
    store_part,
)
from quant.sums import eights
from quant.target import TARGET

BLOCK = np.dtype([("d", "<f2"), ("q", "i1", 32)])
FLIP = 0 if TARGET.signed else 128


def unpack(blocks: np.ndarray) -> np.ndarray:
    """(n, 34) u8 -> (n, 32) f32."""
    b = np.ascontiguousarray(blocks).view(BLOCK)[:, 0]
    return b["d"].astype("f4")[:, None] * b["q"]


@inline
def weight(block, i):
    """One weight of a block."""
    return get_f16(block) * np.float32(signed(block + 2 + i))


@inline
def tile(source, stride, target):
    """One block of LANES rows."""
    q = stack(8)
    columns(source + 2, stride, 8, q)
    store_part(target, column(source, stride), 16, 0)
    for k in range(8):
        weights = load_bytes(q + BYTES * k) ^ splat_byte(FLIP)
        store_bytes(target + HALVES + BYTES * k, weights)


FORMAT = integer_format("Q8_0", __name__, unpack, symmetric, tile, weight, integers=eights)
