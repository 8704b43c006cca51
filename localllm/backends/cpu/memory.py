"""Memory that kernels work in: aligned, zeroed, and taken from the system page by page."""

import mmap
import sys

import numpy as np

HUGE = 2 << 20


class Arena:
    """One block of memory that is handed out from the front; freed all at once."""

    def __init__(self, size: int):
        self.map = mmap.mmap(-1, max(size, 1) + HUGE)
        if hasattr(mmap, "MADV_HUGEPAGE"):
            try:
                self.map.madvise(mmap.MADV_HUGEPAGE)
            except OSError:
                assert sys.platform == "linux"  # a kernel without huge pages
        self.bytes = np.frombuffer(self.map, np.uint8)
        self.start = -self.bytes.ctypes.data % HUGE if size >= HUGE else -self.bytes.ctypes.data % 64
        self.used, self.size = 0, size

    def take(self, size: int) -> int:
        """The address of `size` zeroed bytes on a cache line of their own."""
        at, self.used = self.used, self.used + -(-size // 64) * 64
        assert self.used <= self.size + 64, "the arena was reckoned too small"
        return self.bytes.ctypes.data + self.start + at

    def view(self, address: int, size: int) -> np.ndarray:
        """The bytes at an address that `take` gave."""
        at = address - self.bytes.ctypes.data
        return self.bytes[at : at + size]
