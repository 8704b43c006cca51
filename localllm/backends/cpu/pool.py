"""The memory that pages of KV live in (their layout: `localllm.kernels.pages`)."""

from collections.abc import Sequence

from localllm.backends.cpu.memory import aligned
from localllm.batch import PAGE
from localllm.kernels.pages import BAND_BYTES, GROUP, k_bytes, v_bytes
from localllm.program import Attention


class Pool:
    """Pages 0 to `pages` - 1 of every layer; memory is the system's until a page is written."""

    def __init__(self, layers: Sequence[Attention], pages: int):
        self.head_bytes = [(k_bytes(a.k_dims), v_bytes(a.v_dims)) for a in layers]
        heads = zip(layers, self.head_bytes, strict=True)
        sizes = [a.kv_heads * GROUP * sum(kv) for a, kv in heads]
        self.offsets = [sum(sizes[:n]) for n in range(len(layers))]
        self.kv_heads = [a.kv_heads for a in layers]
        self.group_bytes = sum(sizes)
        groups = -(-pages // GROUP)
        self.memory = aligned(groups * self.group_bytes)

    def layer(self, n: int) -> int:
        """The address of a layer's first page."""
        return self.memory.ctypes.data + self.offsets[n]

    def copy(self, source: int, target: int) -> None:
        """Copy a page in all layers and heads."""
        for offset, heads, kv in zip(self.offsets, self.kv_heads, self.head_bytes, strict=True):
            for head in range(heads):
                at = offset + head * GROUP * sum(kv)
                for start, size in pieces(*kv):
                    self._copy(at + start, size, source, target)

    def _copy(self, at: int, size: int, source: int, target: int) -> None:
        """Copy what stands `size` bytes a page from byte `at` of a group on."""
        first, second = (
            page // GROUP * self.group_bytes + at + page % GROUP * size for page in (source, target)
        )
        self.memory[second : second + size] = self.memory[first : first + size]


def pieces(k_size: int, v_size: int) -> list[tuple[int, int]]:
    """Where in a group a head's runs of pages begin, and how many bytes of a run a page has."""
    start, scales = GROUP * k_size, PAGE * 4
    bands = (v_size - scales) // BAND_BYTES
    runs = [(start + GROUP * BAND_BYTES * band, BAND_BYTES) for band in range(bands)]
    return [(0, k_size), *runs, (start + GROUP * BAND_BYTES * bands, scales)]
