"""Norms: rows of f32 scaled to a mean square of one, on to int8 panels or to rows of f32."""

import numpy as np

from localllm.kernels.fields import OWN, arg, is_single, rows_of
from quant.jit import kernel
from quant.later import inline
from quant.rows import PANEL, SLOT_BYTES, quantise_some
from quant.simd import LANES, fma, get_f32, load_f32, put_f32, splat_f32, stack, store_f32, total

(X, X_STRIDE, WIDTH, COUNT, GAIN, EPSILON, CENTRE, SHIFT, PANELS_OUT, LANE_OUT, LANE_BYTES,
 ROWS_OUT, OUT_STRIDE, ADD, PIECES) = range(OWN, OWN + 15)  # fmt: skip


@inline
def square_sum(x, width):
    """Sum of squares of a row; `width` a multiple of 32, zeros behind the end."""
    a = b = splat_f32(np.float32(0))
    for k in range(0, 4 * width, 8 * LANES):
        u, v = load_f32(x + k), load_f32(x + k + 4 * LANES)
        a, b = fma(u, u, a), fma(v, v, b)
    return total(a + b)


@inline
def plain_sum(x, width):
    """Sum of a row, as square_sum has it."""
    a = b = splat_f32(np.float32(0))
    for k in range(0, 4 * width, 8 * LANES):
        a, b = a + load_f32(x + k), b + load_f32(x + k + 4 * LANES)
    return total(a + b)


@inline
def scale_block(x, factor, mean, gain, shift, k, out):
    """32 values from byte k of a row on: (x - mean) * factor * gain + shift."""
    for c in range(k, k + 128, 4 * LANES):
        v = (load_f32(x + c) - mean) * factor
        if gain:
            v = v * load_f32(gain + c)
        if shift:
            v = v + load_f32(shift + c)
        store_f32(out + c - k, v)


@inline
def factor_and_mean(x, width, args):
    """What a row is multiplied by, and what is taken from it first."""
    if arg(args, CENTRE) < 0:  # no norm at all
        return np.float32(1), np.float32(0)
    count, epsilon = np.float32(arg(args, COUNT)), get_f32(args + 8 * EPSILON)
    mean, square = np.float32(0), square_sum(x, width) / count
    if arg(args, CENTRE):
        mean = plain_sum(x, width) / count
        square = square - mean * mean
    return np.float32(1) / np.sqrt(square + epsilon), mean


@inline
def write_rows(args, values, y, stride, count):
    """32 columns of `count` rows, `values` being 128 bytes a row, to rows of f32 or added to."""
    for t in range(count):
        for c in range(0, 128, 4 * LANES):
            v = load_f32(values + 128 * t + c)
            if arg(args, ADD):
                v = v + load_f32(y + t * stride + c)
            store_f32(y + t * stride + c, v)


@kernel(4)
def norm(args, begin, end, lane):
    """(x - mean?) * rsqrt(mean square + epsilon) * gain + shift. Units are (panel of rows, piece
    of their blocks), so that no two lanes write to one cache line.

    CENTRE: 0 RMS norm, 1 layer norm, -1 no norm. To int8 panels, to rows, or added to rows. A
    single token's panel goes to each lane's own copy.
    """
    single, width, pieces = is_single(args), arg(args, WIDTH), arg(args, PIECES)
    blocks, target, slots = width // 32, arg(args, PANELS_OUT), PANEL
    values, factors, means = stack(64), stack(8), stack(8)
    if single:
        target, slots = arg(args, LANE_OUT) + lane * arg(args, LANE_BYTES), 1
    for unit in range(begin, end):
        panel, piece = unit // pieces, unit % pieces
        count = min(rows_of(args) - PANEL * panel, PANEL)
        x = arg(args, X) + panel * PANEL * arg(args, X_STRIDE)
        y = arg(args, ROWS_OUT) + panel * PANEL * arg(args, OUT_STRIDE)
        if unit == begin or piece == 0:
            for t in range(count):
                factor, mean = factor_and_mean(x + t * arg(args, X_STRIDE), width, args)
                put_f32(factors + 4 * t, factor)
                put_f32(means + 4 * t, mean)
        for k in range(blocks * piece // pieces, blocks * (piece + 1) // pieces):
            for t in range(count):
                row, gain, shift = x + t * arg(args, X_STRIDE), arg(args, GAIN), arg(args, SHIFT)
                factor = splat_f32(get_f32(factors + 4 * t))
                mean = splat_f32(get_f32(means + 4 * t))
                scale_block(row, factor, mean, gain, shift, 128 * k, values + 128 * t)
            if target:
                block = target + (panel * blocks + k) * SLOT_BYTES * slots
                quantise_some(values, 128, block, count, slots)
            if arg(args, ROWS_OUT):
                write_rows(args, values, y + 128 * k, arg(args, OUT_STRIDE), count)
