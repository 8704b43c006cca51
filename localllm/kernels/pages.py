"""How a page holds K and V: 16-bit whole numbers with one scale for each token and head.

At the size of f16 and at least its accuracy (11 bits below the largest of a head, where f16 has 11
below each power of two), and the processor multiplies pairs of them in one instruction.

In memory the pages of a SPAN of positions stand together as a group: of each layer, of each head,
K of all of them, then V. Handed out in order, they are read as one stream, which is what memory
is fast at; and a short context touches little memory.
K of a page and head: (dims / 2, PAGE, 2) i16, then PAGE f32 scales.
V of a group and head: (dims / BAND, GROUP pages, PAGE / 2, BAND, 2) i16, dims rounded up to 32,
then GROUP x PAGE f32 scales: the band of dims that one register tile sums up is a stream too.
"""

import numpy as np

from localllm.batch import PAGE
from localllm.kernels.fields import SPAN, round_up
from quant.later import inline
from quant.simd import (
    BYTES,
    LANES,
    absolute,
    get_i16,
    get_i32,
    load_f32,
    maximum,
    peak,
    put_f32,
    put_i16,
    put_i32,
    splat_f32,
    stack,
    store_halves,
    store_low_halves,
    to_i32,
)

GROUP = SPAN // PAGE  # pages
VECTORS = 2 if LANES == 16 else 1  # of dims, that a register tile of weights sums up at once
BAND = VECTORS * LANES
BAND_BYTES = BAND * PAGE * 2  # of a page
V_LEVEL = 4095  # |V| and the weights of a span: 128 products of 4095 * 4095 still fit an i32
assert V_LEVEL * V_LEVEL * SPAN < 2**31


def k_level(dims: int) -> int:
    """The largest |K| and |Q| whose dot products over `dims` fit an i32."""
    return min(int(((2**31 - 1) / dims) ** 0.5), 32767)


def k_bytes(dims: int) -> int:
    """Bytes of one page and head of K."""
    return dims * PAGE * 2 + PAGE * 4


def v_bytes(dims: int) -> int:
    """Bytes of one page and head of V, its share of the group's."""
    return round_up(dims, 32) * PAGE * 2 + PAGE * 4


@inline
def k_page(pool, page, group_bytes, k_size):
    """Where a page of K stands; `pool` is the place of its layer and head in the first group."""
    return pool + page // GROUP * group_bytes + page % GROUP * k_size


@inline
def v_page(pool, page, group_bytes, k_size):
    """Where a page's part of the first band of V stands; other bands GROUP * BAND_BYTES apart."""
    return pool + page // GROUP * group_bytes + GROUP * k_size + page % GROUP * BAND_BYTES


@inline
def v_scales(pool, page, group_bytes, head_bytes):
    """Where the scales of a page of V stand: those of a group are the last of a head's bytes."""
    end = pool + page // GROUP * group_bytes + head_bytes
    return end - (GROUP - page % GROUP) * PAGE * 4


@inline
def to_halves(x, dims, level, out):
    """`dims` f32 (zeros up to a multiple of LANES) as whole numbers up to `level`; their scale."""
    top = absolute(load_f32(x))
    for c in range(4 * LANES, 4 * dims, 4 * LANES):
        top = maximum(top, absolute(load_f32(x + c)))
    largest, most = peak(top), np.float32(level)
    inverse = splat_f32(most / largest if largest > np.float32(1e-30) else np.float32(0))
    whole = dims // LANES * LANES
    for c in range(0, whole, LANES):
        store_low_halves(out + 2 * c, to_i32(load_f32(x + 4 * c) * inverse))
    if whole < dims:  # behind `out` stands the next head
        tail = stack(1)
        store_low_halves(tail, to_i32(load_f32(x + 4 * whole) * inverse))
        for c in range(dims - whole):
            put_i16(out + 2 * (whole + c), get_i16(tail + 2 * c))
    return largest / most


@inline
def store_k(halves, scale, dims, page, slot):
    """A head of K, `dims` whole numbers of 16 bits, into its slot of a page."""
    for pair in range(dims // 2):
        put_i32(page + pair * PAGE * 4 + 4 * slot, get_i32(halves + 4 * pair))
    put_f32(page + dims * PAGE * 2 + 4 * slot, scale)


@inline
def store_v(x, dims, page, scales, slot):
    """A head of V, `dims` rounded up to 32, into its half of a pair of slots of a page."""
    top = absolute(load_f32(x))
    for c in range(4 * LANES, 4 * dims, 4 * LANES):
        top = maximum(top, absolute(load_f32(x + c)))
    largest, most = peak(top), np.float32(V_LEVEL)
    inverse = splat_f32(most / largest if largest > np.float32(1e-30) else np.float32(0))
    for c in range(0, 4 * dims, BYTES):
        q = to_i32(load_f32(x + c) * inverse)
        band, within = c // (4 * BAND), c % (4 * BAND)
        at = page + band * GROUP * BAND_BYTES + slot // 2 * 4 * BAND + within
        store_halves(at, q, slot % 2)
    put_f32(scales + 4 * slot, largest / most)
