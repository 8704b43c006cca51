"""What `quant.wide` does, where an instruction gives 16-bit sums of two products (AVX2).

Widening them takes two more instructions, so products are added up in 16 bits while they fit:
8 times for weights of 4 bits, 4 times for 5, twice for 6; 8 bits go as two weights of 4. Weights
are unsigned and right-aligned; what widens the sums multiplies them as if they were left-aligned.
"""

import numpy as np

from quant.later import inline
from quant.simd import BYTES, LANES, bits, load_bytes, load_i8, splat_i32
from quant.tiles import (
    dot_narrow_rows,
    dot_pairs,
    dot_sums,
    dot_wide_rows,
    int_zeros_like,
    narrow_zeros_like,
)


@inline
def pairs(low, high):
    """The low 16 bits of each lane of two vectors, side by side."""
    return low & splat_i32(np.int32(0xFFFF)) | high * splat_i32(np.int32(0x10000))


@inline
def widened(tiles, sums, factor):
    """Sums of two i16 a lane as one i32, times `factor`."""
    return dot_sums(int_zeros_like(tiles), sums, splat_i32(np.int32(0x10001 * factor)))


@inline
def _fours(tiles, w, x):
    i = narrow_zeros_like(tiles)
    for g in range(4):
        v = load_bytes(w + BYTES * g)
        i = dot_narrow_rows(i, bits(v, 0, 15), bits(v, -4, 15), x + 4 * g, 16, 32)
    return i


@inline
def fours(tiles, w, x):
    """Four vectors of nibbles: at most 8 * 2 * 15 * 127."""
    return widened(tiles, _fours(tiles, w, x), 1)


@inline
def left_fours(tiles, w, x):
    """The same times 16."""
    return widened(tiles, _fours(tiles, w, x), 16)


@inline
def fives(tiles, w, x):
    """Five vectors of `pack_fives`, times 8: at most 4 * 2 * 31 * 127 twice."""
    a, b, c = load_bytes(w), load_bytes(w + BYTES), load_bytes(w + 2 * BYTES)
    d, e = load_bytes(w + 3 * BYTES), load_bytes(w + 4 * BYTES)
    i = j = narrow_zeros_like(tiles)
    i = dot_narrow_rows(i, bits(a, -3, 31), bits(a, 2, 28) | bits(b, 0, 3), x, 20, 32)
    i = dot_narrow_rows(i, bits(b, -3, 31), bits(c, -3, 31), x + 4, 4, 32)
    j = dot_narrow_rows(j, bits(d, -3, 31), bits(c, 2, 28) | bits(d, 0, 3), x + 12, 12, 32)
    last = bits(e, 2, 28) | bits(b, -1, 2) | bits(d, -2, 1)
    j = dot_narrow_rows(j, bits(e, -3, 31), last, x + 16, 12, 32)
    return dot_sums(widened(tiles, i, 8), j, splat_i32(np.int32(0x80008)))


@inline
def scaled_sixes(tiles, w, scales, x, sums, slots):
    """Twice three vectors of `pack_sixes` less 32, each half times 4 times its int8 scales, which
    widen the sums: at most 2 * 2 * 63 * 127. At `sums` each slot has the sums of both halves'
    int8, as two i16: what is taken from all weights is taken from these."""
    four, offset = splat_i32(np.int32(4)), splat_i32(np.int32(-32))
    first, last = load_i8(scales) * four, load_i8(scales + LANES) * four
    i = dot_pairs(int_zeros_like(tiles), pairs(first * offset, last * offset), sums, 4)
    i = _half(i, w, x, pairs(first, first))
    return _half(i, w + 3 * BYTES, x + 16, pairs(last, last))


@inline
def _half(i, w, x, scales):
    a, b, c = load_bytes(w), load_bytes(w + BYTES), load_bytes(w + 2 * BYTES)
    i = dot_wide_rows(i, bits(a, -2, 63), bits(b, -2, 63), scales, x, 4, 32)
    last = bits(a, 4, 48) | bits(b, 2, 12) | bits(c, 0, 3)
    return dot_wide_rows(i, bits(c, -2, 63), last, scales, x + 8, 4, 32)


@inline
def eights(tiles, w, x):
    """Eight vectors of whole bytes: at most 8 * 2 * 15 * 127 of low nibbles, then of high ones."""
    low = high = narrow_zeros_like(tiles)
    for g in range(0, 8, 2):
        v, u = load_bytes(w + BYTES * g), load_bytes(w + BYTES * (g + 1))
        low = dot_narrow_rows(low, bits(v, 0, 15), bits(u, 0, 15), x + 4 * g, 4, 32)
    i = widened(tiles, low, 1)
    for g in range(0, 8, 2):
        v, u = load_bytes(w + BYTES * g), load_bytes(w + BYTES * (g + 1))
        high = dot_narrow_rows(high, bits(v, -4, 15), bits(u, -4, 15), x + 4 * g, 4, 32)
    return dot_sums(i, high, splat_i32(np.int32(0x100010)))
