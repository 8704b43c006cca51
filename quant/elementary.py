"""Functions of vectors that are made of arithmetic: e**x, 2**x, the logistic function."""

import numpy as np

from quant.later import inline
from quant.simd import fma, maximum, minimum, nearest, power_of_two, splat_f32, zero_below

_LN2_HIGH, _LN2_LOW = np.float32(0.693359375), np.float32(-2.12194440e-4)


@inline
def exp(x):
    """e**x to about 1e-7 of it; 0 below -87. Cody and Waite's reduction, then Taylor's series."""
    low, high = splat_f32(np.float32(-88)), splat_f32(np.float32(88))
    inside = minimum(maximum(x, low), high)
    n = nearest(inside * splat_f32(np.float32(1.44269504)))
    r = fma(n, splat_f32(-_LN2_HIGH), inside)
    r = fma(n, splat_f32(-_LN2_LOW), r)
    p = fma(splat_f32(np.float32(1 / 720)), r, splat_f32(np.float32(1 / 120)))
    p = fma(p, r, splat_f32(np.float32(1 / 24)))
    p = fma(p, r, splat_f32(np.float32(1 / 6)))
    p = fma(p, r, splat_f32(np.float32(0.5)))
    p = fma(p, r, splat_f32(np.float32(1)))
    p = fma(p, r, splat_f32(np.float32(1)))
    return zero_below(power_of_two(p, n), x, np.float32(-87))


@inline
def exp2(x):
    """2**x to about 3e-6 of it, for x <= 127; 1 at 0 and 0 below -127, exactly.

    The polynomial is the one of its degree whose largest relative error is smallest, among those
    that are 1 at 0: at -127, where the exponent's bits run out, its mantissa is then zero too.
    """
    inside = maximum(x, splat_f32(np.float32(-127)))
    n = nearest(inside)
    r = inside - n
    p = fma(splat_f32(np.float32(0.009582853)), r, splat_f32(np.float32(0.05590643)))
    p = fma(p, r, splat_f32(np.float32(0.24024099)))
    p = fma(p, r, splat_f32(np.float32(0.6931242)))
    return power_of_two(fma(p, r, splat_f32(np.float32(1))), n)


@inline
def sigmoid(x):
    """1 / (1 + e**-x)."""
    one = splat_f32(np.float32(1))
    return one / (one + exp(splat_f32(np.float32(0)) - x))
