"""A tile of weights times tokens: the loops that every block format is stamped into.

A tile is LANES rows of weights, repacked so that lane r works for row r, and no larger than the
file's own blocks. `dot(tiles, w, x, blocks, slots)` adds one tile times T tokens, block after
block in one fixed order whatever T is: the same bits for one token and for many.

A format brings `integers(tiles, w, x)`: the integer sums of one block of 32 columns, weights at
w against int8 at x, and its constants; a template here does the rest.
"""

import numpy as np

from quant.jit import Kernel
from quant.later import inline, stamp
from quant.rows import PANEL, SLOT_BYTES
from quant.simd import (
    BYTES,
    HALVES,
    LANES,
    bits,
    load_bytes,
    load_f16,
    load_u8,
    prefetch,
    prefetch_early,
    put_f32,
    splat_f32,
    stack,
    store_bytes,
    to_f32,
)
from quant.target import TARGET
from quant.tiles import fma_offset_rows, fma_rows, fma_scaled_rows, store_rows, zeros

SIGNED = TARGET.signed
LEFT = 1 if SIGNED else 0  # a left-aligned weight of 5 bits is stored 128 too low when signed
AHEAD = 12  # blocks of 32 columns between asking for weights and using them
ROW = 4 * LANES  # bytes of a token's results

# What a format fills in; these stand here so that the templates can be read as functions.
integers = None
FACTOR = MINIMUM_FACTOR = 1.0
TILE_BYTES = WEIGHT_BYTES = 0
LOW = 0


@inline
def fetch(tiles, w, size):
    """Ask for weights that several tokens will need soon; one token reads faster than it asks."""
    if len(tiles) > 1:
        for line in range(0, size, 64):
            prefetch(w + line)


@inline
def fetch_early(tiles, w, size):
    """The same for short blocks: so many ahead that they would crowd the first cache."""
    if len(tiles) > 1:
        for line in range(0, size, 64):
            prefetch_early(w + AHEAD * size + line)


def symmetric(tiles, w, x, blocks, slots):
    """One f16 scale for 32 weights, offset 128 where weights are unsigned."""
    for _ in range(blocks):
        fetch_early(tiles, w, TILE_BYTES)
        i, scale = integers(tiles, w + HALVES, x), load_f16(w) * splat_f32(np.float32(FACTOR))
        scales = x + 32 * slots
        if SIGNED:
            tiles = fma_scaled_rows(tiles, i, scale, scales, 4)
        else:
            tiles = fma_offset_rows(tiles, i, scale, scales, scales + 4 * slots, 4)
        w, x = w + TILE_BYTES, x + SLOT_BYTES * slots
    return tiles


def with_minimum(tiles, w, x, blocks, slots):
    """An f16 scale and an f16 minimum for 32 weights: w = scale * q + minimum."""
    for _ in range(blocks):
        fetch_early(tiles, w, TILE_BYTES)
        i = integers(tiles, w + 2 * HALVES, x)
        scale = load_f16(w) * splat_f32(np.float32(FACTOR))
        least = load_f16(w + HALVES) * splat_f32(np.float32(-1 / 128))
        if LOW:
            least = least - scale
        scales = x + 32 * slots
        tiles = fma_scaled_rows(tiles, i, scale, scales, 4)
        tiles = fma_rows(tiles, least, scales + 4 * slots, 4)
        w, x = w + TILE_BYTES, x + SLOT_BYTES * slots
    return tiles


@inline
def unpack_scales(w, to):
    """The 12 bytes of 6-bit scales and minima of a K block, LANES rows at once: 8, then 8.

    Source: `get_scale_min_k4` of ggml-quants.c.
    """
    a, b, c = load_bytes(w), load_bytes(w + BYTES), load_bytes(w + 2 * BYTES)
    store_bytes(to, bits(a, 0, 63))
    store_bytes(to + BYTES, bits(c, 0, 15) | bits(a, -2, 48))
    store_bytes(to + 2 * BYTES, bits(b, 0, 63))
    store_bytes(to + 3 * BYTES, bits(c, -4, 15) | bits(b, -2, 48))


