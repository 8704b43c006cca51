"""Memory that kernels work in: aligned, zeroed, and taken from the system page by page."""

import contextlib
import ctypes
import mmap
import sys
from dataclasses import dataclass

import numpy as np

HUGE = 2 << 20  # bytes of a huge page: fewer of them to look up
LINE = 64  # bytes of a cache line


class Arena:
    """One block of memory that is handed out from the front; freed all at once."""

    def __init__(self, size: int):
        self.bytes, self.used = aligned(size + LINE), 0

    def take(self, size: int) -> int:
        """The address of `size` zeroed bytes on a cache line of their own."""
        at, self.used = self.used, self.used + -(-size // LINE) * LINE
        assert self.used <= len(self.bytes), "the arena was reckoned too small"
        return self.bytes.ctypes.data + at


@dataclass(frozen=True, slots=True)
class Rows:
    """f32 rows at `address`, `stride` bytes apart."""

    address: int
    stride: int

    def view(self, count: int) -> np.ndarray:
        """The first of them as (count, stride / 4) f32; they must live on."""
        size = count * self.stride
        memory = memoryview((ctypes.c_char * size).from_address(self.address))
        return np.frombuffer(memory, np.float32).reshape(count, -1)


def _anonymous(size: int) -> mmap.mmap:
    """Zeroed memory of this process alone; shared memory would get no huge pages."""
    if sys.platform == "win32":
        return mmap.mmap(-1, size)
    return mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)


def aligned(size: int) -> np.ndarray:
    """(size,) u8 zeros that begin on a cache line; pages nobody touches cost nothing."""
    if size < HUGE:
        raw = np.zeros(size + LINE, np.uint8)
        start = -raw.ctypes.data % LINE
        return raw[start : start + size]
    block = _anonymous(size + HUGE)
    if hasattr(mmap, "MADV_HUGEPAGE"):
        with contextlib.suppress(OSError):  # a kernel without huge pages
            block.madvise(mmap.MADV_HUGEPAGE)
    raw = np.frombuffer(block, np.uint8)
    start = -raw.ctypes.data % HUGE
    return raw[start : start + size]
