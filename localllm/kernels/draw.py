"""Draws tokens from rows of logits: the likeliest, cut and cooled (see `localllm.wishes`).

In Python the same takes a twentieth of a small model's step, and once more for each further row.
"""

import numpy as np

from localllm.kernels.fields import BATCH, DRAWN, OWN, WISHES, arg, scratch_of
from localllm.wishes import BANNED, FIRST_BANNED, HEAT, LEAST, MOST, NUMBER, SHARE, TOP, WISH_FIELDS
from quant.elementary import exp
from quant.jit import kernel
from quant.later import inline
from quant.simd import (
    BYTES,
    LANES,
    get_f32,
    get_i32,
    load_f32,
    peak,
    put_f32,
    put_i32,
    put_i64,
    splat_f32,
    store_f32,
)

LOGITS, STRIDE, PEAKS, PEAKS_STRIDE, TILES = range(OWN, OWN + 5)

HIGHEST = 3e38  # no number is above it, nor below its negative
# Of a lane's scratch: the highest values so far, highest first; their ids; their probabilities.
IDS, SHARES = 4 * (MOST + LANES), 8 * (MOST + LANES)


@inline
def insert(ranks, count, most, value, id):
    """A value among the highest `most`, behind its equals; how many there are then."""
    if not value > np.float32(-HIGHEST):
        return count
    if count == most:
        if value <= get_f32(ranks + 4 * (most - 1)):
            return count
        count -= 1
    at = ranks + 4 * count
    while at > ranks and get_f32(at - 4) < value:
        put_f32(at, get_f32(at - 4))
        put_i32(at + IDS, get_i32(at + IDS - 4))
        at -= 4
    put_f32(at, value)
    put_i32(at + IDS, np.int32(id))
    return count + 1


@inline
def least_peak(peaks, tiles, most, ranks):
    """A value that `most` logits reach and not many more, of so many tiles' peaks."""
    count = 0
    for first in range(0, tiles, LANES):
        full = count == most and first + LANES <= tiles
        if full and peak(load_f32(peaks + 4 * first)) <= get_f32(ranks + 4 * (most - 1)):
            continue
        for tile in range(first, min(first + LANES, tiles)):
            count = insert(ranks, count, most, get_f32(peaks + 4 * tile), tile)
    return get_f32(ranks + 4 * (most - 1)) if count == most else np.float32(-HIGHEST)


@inline
def likeliest(logits, peaks, tiles, most, ranks):
    """The `most` highest logits, of equals the lower id first; how many there are."""
    least, count = least_peak(peaks, tiles, most, ranks), 0
    for tile in range(tiles):
        if get_f32(peaks + 4 * tile) >= least:
            for id in range(tile * LANES, (tile + 1) * LANES):
                value = get_f32(logits + 4 * id)
                if value >= least:
                    count = insert(ranks, count, most, value, id)
    return count


@inline
def shares_of(ranks, count, heat):
    """What the probabilities of the first `count` are shares of; their sum."""
    best, inverse = splat_f32(get_f32(ranks)), splat_f32(np.float32(1) / heat)
    for c in range(0, 4 * count, BYTES):
        store_f32(ranks + SHARES + c, exp((load_f32(ranks + c) - best) * inverse))
    total = 0.0
    for n in range(count):
        total += get_f32(ranks + SHARES + 4 * n)
    return total


@inline
def reaching(ranks, count, sum):
    """How many of the first `count` together have at least that sum."""
    n = 0
    while n < count and sum > 0.0:
        sum -= get_f32(ranks + SHARES + 4 * n)
        n += 1
    return max(n, 1)


@inline
def choose(wish, ranks, count):
    """The id that is drawn from `count` logits, highest first."""
    total = shares_of(ranks, count, np.float32(1))
    count = reaching(ranks, count, get_f32(wish + 4 * SHARE) * total)
    floor = get_f32(ranks) + get_f32(wish + 4 * LEAST)
    while count > 1 and get_f32(ranks + 4 * (count - 1)) < floor:
        count -= 1
    left = get_f32(wish + 4 * NUMBER) * shares_of(ranks, count, get_f32(wish + 4 * HEAT))
    n = 0
    while n < count - 1:
        left -= get_f32(ranks + SHARES + 4 * n)
        if left < 0.0:
            break
        n += 1
    return np.int64(get_i32(ranks + IDS + 4 * n))


@inline
def ban(wish, logits, peaks):
    """Push down what must not come."""
    for n in range(np.int64(get_f32(wish + 4 * BANNED))):
        id = np.int64(get_f32(wish + 4 * (FIRST_BANNED + n)))
        put_f32(logits + 4 * id, np.float32(-np.inf))
        tile = id // LANES
        put_f32(peaks + 4 * tile, peak(load_f32(logits + tile * BYTES)))


@kernel(4)
def draw(args, begin, end, lane):
    """Units are rows: the id that is drawn from each, -1 where none was to be or none can be."""
    batch, ranks = arg(args, BATCH), scratch_of(args, lane)
    for row in range(begin, end):
        wish = arg(batch, WISHES) + row * 4 * WISH_FIELDS
        logits = arg(args, LOGITS) + row * arg(args, STRIDE)
        peaks = arg(args, PEAKS) + row * arg(args, PEAKS_STRIDE)
        most, id = np.int64(get_f32(wish + 4 * TOP)), np.int64(-1)
        if most > 0:
            ban(wish, logits, peaks)
            count = likeliest(logits, peaks, arg(args, TILES), most, ranks)
            if count > 0 and get_f32(ranks) < np.float32(HIGHEST):
                id = choose(wish, ranks, count)
        put_i64(arg(batch, DRAWN) + 8 * row, id)
