"""32 weights of 4, 5 or 6 bits in as many vectors as their bits need, and back.

5 and 6 bits stand left-aligned in their byte, so that the offset of every symmetric format is
128: whole weights in the high bits of most vectors, the rest of them in what is left over.
"""

from quant.later import inline
from quant.simd import BYTES, bits, load_bytes, splat_byte, store_bytes
from quant.target import TARGET
from quant.tiles import dot_rows, dot_small_rows, int_zeros_like

FLIP44, FLIP5, FLIP6 = (0x88, 16, 32) if TARGET.signed else (0, 0, 0)  # top bits of signed weights


@inline
def fours(tiles, w, x):
    """Four vectors of nibbles, 0 to 15: the low ones columns 0 to 15, the high ones the rest."""
    i = int_zeros_like(tiles)
    for g in range(4):
        v = load_bytes(w + BYTES * g)
        i = dot_small_rows(i, bits(v, 0, 15), x + 4 * g, 32)
        i = dot_small_rows(i, bits(v, -4, 15), x + 16 + 4 * g, 32)
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
    """Five vectors: each holds one of columns 0-19 whole, and three bits of columns 20-31."""
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
def pack_fives(q0, q1, q2, q3, q4, q5, q6, q7, to):
    """Eight vectors of weights 0 to 31 to the five that `fives` reads."""
    f = splat_byte(FLIP5)
    q5, q6, q7 = q5 ^ f, q6 ^ f, q7 ^ f
    store_bytes(to, bits(q0 ^ f, 3, 248) | bits(q5, -2, 7))
    store_bytes(to + BYTES, bits(q1 ^ f, 3, 248) | bits(q5, 0, 3) | bits(q7, 1, 4))
    store_bytes(to + 2 * BYTES, bits(q2 ^ f, 3, 248) | bits(q6, -2, 7))
    store_bytes(to + 3 * BYTES, bits(q3 ^ f, 3, 248) | bits(q6, 0, 3) | bits(q7, 2, 4))
    store_bytes(to + 4 * BYTES, bits(q4 ^ f, 3, 248) | bits(q7, -2, 7))


@inline
def sixes(i, w, x):
    """16 columns in three vectors: each holds one of columns 0-11 whole, and two bits of 12-15."""
    a, b, c = load_bytes(w), load_bytes(w + BYTES), load_bytes(w + 2 * BYTES)
    i = dot_rows(i, bits(a, 0, 252), x, 32)
    i = dot_rows(i, bits(b, 0, 252), x + 4, 32)
    i = dot_rows(i, bits(c, 0, 252), x + 8, 32)
    return dot_rows(i, bits(a, 6, 192) | bits(b, 4, 48) | bits(c, 2, 12), x + 12, 32)


@inline
def pack_sixes(q0, q1, q2, q3, to):
    """Four vectors of weights 0 to 63 to the three that `sixes` reads."""
    f = splat_byte(FLIP6)
    q3 = q3 ^ f
    store_bytes(to, bits(q0 ^ f, 2, 252) | bits(q3, -4, 3))
    store_bytes(to + BYTES, bits(q1 ^ f, 2, 252) | bits(q3, -2, 3))
    store_bytes(to + 2 * BYTES, bits(q2 ^ f, 2, 252) | bits(q3, 0, 3))
