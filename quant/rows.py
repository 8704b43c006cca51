"""Rows of activations as int8: what every integer product multiplies weights with.

A panel holds `slots` tokens, block after block of 32 columns. A block is 48 bytes a slot: 32 int8
of each slot, then of each slot an f32 scale, an f32 -128 * scale * sum, an i32 -128 * (sum of the
first 16) and an i32 -128 * (sum of the last 16). The sums serve weights that are stored with an
offset, and those that have a minimum.
"""

import numpy as np

from quant.later import inline
from quant.simd import (
    LANES,
    absolute,
    load_f32,
    maximum,
    peak,
    put_f32,
    put_i32,
    splat_f32,
    store_low_bytes,
    to_i32,
    total_i32,
)

PANEL = 8  # slots of a panel of many tokens; a single token has a panel of one slot
BLOCK = 32  # columns
SLOT_BYTES = 48  # of a block, a slot


@inline
def _half(source, inverse, target):
    """16 values to int8; their sum."""
    sums = np.int32(0)
    for k in range(0, 16, LANES):
        q = to_i32(load_f32(source + 4 * k) * inverse)
        store_low_bytes(target + k, q)
        sums += total_i32(q)
    return sums


@inline
def quantise(source, block, slot, slots):
    """32 f32 at `source` into one slot of one block of a panel; |int8| <= 127, nearest even."""
    top = absolute(load_f32(source))
    for k in range(LANES, BLOCK, LANES):
        top = maximum(top, absolute(load_f32(source + 4 * k)))
    largest = peak(top)
    inverse = np.float32(127) / largest if largest > np.float32(1e-30) else np.float32(0)
    target, each = block + BLOCK * slot, 4 * slots
    first = _half(source, splat_f32(inverse), target)
    last = _half(source + 64, splat_f32(inverse), target + 16)
    scale, about = largest * np.float32(1 / 127), block + BLOCK * slots + 4 * slot
    put_f32(about, scale)
    put_f32(about + each, scale * np.float32(-128 * (first + last)))
    put_i32(about + 2 * each, np.int32(-128) * first)
    put_i32(about + 3 * each, np.int32(-128) * last)


@inline
def quantise_row(source, blocks, panel, slot, slots):
    """A row of `blocks` * 32 f32 into one slot of a panel."""
    for k in range(blocks):
        quantise(source + k * 4 * BLOCK, panel + k * SLOT_BYTES * slots, slot, slots)