def with_minima(tiles, w, x, blocks, slots):
    """Blocks of 256: f16 d and dmin, eight 6-bit scales and minima: w = d * s * q - dmin * m."""
    scales = stack(4)
    for _ in range(0, blocks, 8):
        unpack_scales(w + 2 * HALVES, scales)
        d = load_f16(w) * splat_f32(np.float32(FACTOR))
        dmin = load_f16(w + HALVES) * splat_f32(np.float32(1 / 128))
        weights = w + 2 * HALVES + 3 * BYTES
        for j in range(8):
            s = scales + LANES * j
            scale = to_f32(load_u8(s)) * d
            least = to_f32(load_u8(s + 8 * LANES)) * dmin
            if LOW:
                least = least - scale
            fetch(tiles, weights + WEIGHT_BYTES * j + TILE_BYTES, WEIGHT_BYTES)
            i = integers(tiles, weights + WEIGHT_BYTES * j, x)
            tiles = fma_scaled_rows(tiles, i, scale, x + 32 * slots, 4)
            tiles = fma_rows(tiles, least, x + 36 * slots, 4)
            x += SLOT_BYTES * slots
        w += TILE_BYTES
    return tiles


# ---- kernels that other kernels call by address ---------------------------------------------

dot = tile = load = weight = None
WEIGHTS = 1


def integer_product(w, x, blocks, pitch, count, out):
    """`count` tokens of panels that lie `pitch` bytes apart, to (count, LANES) f32 at `out`.

    A pitch of 0 is a single token in a panel of one slot. The last panel does no more work than
    its tokens need, in twos.
    """
    if pitch == 0:
        store_rows(dot(zeros(1), w, x, blocks, 1), out, ROW)
        return
    while count > 6:
        store_rows(dot(zeros(8), w, x, blocks, PANEL), out, ROW)
        x, out, count = x + pitch, out + 8 * ROW, count - 8
    if count > 4:
        store_rows(dot(zeros(6), w, x, blocks, PANEL), out, ROW)
    elif count > 2:
        store_rows(dot(zeros(4), w, x, blocks, PANEL), out, ROW)
    elif count > 0:
        store_rows(dot(zeros(2), w, x, blocks, PANEL), out, ROW)


def float_dot(tiles, w, x, columns, pitch):
    """One tile of floats, column by column, times T rows of f32 that lie `pitch` bytes apart."""
    for _ in range(columns):
        tiles = fma_rows(tiles, load(w), x, pitch)
        w, x = w + TILE_BYTES, x + 4
    return tiles


def float_product(w, x, columns, pitch, count, out):
    """The same for floats and rows of f32; `columns` stands where blocks would."""
    while count > 6:
        store_rows(dot(zeros(8), w, x, columns, pitch), out, ROW)
        x, out, count = x + 8 * pitch, out + 8 * ROW, count - 8
    if count > 4:
        store_rows(dot(zeros(6), w, x, columns, pitch), out, ROW)
    elif count > 2:
        store_rows(dot(zeros(4), w, x, columns, pitch), out, ROW)
    elif count > 1:
        store_rows(dot(zeros(2), w, x, columns, pitch), out, ROW)
    elif count > 0:
        store_rows(dot(zeros(1), w, x, columns, pitch), out, ROW)


def repack(source, target, blocks, stride, first, end):
    """Tiles first to end - 1 of a matrix of `blocks` file blocks a row, `stride` bytes apart."""
    size = stride // blocks
    for k in range(first * blocks, end * blocks):
        at = source + k // blocks * LANES * stride + k % blocks * size
        tile(at, stride, target + k * LANES * size)


def unpack_row(source, blocks, size, target):
    """`blocks` file blocks of `size` bytes each to f32."""
    for at in range(source, source + blocks * size, size):
        for i in range(WEIGHTS):
            put_f32(target + 4 * i, weight(at, i))
        target += 4 * WEIGHTS


def kernels_of(
    name: str, home: str, weights: int, dot, tile, weight, floats: bool = False
) -> tuple[Kernel, Kernel, Kernel]:
    """The product, the repacking and the unpacking kernel of a format, whose file `home` names."""
    template = float_product if floats else integer_product
    product = stamp(template, f"{name}_product", dot=dot)
    packer = stamp(repack, f"{name}_repack", tile=tile)
    unpacker = stamp(unpack_row, f"{name}_unpack_row", weight=weight, WEIGHTS=weights)
    return Kernel(product, 6, home), Kernel(packer, 6, home), Kernel(unpacker, 4, home)
