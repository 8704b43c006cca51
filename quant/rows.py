"""Rows of activations as int8: what every integer product multiplies weights with.

A panel holds `slots` tokens, block after block of 32 columns. A block is 48 bytes a slot: 32 int8
of each slot, then of each slot an f32 scale, an f32 -128 * scale * sum, an i32 -128 * (sum of the
first 16) and an i32 -128 * (sum of the last 16). The sums serve weights that are stored with an
offset, and those that have a minimum. A processor whose products are narrow has the sums of the
first and last 16 as two i16 in place of the first i32.
"""

import numpy as np

from quant.later import inline
from quant.simd import (
    BYTES,
    LANES,
    absolute,
    get_f32,
    load_f32,
    load_i32,
    maximum,
    peak,
    put_f32,
    put_i32,
    splat_f32,
    splat_i32,
    stack,
    store_eight,
    store_eight_ints,
    store_f32,
    store_i32,
    store_low_bytes,
    to_f32,
    to_i32,
    total_i32,
    zero_below,
)
from quant.target import TARGET
from quant.tiles import int_rows_at, larger_rows, store_peaks, store_totals, zeros

PANEL = 8  # slots of a panel of many tokens; a single token has a panel of one slot
BLOCK = 32  # columns
SLOT_BYTES = 48  # of a block, a slot
TINY = 1e-30  # rows of numbers all smaller count as zeros
NARROW = TARGET.narrow


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
    inverse = np.float32(127) / largest if largest >= np.float32(TINY) else np.float32(0)
    target, each = block + BLOCK * slot, 4 * slots
    first = _half(source, splat_f32(inverse), target)
    last = _half(source + 64, splat_f32(inverse), target + 16)
    scale, about = largest * np.float32(1 / 127), block + BLOCK * slots + 4 * slot
    put_f32(about, scale)
    put_f32(about + each, scale * np.float32(-128 * (first + last)))
    put_i32(about + 2 * each, first & 0xFFFF | last << 16 if NARROW else np.int32(-128) * first)
    put_i32(about + 3 * each, np.int32(-128) * last)


@inline
def quantise_panel(source, stride, block):
    """The same, to the same bits, for all slots of a block: row t from source + t * stride on."""
    tile = zeros(PANEL)
    numbers, inverses, first, last = stack(8), stack(8), stack(16), stack(16)
    for k in range(0, 4 * BLOCK, 4 * LANES):
        tile = larger_rows(tile, source + k, stride)
    store_peaks(numbers, tile)
    for c in range(0, 4 * PANEL, 4 * LANES):
        largest = load_f32(numbers + c)
        inverse = zero_below(splat_f32(np.float32(127)) / largest, largest, np.float32(TINY))
        store_f32(inverses + c, inverse)
    for t in range(PANEL):
        inverse, target = splat_f32(get_f32(inverses + 4 * t)), block + BLOCK * t
        _store_half(source + t * stride, inverse, target, first + t * BYTES)
        _store_half(source + t * stride + 64, inverse, target + 16, last + t * BYTES)
    store_totals(first, int_rows_at(tile, first, BYTES))
    store_totals(last, int_rows_at(tile, last, BYTES))
    about, each, factor = block + BLOCK * PANEL, 4 * PANEL, splat_i32(np.int32(-128))
    for c in range(0, each, 4 * LANES):
        scale = load_f32(numbers + c) * splat_f32(np.float32(1 / 127))
        i, j = load_i32(first + c), load_i32(last + c)
        store_eight(about + c, scale)
        store_eight(about + each + c, scale * to_f32((i + j) * factor))
        halves = i & splat_i32(np.int32(0xFFFF)) | j * splat_i32(np.int32(1 << 16))
        store_eight_ints(about + 2 * each + c, halves if NARROW else i * factor)
        store_eight_ints(about + 3 * each + c, j * factor)


@inline
def _store_half(source, inverse, target, sums):
    """16 values to int8; their sums, lane by lane."""
    total = splat_i32(np.int32(0))
    for k in range(0, 16, LANES):
        q = to_i32(load_f32(source + 4 * k) * inverse)
        store_low_bytes(target + k, q)
        total = total + q
    store_i32(sums, total)


@inline
def quantise_some(source, stride, block, count, slots):
    """The first `count` slots of a block; what the others then hold is nothing."""
    if count > 2:
        quantise_panel(source, stride, block)
    else:
        for t in range(count):
            quantise(source + t * stride, block, t, slots)
