"""How a page holds K and V: 16-bit whole numbers with one scale for each token and head.

At the size of f16 and at least its accuracy (11 bits below the largest of a head, where f16 has 11
below each power of two), and the processor multiplies pairs of them in one instruction.

A page of one layer and KV head is K, then V. K: (dims / 2, PAGE, 2) i16, then PAGE f32 scales.
V: (PAGE / 2, dims, 2) i16, dims rounded up to 16, then PAGE f32 scales.
"""

import numpy as np

from localllm.batch import PAGE
from localllm.kernels.fields import SPAN, round_up
from quant.jit import inline
from quant.simd import BYTES, LANES, absolute, load_f32, load_i32, maximum, peak, put_f32, put_i32
from quant.simd import get_i32, put_halves, splat_f32, stack, store_i32, store_low_halves, to_i32

V_LEVEL = 4095  # |V| and the weights of a span: 128 products of 4095 * 4095 still fit an i32
assert V_LEVEL * V_LEVEL * SPAN < 2**31


def k_level(dims: int) -> int:
    """The largest |K| and |Q| whose dot products over `dims` fit an i32."""
    return min(int(((2**31 - 1) / dims) ** 0.5), 32767)


def k_bytes(dims: int) -> int:
    """Bytes of one page and head of K."""
    return dims * PAGE * 2 + PAGE * 4


def v_bytes(dims: int) -> int:
    """Bytes of one page and head of V."""
    return round_up(dims, 16) * PAGE * 2 + PAGE * 4


@inline
def to_halves(x, dims, level, out):
    """`dims` f32 (zeros up to a multiple of LANES) as whole numbers up to `level`; their scale."""
    top = absolute(load_f32(x))
    for c in range(4 * LANES, 4 * dims, 4 * LANES):
        top = maximum(top, absolute(load_f32(x + c)))
    largest, most = peak(top), np.float32(level)
    inverse = splat_f32(most / largest if largest > np.float32(1e-30) else np.float32(0))
    for c in range(0, dims, LANES):
        store_low_halves(out + 2 * c, to_i32(load_f32(x + 4 * c) * inverse))
    return largest / most


@inline
def store_k(x, dims, level, page, slot):
    """A head of K into its slot of a page."""
    halves = stack(128)
    scale = to_halves(x, dims, level, halves)
    for pair in range(dims // 2):
        put_i32(page + pair * PAGE * 4 + 4 * slot, get_i32(halves + 4 * pair))
    put_f32(page + dims * PAGE * 2 + 4 * slot, scale)


@inline
def store_v(x, dims, page, slot):
    """A head of V, `dims` rounded up to 16, into its half of a pair of slots of a page."""
    top = absolute(load_f32(x))
    for c in range(4 * LANES, 4 * dims, 4 * LANES):
        top = maximum(top, absolute(load_f32(x + c)))
    largest, most = peak(top), np.float32(V_LEVEL)
    inverse = splat_f32(most / largest if largest > np.float32(1e-30) else np.float32(0))
    row = page + slot // 2 * dims * 4
    for c in range(0, 4 * dims, BYTES):
        q = to_i32(load_f32(x + c) * inverse)
        store_i32(row + c, put_halves(load_i32(row + c), q, slot % 2))
    put_f32(page + dims * PAGE * 2 + 4 * slot, largest / most)
