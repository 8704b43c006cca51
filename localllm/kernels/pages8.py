"""How a page holds K and V as int8, about half the size of `pages` (see `Attention.pages_of`).

K, after RoPE, a fixed offset, a fixed scale for each pair of dims (see `backends.cpu.learn`) and
a rotation, has a bf16 scale for each token, head and BLOCK of dims; V, rotated, an f32 one for
each token and head. The sums stay whole numbers: 16-bit Q times K, weights of 8 bits without sign
times V. What rounding takes from a block of K the later blocks make up for, as far as Q sees it.

K of a page and head: (dims / 2, PAGE, 2) i8, dims rounded up to 32, then (dims / BLOCK, PAGE)
bf16. V of a group and head: (dims / BAND, GROUP pages, PAGE / 4, BAND, 4) i8, dims rounded up to
32, then GROUP x PAGE f32 scales.
"""

import numpy as np

from localllm.batch import PAGE
from localllm.kernels.fields import round_up
from localllm.kernels.pages import BAND, GROUP
from quant.later import inline
from quant.simd import (
    BYTES,
    LANES,
    absolute,
    fma,
    get_f32,
    get_i16,
    load_f32,
    maximum,
    peak,
    put_f32,
    put_i16,
    splat_f32,
    stack,
    store_f32,
    store_low_bytes,
    store_quarters,
    to_f32,
    to_i32,
)

BAND_BYTES = BAND * PAGE  # of a page
BLOCK = 16  # dims of K that share a scale
Q_LEVEL = 32767  # BLOCK products of it and 127 fit an i32


def k_bytes(dims: int) -> int:
    """Bytes of one page and head of K."""
    return round_up(dims, 32) * PAGE + round_up(dims, 32) // BLOCK * PAGE * 2


def v_bytes(dims: int) -> int:
    """Bytes of one page and head of V, its share of the group's."""
    return round_up(dims, 32) * PAGE + PAGE * 4


@inline
def v_page(pool, page, group_bytes, k_size):
    """Where a page's part of the first band of V stands; other bands GROUP * BAND_BYTES apart."""
    return pool + page // GROUP * group_bytes + GROUP * k_size + page % GROUP * BAND_BYTES


@inline
def scale_of(x, dims):
    """What `dims` f32 are divided by to become int8."""
    top = absolute(load_f32(x))
    for c in range(4 * LANES, 4 * dims, 4 * LANES):
        top = maximum(top, absolute(load_f32(x + c)))
    return peak(top) * np.float32(1 / 127)


@inline
def inverse_of(scale):
    """Its inverse, 0 where there is nothing but zeros."""
    return splat_f32(np.float32(1) / scale if scale > np.float32(1e-30) else np.float32(0))


@inline
def brain(scale, room):
    """The scale as a bf16 holds it, or a little above; its bits stand at room + 2."""
    put_f32(room, scale * np.float32(1 + 1 / 128))
    put_i16(room, np.int16(0))
    return get_f32(room)


@inline
def make_up(x, block, dims, feedback):
    """Add to a block of K the errors of those before it times their rows of `feedback`."""
    for c in range(4 * BLOCK * block, 4 * BLOCK * (block + 1), 4 * LANES):
        v = load_f32(x + c)
        for i in range(BLOCK * block):
            v = fma(splat_f32(get_f32(x + 4 * i)), load_f32(feedback + 4 * dims * i + c), v)
        store_f32(x + c, v)


@inline
def store_k(x, dims, page, slot, feedback):
    """A head of K, `dims` rounded up to 32, into its slot of a page; `x` is used up.

    `feedback` is (dims, dims) f32: how much of an error in one dim each later dim makes up for.
    """
    whole, room = stack(16), stack(1)
    for block in range(dims // BLOCK):
        first = x + 4 * BLOCK * block
        make_up(x, block, dims, feedback)
        scale = brain(scale_of(first, BLOCK), room)
        inverse, wide = inverse_of(scale), splat_f32(scale)
        for c in range(0, BLOCK, LANES):
            v = load_f32(first + 4 * c)
            q = to_i32(v * inverse)
            store_low_bytes(whole + c, q)
            store_f32(first + 4 * c, v - to_f32(q) * wide)
        for pair in range(BLOCK // 2):
            to = page + ((block * BLOCK // 2 + pair) * PAGE + slot) * 2
            put_i16(to, get_i16(whole + 2 * pair))
        put_i16(page + dims * PAGE + (block * PAGE + slot) * 2, get_i16(room + 2))


@inline
def store_v(x, dims, page, scales, slot):
    """A head of V, `dims` rounded up to 32, into its part of four slots of a page."""
    scale = scale_of(x, dims)
    inverse = inverse_of(scale)
    for c in range(0, 4 * dims, BYTES):
        q = to_i32(load_f32(x + c) * inverse)
        band, within = c // (4 * BAND), c % (4 * BAND)
        at = page + band * GROUP * BAND_BYTES + slot // 4 * 4 * BAND + within
        store_quarters(at, q, slot % 4)
    put_f32(scales + 4 * slot, scale)
