"""Norms: rows of f32 scaled to a mean square of one, on to int8 panels or to rows of f32."""

import numpy as np

from localllm.kernels.fields import OWN, arg, is_single
from quant.jit import kernel
from quant.later import inline
from quant.rows import PANEL, SLOT_BYTES, quantise
from quant.simd import LANES, fma, get_f32, load_f32, splat_f32, stack, store_f32, total

(X, X_STRIDE, WIDTH, COUNT, GAIN, EPSILON, CENTRE, SHIFT, PANELS_OUT, LANE_OUT, LANE_BYTES,
 ROWS_OUT, OUT_STRIDE, ADD) = range(OWN, OWN + 14)  # fmt: skip


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


@kernel(4)
def norm(args, begin, end, lane):
    """Rows begin to end - 1: (x - mean?) * rsqrt(mean square + epsilon) * gain + shift.

    CENTRE: 0 RMS norm, 1 layer norm, -1 no norm. To int8 panels, to rows, or added to rows. A
    single token's panel goes to each lane's own copy.
    """
    single, width = is_single(args), arg(args, WIDTH)
    blocks, out, target = width // 32, stack(8), arg(args, PANELS_OUT)
    slots = 1 if single else PANEL
    if single:
        target = arg(args, LANE_OUT) + lane * arg(args, LANE_BYTES)
    for t in range(begin, end):
        x = arg(args, X) + t * arg(args, X_STRIDE)
        f, m = factor_and_mean(x, width, args)
        factor, mean = splat_f32(f), splat_f32(m)
        panel = target + t // PANEL * blocks * SLOT_BYTES * PANEL
        y = arg(args, ROWS_OUT) + t * arg(args, OUT_STRIDE)
        for k in range(blocks):
            scale_block(x, factor, mean, arg(args, GAIN), arg(args, SHIFT), 128 * k, out)
            if target:
                quantise(out, panel + k * SLOT_BYTES * slots, t % PANEL, slots)
            if arg(args, ROWS_OUT):
                for c in range(0, 128, 4 * LANES):
                    v = load_f32(out + c)
                    if arg(args, ADD):
                        v = v + load_f32(y + 128 * k + c)
                    store_f32(y + 128 * k + c, v)
