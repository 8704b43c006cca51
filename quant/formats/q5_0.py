"""Q5_0: 32 weights in 22 bytes.   [d f16][fifth bits u32][nibbles]   w = d * (q - 16)

Tile: LANES scales, then 5 vectors (see `quant.nibbles.pack_fives`).
"""

import numpy as np

from quant.format import columns, integer_format
from quant.later import inline
from quant.nibbles import fifth, pack_fives
from quant.products import symmetric
from quant.simd import (
    BYTES,
    HALVES,
    bits,
    column,
    get_f16,
    load_bytes,
    spread_bits,
    stack,
    store_part,
)
from quant.sums import fives

BLOCK = np.dtype([("d", "<f2"), ("h", "<u4"), ("q", "u1", 16)])


def fifths(nibbles: np.ndarray, high: np.ndarray) -> np.ndarray:
    """(n, 16) u8 nibbles and (n,) u32 of fifth bits -> (n, 32) u8 of 0 to 31."""
    bit = (high[:, None] >> np.arange(32, dtype="<u4") & 1).astype("u1")
    return np.concatenate([nibbles & 15, nibbles >> 4], 1) | bit << 4


def unpack(blocks: np.ndarray) -> np.ndarray:
    """(n, 22) u8 -> (n, 32) f32."""
    b = np.ascontiguousarray(blocks).view(BLOCK)[:, 0]
    q = fifths(b["q"], b["h"]).astype("i1") - np.int8(16)
    return b["d"].astype("f4")[:, None] * q


@inline
def weight(block, i):
    """One weight of a block."""
    return get_f16(block) * np.float32(fifth(block + 6, block + 2, i) - 16)


@inline
def five(q, high, g):
    """Columns 4 g to 4 g + 3, from 4 vectors of nibbles and a lane of fifth bits."""
    v = load_bytes(q + g % 4 * BYTES)
    low = bits(v, -4, 15) if g > 3 else bits(v, 0, 15)
    return low | bits(spread_bits(high, 4 * g), 4, 16)


@inline
def pack(source, stride, target):
    """Fifth bits and nibbles at `source` of LANES rows to five vectors."""
    q, high = stack(4), column(source, stride)
    columns(source + 4, stride, 4, q)
    pack_fives(
        five(q, high, 0), five(q, high, 1), five(q, high, 2), five(q, high, 3),
        five(q, high, 4), five(q, high, 5), five(q, high, 6), five(q, high, 7), target,
    )  # fmt: skip


@inline
def tile(source, stride, target):
    """One block of LANES rows."""
    store_part(target, column(source, stride), 16, 0)
    pack(source + 2, stride, target + HALVES)


FORMAT = integer_format(
    "Q5_0", __name__, unpack, symmetric, tile, weight, integers=fives, FACTOR=1 / 8
)
