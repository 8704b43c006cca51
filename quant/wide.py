"""Integer sums of 32 columns where an instruction adds products to 32-bit sums.

Weights lie in memory as `quant.nibbles` packs them. Each function takes a register tile, the
weights at w and the int8 of its tokens at x, 32 bytes apart, and returns a tile of i32.
"""

from quant.later import inline
from quant.simd import BYTES, LANES, bits, load_bytes, load_i8
from quant.target import TARGET
from quant.tiles import add_ints, dot_four_rows, int_zeros_like, ints_at, multiply_ints

SIGNED = TARGET.signed


@inline
def fours(tiles, w, x):
    """Four vectors of nibbles, 0 to 15: the low ones columns 0 to 15, the high ones the rest."""
    a, b, c, d = (
        load_bytes(w),
        load_bytes(w + BYTES),
        load_bytes(w + 2 * BYTES),
        load_bytes(w + 3 * BYTES),
    )
    i = int_zeros_like(tiles)
    i = dot_four_rows(i, bits(a, 0, 15), bits(b, 0, 15), bits(c, 0, 15), bits(d, 0, 15), x, 32)
    a, b, c, d = bits(a, -4, 15), bits(b, -4, 15), bits(c, -4, 15), bits(d, -4, 15)
    return dot_four_rows(i, a, b, c, d, x + 16, 32)


@inline
def left_fours(tiles, w, x):
    """The same, left-aligned: 16 times the weight, and an offset of 128."""
    a, b, c, d = (
        load_bytes(w),
        load_bytes(w + BYTES),
        load_bytes(w + 2 * BYTES),
        load_bytes(w + 3 * BYTES),
    )
    i = int_zeros_like(tiles)
    i = dot_four_rows(i, bits(a, 4, 240), bits(b, 4, 240), bits(c, 4, 240), bits(d, 4, 240), x, 32)
    a, b, c, d = bits(a, 0, 240), bits(b, 0, 240), bits(c, 0, 240), bits(d, 0, 240)
    return dot_four_rows(i, a, b, c, d, x + 16, 32)


@inline
def fives(tiles, w, x):
    """Five vectors of `pack_fives`: 8 times the weight."""
    a, b, c = load_bytes(w), load_bytes(w + BYTES), load_bytes(w + 2 * BYTES)
    d, e = load_bytes(w + 3 * BYTES), load_bytes(w + 4 * BYTES)
    f = bits(a, 5, 224) | bits(b, 3, 24)
    g = bits(c, 5, 224) | bits(d, 3, 24)
    h = bits(e, 5, 224) | bits(b, 2, 16) | bits(d, 1, 8)
    i = int_zeros_like(tiles)
    i = dot_four_rows(i, bits(a, 0, 248), bits(b, 0, 248), bits(c, 0, 248), bits(d, 0, 248), x, 32)
    return dot_four_rows(i, bits(e, 0, 248), f, g, h, x + 16, 32)


@inline
def scaled_sixes(tiles, w, scales, x, sums, slots):
    """Twice three vectors of `pack_sixes`, 4 times the weight less 128, each half times its int8
    scales. Where weights are unsigned the offset costs nothing: a half starts at -128 times the
    sum of its activations, i32 of each slot at `sums`."""
    first = _half(tiles, w, scales, x, sums)
    last = _half(tiles, w + 3 * BYTES, scales + LANES, x + 16, sums + 4 * slots)
    return add_ints(first, last)


@inline
def _half(tiles, w, scales, x, sums):
    i = int_zeros_like(tiles) if SIGNED else ints_at(tiles, sums, 4)
    a, b, c = load_bytes(w), load_bytes(w + BYTES), load_bytes(w + 2 * BYTES)
    d = bits(a, 6, 192) | bits(b, 4, 48) | bits(c, 2, 12)
    i = dot_four_rows(i, bits(a, 0, 252), bits(b, 0, 252), bits(c, 0, 252), d, x, 32)
    return multiply_ints(i, load_i8(scales))


@inline
def eights(tiles, w, x):
    """Eight vectors of whole bytes."""
    i = int_zeros_like(tiles)
    for g in range(0, 8, 4):
        v, u = w + BYTES * g, w + BYTES * (g + 2)
        a, b, c, d = load_bytes(v), load_bytes(v + BYTES), load_bytes(u), load_bytes(u + BYTES)
        i = dot_four_rows(i, a, b, c, d, x + 4 * g, 32)
    return i
