"""Q4_0: 32 weights in 18 bytes.   [d f16][nibbles: q0 | q16 << 4 ..]   w = d * (q - 8)

Tile: LANES scales, then 4 vectors: low nibbles columns 0 to 15, high ones the rest.
"""

import numpy as np

from quant.format import columns, integer_format
from quant.later import inline
from quant.nibbles import FLIP44, nibble
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
from quant.sums import left_fours

BLOCK = np.dtype([("d", "<f2"), ("q", "u1", 16)])


def unpack(blocks: np.ndarray) -> np.ndarray:
    """(n, 18) u8 -> (n, 32) f32."""
    b = np.ascontiguousarray(blocks).view(BLOCK)[:, 0]
    q = np.concatenate([b["q"] & 15, b["q"] >> 4], 1).astype("i1") - np.int8(8)
    return b["d"].astype("f4")[:, None] * q


@inline
def weight(block, i):
    """One weight of a block."""
    return get_f16(block) * np.float32(nibble(block + 2, i) - 8)


@inline
def tile(source, stride, target):
    """One block of LANES rows."""
    q = stack(4)
    columns(source + 2, stride, 4, q)
    store_part(target, column(source, stride), 16, 0)
    for k in range(4):
        weights = load_bytes(q + BYTES * k) ^ splat_byte(FLIP44)
        store_bytes(target + HALVES + BYTES * k, weights)


FORMAT = integer_format(
    "Q4_0", __name__, unpack, symmetric, tile, weight, integers=left_fours, FACTOR=1 / 16
)
