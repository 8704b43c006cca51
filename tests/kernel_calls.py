"""Calls of kernels that read from and write to plain memory: its bytes, and its numbers."""

import numpy as np

from quant.simd import LANES

OUT = 64  # bytes from one result to the next; no vector is longer


def run(function, *inputs, results):
    """Call a kernel with the inputs' addresses and room for results; those as (results, 64) u8."""
    arrays = [np.frombuffer(np.asarray(x).tobytes() + bytes(256), np.uint8) for x in inputs]
    out = np.zeros((results, OUT), np.uint8)
    function(*(x.ctypes.data for x in arrays), out.ctypes.data)
    return out


def floats(out, count=LANES):
    return np.ascontiguousarray(out).view("f4")[..., :count]


def ints(out, count=LANES):
    return np.ascontiguousarray(out).view("i4")[..., :count]
