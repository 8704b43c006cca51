"""Matrices of floats: tiles of LANES rows, column by column, against rows of f32."""

import numpy as np

from quant.format import Format
from quant.later import inline, stamp
from quant.products import float_dot, kernels_of
from quant.simd import LANES, get_i16, get_i32, put_i16, put_i32
from quant.types import by_name


@inline
def tile_of_4(source, stride, target):
    """One column of LANES rows of 4-byte numbers."""
    for row in range(LANES):
        put_i32(target + 4 * row, get_i32(source + stride * row))


@inline
def tile_of_2(source, stride, target):
    """One column of LANES rows of 2-byte numbers."""
    for row in range(LANES):
        put_i16(target + 2 * row, get_i16(source + stride * row))


get = None  # filled in


def weight(block, i):
    """The one weight of a block."""
    return get(block)


def float_format(name: str, home: str, dtype: str, load, get) -> Format:
    """A format of one number a block, read by `load` and `get`; "<u2" is bfloat16."""
    size = by_name(name).bytes
    lower = name.lower()

    def unpack(blocks: np.ndarray) -> np.ndarray:
        numbers = np.ascontiguousarray(blocks).view(dtype)
        if dtype == "<u2":
            return (numbers.astype("<u4") << 16).view("<f4")
        return numbers.astype("<f4")

    dot = stamp(float_dot, f"{lower}_dot", load=load, TILE_BYTES=size * LANES)
    tile = tile_of_4 if size == 4 else tile_of_2
    one = inline(stamp(weight, f"{lower}_weight", get=get))
    kernels = kernels_of(lower, home, 1, inline(dot), tile, one, floats=True)
    return Format(name, 1, size, unpack, *kernels, integer=False)
