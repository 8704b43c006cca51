"""Single weights of 4 and 5 bits as a file has them; 32 weights of 4, 5 or 6 bits in as many
vectors as their bits need, and back.

5 and 6 bits stand left-aligned in their byte, so that the offset of every symmetric format is
128: whole weights in the high bits of most vectors, the rest of them in what is left over.
"""

import numpy as np

from quant.later import inline
from quant.simd import BYTES, bits, get_u8, splat_byte, store_bytes
from quant.target import TARGET

FLIP44, FLIP5, FLIP6 = (0x88, 16, 32) if TARGET.signed else (0, 0, 0)  # top bits of signed weights


@inline
def byte(address):
    """A byte, 0 to 255."""
    return np.int64(get_u8(address))


@inline
def signed(address):
    """A byte, -128 to 127."""
    return (byte(address) ^ 128) - 128


@inline
def nibble(q, i):
    """Weight i of 32 in 16 bytes, the low halves first."""
    return byte(q + i % 16) >> (4 if i >= 16 else 0) & 15


@inline
def fifth(q, high, i):
    """Weight i of 32 in 16 bytes, its top bit in the four at `high`."""
    return nibble(q, i) | (byte(high + i // 8) >> i % 8 & 1) << 4


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
def pack_sixes(q0, q1, q2, q3, to):
    """Four vectors of weights 0 to 63 to the three that `sixes` reads."""
    f = splat_byte(FLIP6)
    q3 = q3 ^ f
    store_bytes(to, bits(q0 ^ f, 2, 252) | bits(q3, -4, 3))
    store_bytes(to + BYTES, bits(q1 ^ f, 2, 252) | bits(q3, -2, 3))
    store_bytes(to + 2 * BYTES, bits(q2 ^ f, 2, 252) | bits(q3, 0, 3))
