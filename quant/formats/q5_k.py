"""Q5_K: 256 weights in 176 bytes.   [d f16][dmin f16][12 of scales][32 fifth bits][128 nibbles]

As Q4_K, with bit j of byte c of the fifth bits being the top bit of column c of run j.
Tile: the same head, then 8 x 5 vectors (see `quant.nibbles.pack_fives`).
"""

import numpy as np

from quant.format import columns, integer_format
from quant.formats.q4_k import nibbles, pack_scales, scaled, scaled_weight
from quant.later import inline
from quant.nibbles import byte, pack_fives
from quant.products import LEFT, with_minima
from quant.simd import BYTES, HALVES, bits, load_bytes, shift_right, stack
from quant.sums import fives

BLOCK = np.dtype(
    [("d", "<f2"), ("dmin", "<f2"), ("s", "u1", 12), ("h", "u1", 32), ("q", "u1", (4, 32))]
)


def unpack(blocks: np.ndarray) -> np.ndarray:
    """(n, 176) u8 -> (n, 256) f32."""
    b = np.ascontiguousarray(blocks).view(BLOCK)[:, 0]
    bit = b["h"][:, None, :] >> np.arange(8, dtype="u1")[:, None] & 1
    return scaled(b, nibbles(b["q"]) | bit << 4)


@inline
def weight(block, i):
    """One weight of a block."""
    j, c = i // 32, i % 32
    q = byte(block + 48 + 32 * (j // 2) + c) >> 4 * (j % 2) & 15
    return scaled_weight(block, j, q | (byte(block + 16 + c) >> j & 1) << 4)


@inline
def five(q, j, g):
    """Columns 4 g to 4 g + 3 of run j."""
    low = shift_right(load_bytes(q + BYTES * (12 + 8 * (j // 2) + g)), j % 2 * 4)
    return bits(low, 0, 15) | bits(shift_right(load_bytes(q + BYTES * (4 + g)), j), 4, 16)


@inline
def tile(source, stride, target):
    """One block of LANES rows."""
    q = stack(44)
    columns(source, stride, 44, q)
    pack_scales(q, target)
    target += 2 * HALVES + 3 * BYTES
    for j in range(8):
        pack_fives(
            five(q, j, 0), five(q, j, 1), five(q, j, 2), five(q, j, 3),
            five(q, j, 4), five(q, j, 5), five(q, j, 6), five(q, j, 7), target + 5 * BYTES * j,
        )  # fmt: skip


FORMAT = integer_format(
    "Q5_K", __name__, unpack, with_minima, tile, weight,
    integers=fives, FACTOR=1 / 8, WEIGHT_BYTES=5 * BYTES, LOW=LEFT,
)  # fmt: skip
