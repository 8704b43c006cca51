"""Matrix products: tiles of weights through panels of tokens, and what is done with the results.

A product kernel is called by address, so one op may mix block formats: its segments are matrices
that read the same rows. Units are (chunk of panels, tile), the tile running fastest.
"""

import numpy as np

from localllm.kernels.fields import (
    BATCH,
    CHUNK,
    OWN,
    WANTED_ROWS,
    arg,
    is_single,
    rows_of,
    scratch_of,
)
from localllm.kernels.pack import is_late, late_tile
from quant.elementary import sigmoid
from quant.jit import kernel
from quant.later import inline
from quant.rows import PANEL, SLOT_BYTES, quantise_some
from quant.simd import BYTES, LANES, fma, load_f32, peak, put_f32, splat_f32, store_f32
from quant.threads import call6

TILES, SEGMENTS = OWN, OWN + 1
FIRST_SEGMENT = OWN + 2
(S_TILES, S_PRODUCT, S_W, S_TILE_BYTES, S_BLOCKS, S_X, S_PITCH, S_PANEL, S_LANE_X, S_LANE_BYTES,
 S_BIAS, S_Y, S_Y_STRIDE, S_ADD, S_MATRIX, S_PEAKS, S_PEAKS_STRIDE) = range(17)  # fmt: skip
SEGMENT_FIELDS = 17
GROUP = 32 // LANES  # tiles that make a block of 32 columns
PART = 4  # panels that a gated group takes through its tiles at once

SILU, GELU = range(2)


@inline
def multiply(segment, tile, panel, single, lane, count, out):
    """One tile of a segment times `count` tokens from a panel on, to (count, LANES) f32."""
    w, pitch = arg(segment, S_W) + tile * arg(segment, S_TILE_BYTES), arg(segment, S_PITCH)
    if is_late(arg(segment, S_MATRIX), tile):
        w = late_tile(arg(segment, S_MATRIX), tile, lane)
    if single:
        x = arg(segment, S_LANE_X) + lane * arg(segment, S_LANE_BYTES)
        pitch = 0
    else:
        x = arg(segment, S_X) + panel * arg(segment, S_PANEL)
    call6(arg(segment, S_PRODUCT), w, x, arg(segment, S_BLOCKS), pitch, count, out)


@inline
def add_bias(segment, tile, count, out):
    """Add a segment's bias, if it has one, to the results of a tile."""
    if arg(segment, S_BIAS):
        bias = load_f32(arg(segment, S_BIAS) + tile * BYTES)
        for t in range(count):
            store_f32(out + t * BYTES, load_f32(out + t * BYTES) + bias)


@inline
def note_peaks(segment, tile, first, count, out):
    """The largest of a tile's results for each token, if anybody wants to know."""
    if arg(segment, S_PEAKS):
        peaks, stride = arg(segment, S_PEAKS) + 4 * tile, arg(segment, S_PEAKS_STRIDE)
        for t in range(count):
            put_f32(peaks + (first + t) * stride, peak(load_f32(out + t * BYTES)))


@kernel(4)
def linear(args, begin, end, lane):
    """y = W x + bias as rows of f32, or y += it, for each segment."""
    rows, single, tiles = rows_of(args), is_single(args), arg(args, TILES)
    out = scratch_of(args, lane)
    for unit in range(begin, end):
        tile, chunk = unit % tiles, unit // tiles
        segment = args + 8 * FIRST_SEGMENT
        while tile >= arg(segment, S_TILES):
            tile -= arg(segment, S_TILES)
            segment += 8 * SEGMENT_FIELDS
        first = chunk * CHUNK * PANEL
        count = min(CHUNK * PANEL, rows - first)
        multiply(segment, tile, chunk * CHUNK, single, lane, count, out)
        add_bias(segment, tile, count, out)
        y, stride = arg(segment, S_Y) + tile * BYTES, arg(segment, S_Y_STRIDE)
        y += first * stride
        note_peaks(segment, tile, first, count, out)
        if arg(segment, S_ADD):
            for t in range(count):
                store_f32(y + t * stride, load_f32(y + t * stride) + load_f32(out + t * BYTES))
        else:
            for t in range(count):
                store_f32(y + t * stride, load_f32(out + t * BYTES))


@inline
def activate(kind, x):
    """The activation function of that number."""
    if kind == SILU:
        return x * sigmoid(x)
    cube = x * x * x  # GELU in its tanh form: 0.5 x (1 + tanh u) = x sigmoid(2 u)
    u = fma(cube, splat_f32(np.float32(0.044715)), x)
    return x * sigmoid(u * splat_f32(np.float32(1.5957691216057308)))


ACTIVATION = FIRST_SEGMENT + 2 * SEGMENT_FIELDS
G_PANELS, G_BLOCKS, G_ROWS, G_STRIDE = range(ACTIVATION + 1, ACTIVATION + 5)


@kernel(4)
def gated(args, begin, end, lane):
    """activation(gate x) * (up x), 32 columns a unit, to int8 panels or to rows of f32."""
    rows, single, groups = rows_of(args), is_single(args), arg(args, TILES)
    gate, kind = args + 8 * FIRST_SEGMENT, arg(args, ACTIVATION)
    up, tiles = gate + 8 * SEGMENT_FIELDS, arg(gate, S_TILES)
    out, room = scratch_of(args, lane), PART * PANEL * BYTES
    values = out + 2 * GROUP * room
    for unit in range(begin, end):
        group, chunk = unit % groups, unit // groups
        last = min((chunk + 1) * CHUNK * PANEL, rows)
        for first in range(chunk * CHUNK * PANEL, last, PART * PANEL):
            count = min(PART * PANEL, last - first)
            for k in range(min(GROUP, tiles - GROUP * group)):
                tile, panel = GROUP * group + k, first // PANEL
                multiply(gate, tile, panel, single, lane, count, out + 2 * k * room)
                add_bias(gate, tile, count, out + 2 * k * room)
                multiply(up, tile, panel, single, lane, count, out + (2 * k + 1) * room)
                add_bias(up, tile, count, out + (2 * k + 1) * room)
            for panel in range(first // PANEL, first // PANEL + (count + PANEL - 1) // PANEL):
                at = panel * PANEL - first  # of the rows of this part
                some = min(count - at, PANEL)
                for t in range(some):
                    for k in range(min(GROUP, tiles - GROUP * group)):
                        x = out + 2 * k * room + (at + t) * BYTES
                        v = activate(kind, load_f32(x)) * load_f32(x + room)
                        store_f32(values + 128 * t + k * BYTES, v)
                        if arg(args, G_ROWS):
                            y = arg(args, G_ROWS) + (first + at + t) * arg(args, G_STRIDE)
                            store_f32(y + group * 128 + k * BYTES, v)
                if arg(args, G_PANELS):
                    slots = 1 if single else PANEL
                    block = panel * arg(args, G_BLOCKS) + group
                    block = arg(args, G_PANELS) + block * SLOT_BYTES * slots
                    quantise_some(values, 128, block, some, slots)


P_FROM, P_TO, P_STRIDE, P_BYTES = range(OWN, OWN + 4)


@kernel(4)
def pick(args, begin, end, lane):
    """Copy the rows that are wanted to the front of another buffer."""
    batch = arg(args, BATCH)
    for t in range(begin, end):
        source = arg(args, P_FROM) + arg(arg(batch, WANTED_ROWS), t) * arg(args, P_STRIDE)
        target = arg(args, P_TO) + t * arg(args, P_STRIDE)
        for k in range(0, arg(args, P_BYTES), BYTES):
            store_f32(target + k, load_f32(source + k))
