"""Reads memory and does nothing with it: what bandwidth is measured with."""

from quant.jit import kernel
from quant.simd import BYTES, load_i32, total_i32


@kernel(2, returns=True)
def read_memory(address, size):
    """The sum of `size` bytes, a multiple of four vectors, as 32-bit lanes: it only loads."""
    a, b = load_i32(address), load_i32(address + BYTES)
    for at in range(address, address + size, 4 * BYTES):
        a = a + load_i32(at) + load_i32(at + 2 * BYTES)
        b = b + load_i32(at + BYTES) + load_i32(at + 3 * BYTES)
    return total_i32(a + b)
