"""Q6_K: 256 weights in 210 bytes.   [128 nibbles][64 x 2 high bits][16 scales i8][d f16]

w = d * s * (q - 32), with an s for each 16 weights. Nibbles: two runs of 64 bytes, each the low
nibbles of 64 weights and the high ones of the next 64; high bits: two runs of 32 bytes, two bits
for each of four groups of 32.
Tile: LANES d, 16 x LANES scales, then 16 x 3 vectors (see `quant.nibbles.pack_sixes`). Integer
sums of 32 are times their scales already; sums of 256 are multiplied by d once.
"""

import numpy as np

from quant.format import bytes_apart, columns, integer_format
from quant.later import inline
from quant.nibbles import byte, pack_sixes, signed
from quant.products import fetch
from quant.rows import SLOT_BYTES
from quant.simd import (
    BYTES,
    HALVES,
    LANES,
    bits,
    column,
    get_f16,
    in_order,
    load_bytes,
    load_f16,
    shift_right,
    splat_f32,
    stack,
    store_part,
)
from quant.sums import scaled_sixes
from quant.tiles import fma_int_rows, fma_tiles, zeros_like

BLOCK = np.dtype([("q", "u1", (2, 64)), ("h", "u1", (2, 32)), ("s", "i1", 16), ("d", "<f2")])
TILE_BYTES = 210 * LANES


def unpack(blocks: np.ndarray) -> np.ndarray:
    """(n, 210) u8 -> (n, 256) f32."""
    b = np.ascontiguousarray(blocks).view(BLOCK)[:, 0]
    low = np.stack([b["q"] & 15, b["q"] >> 4], 2).reshape(-1, 2, 4, 32)
    high = b["h"][:, :, None, :] >> np.arange(0, 8, 2, dtype="u1")[:, None] & 3
    q = (low | high << 4).astype("i1").reshape(-1, 16, 16) - np.int8(32)
    scale = b["d"].astype("f4")[:, None] * b["s"]
    return (scale[..., None] * q).reshape(-1, 256)


@inline
def weight(block, i):
    """One weight of a block."""
    run, group, c = i // 128, i // 32 % 4, i % 32
    low = byte(block + 64 * run + 32 * (group % 2) + c) >> 4 * (group // 2) & 15
    high = byte(block + 128 + 32 * run + c) >> 2 * group & 3
    scale = get_f16(block + 208) * np.float32(signed(block + 192 + i // 16))
    return scale * np.float32((low | high << 4) - 32)


def by_sixteens(tiles, w, x, blocks, slots):
    """The loop of this format, in place of one of `quant.products`."""
    for _ in range(0, blocks, 8):
        scaled = zeros_like(tiles)
        for j in range(8):
            weights, about = w + HALVES + 4 * BYTES + 6 * BYTES * j, x + 32 * slots
            scales, sums = w + HALVES + 2 * LANES * j, about + 8 * slots
            fetch(tiles, weights + TILE_BYTES, 6 * BYTES)
            if len(tiles) == 1:  # else LLVM mixes the loads of all eight, and a token gets 2/3
                in_order()
            i = scaled_sixes(tiles, weights, scales, x, sums, slots)
            scaled = fma_int_rows(scaled, i, about, 4)
            x += SLOT_BYTES * slots
        tiles = fma_tiles(tiles, scaled, load_f16(w) * splat_f32(np.float32(1 / 4)))
        w += TILE_BYTES
    return tiles


@inline
def six(q, k):
    """Columns 4 k to 4 k + 3."""
    run, group, g = k // 32, k // 8 % 4, k % 8
    low = shift_right(load_bytes(q + BYTES * (16 * run + 8 * (group % 2) + g)), group // 2 * 4)
    high = shift_right(load_bytes(q + BYTES * (32 + 8 * run + g)), 2 * group)
    return bits(low, 0, 15) | bits(high, 4, 48)


@inline
def tile(source, stride, target):
    """One block of LANES rows."""
    q = stack(52)
    columns(source, stride, 52, q)
    store_part(target, column(source + 206, stride), 16, 1)
    target += HALVES
    for k in range(4):
        bytes_apart(load_bytes(q + BYTES * (48 + k)), target + BYTES * k)
    target += 4 * BYTES
    for k in range(16):
        pack_sixes(
            six(q, 4 * k), six(q, 4 * k + 1), six(q, 4 * k + 2), six(q, 4 * k + 3),
            target + 3 * BYTES * k,
        )  # fmt: skip


FORMAT = integer_format("Q6_K", __name__, unpack, by_sixteens, tile, weight)
