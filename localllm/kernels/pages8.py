"""How a page holds K and V as int8, about half the size of `pages`.

K, after RoPE, a fixed offset, a fixed scale for each pair of dims (see `backends.cpu.learn`) and
a rotation, has an f32 scale for each token, head and 32 dims; V, rotated, one for each token and
head. The sums stay whole numbers: 16-bit Q times K, weights of 8 bits without sign times V.

K of a page and head: (dims / 2, PAGE, 2) i8, dims rounded up to 32, then (dims / 32, PAGE) f32.
V of a group and head: (dims / BAND, GROUP pages, PAGE / 4, BAND, 4) i8, dims rounded up to 32,
then GROUP x PAGE f32 scales.
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
    get_i16,
    load_f32,
    maximum,
    peak,
    put_f32,
    put_i16,
    splat_f32,
    stack,
    store_low_bytes,
    store_quarters,
    to_i32,
)

BAND_BYTES = BAND * PAGE  # of a page
Q_LEVEL = 32767  # 32 products of it and 127 fit an i32


def k_bytes(dims: int) -> int:
    """Bytes of one page and head of K."""
    return round_up(dims, 32) * PAGE + round_up(dims, 32) // 32 * PAGE * 4


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
def store_k(x, dims, page, slot):
    """A head of K, zeros up to a multiple of 32, into its slot of a page."""
    whole, numbers = stack(16), (dims + 31) // 32
    for block in range(numbers):
        scale = scale_of(x + 128 * block, 32)
        inverse = inverse_of(scale)
        for c in range(0, 32, LANES):
            q = to_i32(load_f32(x + 128 * block + 4 * c) * inverse)
            store_low_bytes(whole + c, q)
        for pair in range(16):
            put_i16(page + ((block * 16 + pair) * PAGE + slot) * 2, get_i16(whole + 2 * pair))
        put_f32(page + numbers * 32 * PAGE + (block * PAGE + slot) * 4, scale)


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
