"""Walsh and Hadamard's rotation of a head: spreads what a few dims hold over all of them.

It keeps lengths and dot products, and is its own inverse. Source: the fast Walsh-Hadamard
transform; for quantized KV caches see QuaRot (arXiv 2404.00456).
"""

import numpy as np

from quant.later import inline
from quant.simd import LANES, butterfly, load_f32, splat_f32, store_f32


def rotation_size(dims: int) -> int:
    """How many dims turn together: the largest power of two that divides `dims`; 1 is none.

    Heads that do not fill vectors are left as they are.
    """
    return dims & -dims if dims % 16 == 0 else 1


def rotation_matrix(dims: int, size: int) -> np.ndarray:
    """What `rotate` multiplies `dims` numbers with: (dims, dims) f64, symmetric."""
    turn = np.ones((1, 1))
    while len(turn) < size:
        turn = np.block([[turn, turn], [turn, -turn]])
    return np.kron(np.eye(dims // size), turn) / np.sqrt(size)


@inline
def rotate(x, dims, size):
    """Rotate each `size` of `dims` f32 (a multiple of 16), in place."""
    factor = splat_f32(np.float32(1) / np.sqrt(np.float32(size)))
    for c in range(0, 4 * dims, 4 * LANES):
        v = load_f32(x + c) * factor
        if size > 1:
            v = butterfly(v, 1)
        if size > 2:
            v = butterfly(v, 2)
        if LANES > 4 and size > 4:
            v = butterfly(v, 4)
        if LANES > 8 and size > 8:
            v = butterfly(v, 8)
        store_f32(x + c, v)
    half = LANES
    while half < size:
        for first in range(0, dims, 2 * half):
            for c in range(4 * first, 4 * (first + half), 4 * LANES):
                a, b = load_f32(x + c), load_f32(x + c + 4 * half)
                store_f32(x + c, a + b)
                store_f32(x + c + 4 * half, a - b)
        half *= 2
