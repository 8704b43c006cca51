"""Integer sums of 32 columns where an instruction adds products to 32-bit sums.

Weights lie in memory as `quant.nibbles` packs them. Each function takes a register tile, the
weights at w and the int8 of its tokens at x, 32 bytes apart, and returns a tile of i32.
"""

from quant.later import inline
from quant.simd import BYTES, LANES, bits, load_bytes, load_i8
from quant.target import TARGET
from quant.tiles import add_ints, dot_rows, int_zeros_like, ints_at, multiply_ints

SIGNED = TARGET.signed


@inline
def fours(tiles, w, x):
    """Four vectors of nibbles, 0 to 15: the low ones columns 0 to 15, the high ones the rest."""
    i = int_zeros_like(tiles)
    for g in range(4):
        v = load_bytes(w + BYTES * g)
        i = dot_rows(i, bits(v, 0, 15), x + 4 * g, 32)
        i = dot_rows(i, bits(v, -4, 15), x + 16 + 4 * g, 32)
    return i


@inline
def left_fours(tiles, w, x):
    """The same, left-aligned: 16 times the weight, and an offset of 128."""
    i = int_zeros_like(tiles)
    for g in range(4):
        v = load_bytes(w + BYTES * g)
        i = dot_rows(i, bits(v, 4, 240), x + 4 * g, 32)
        i = dot_rows(i, bits(v, 0, 240), x + 16 + 4 * g, 32)
    return i


@inline
def fives(tiles, w, x):
    """Five vectors of `pack_fives`: 8 times the weight."""
    a, b, c = load_bytes(w), load_bytes(w + BYTES), load_bytes(w + 2 * BYTES)
    d, e = load_bytes(w + 3 * BYTES), load_bytes(w + 4 * BYTES)
    i = dot_rows(int_zeros_like(tiles), bits(a, 0, 248), x, 32)
    i = dot_rows(i, bits(b, 0, 248), x + 4, 32)
    i = dot_rows(i, bits(c, 0, 248), x + 8, 32)
    i = dot_rows(i, bits(d, 0, 248), x + 12, 32)
    i = dot_rows(i, bits(e, 0, 248), x + 16, 32)
    i = dot_rows(i, bits(a, 5, 224) | bits(b, 3, 24), x + 20, 32)
    i = dot_rows(i, bits(c, 5, 224) | bits(d, 3, 24), x + 24, 32)
    return dot_rows(i, bits(e, 5, 224) | bits(b, 2, 16) | bits(d, 1, 8), x + 28, 32)


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
    i = dot_rows(i, bits(a, 0, 252), x, 32)
    i = dot_rows(i, bits(b, 0, 252), x + 4, 32)
    i = dot_rows(i, bits(c, 0, 252), x + 8, 32)
    i = dot_rows(i, bits(a, 6, 192) | bits(b, 4, 48) | bits(c, 2, 12), x + 12, 32)
    return multiply_ints(i, load_i8(scales))


@inline
def eights(tiles, w, x):
    """Eight vectors of whole bytes."""
    i = int_zeros_like(tiles)
    for g in range(8):
        i = dot_rows(i, load_bytes(w + BYTES * g), x + 4 * g, 32)
    return i
