"""The memory that pages of KV live in (their layout: `localllm.kernels.pages`)."""

from collections.abc import Sequence

from localllm.backends.cpu.memory import aligned
from localllm.kernels.kinds import KINDS
from localllm.kernels.pages import GROUP
from localllm.program import Attention


class Pool:
    """Pages 0 to `pages` - 1 of every layer; memory is the system's until a page is written."""

    def __init__(self, layers: Sequence[Attention], pages: int, kv_type: str):
        self.kv_type = kv_type
        sizes = [a.kv_heads * self.head_bytes(a) for a in layers]
        self.offsets = [sum(sizes[:n]) for n in range(len(layers))]
        self.group_bytes = sum(sizes)
        groups = -(-pages // GROUP)
        self.memory = aligned(groups * self.group_bytes)

    def head_bytes(self, a: Attention) -> int:
        """Bytes of a group of pages of one head of a layer."""
        kind = KINDS[a.pages_of(self.kv_type)]
        return GROUP * (kind.k_bytes(a.k_dims) + kind.v_bytes(a.v_dims))

    def layer(self, n: int) -> int:
        """The address of a layer's first page."""
        return self.memory.ctypes.data + self.offsets[n]
