"""Memory for a program's values: where each stands, and who may have its place afterwards."""

from localllm.backends.cpu.memory import Rows, aligned
from localllm.backends.cpu.steps import Lowered, Panels, Place, Sizes
from localllm.kernels import fields
from localllm.kernels.fields import round_up
from localllm.program import Op
from quant.rows import PANEL, SLOT_BYTES

LATER = ("rope", "head_norm")  # done where attention's inputs are prepared


class Buffers:
    """The places of a program's values while it is lowered."""

    def __init__(self, ops: list[Op], sizes: Sizes, out: Lowered):
        self.ops, self.sizes, self.out = ops, sizes, out
        self.users: list[list[int]] = [[] for _ in ops]
        for i, op in enumerate(ops):
            for source in op.inputs:
                self.users[source].append(i)
        self.places: dict[int, Place] = {}
        # Buffers nobody reads any more, by size and by the width of the rows they were made for.
        self.free: dict[tuple[int, int], list[int]] = {}
        self.sizes_of: dict[int, tuple[int, int]] = {}
        self.shared: dict[tuple[str, int], int] = {}

    def _memory(self, size: int) -> int:
        self.out.memory.append(aligned(size))
        return self.out.memory[-1].ctypes.data

    def _shared(self, name: str, size: int) -> int:
        """Memory that every layer uses for the same thing."""
        key = (name, size)
        if key not in self.shared:
            self.shared[key] = self._memory(size)
        return self.shared[key]

    def _buffer(self, size: int, width: int = 0) -> int:
        """Memory for a value, used again when the value is dead.

        Only by rows of the same width: what stands behind their ends stays zero, and is read.
        """
        free = self.free.get((size, width))
        address = free.pop() if free else self._memory(size)
        self.sizes_of[address] = size, width
        return address

    def _last_use(self, i: int) -> int:
        """The last operation that reads a value; RoPE and head norms are done by attention."""
        later = [self._last_use(u) if self.ops[u].kind in LATER else u for u in self.users[i]]
        return max(later, default=i)

    def _release(self, i: int) -> None:
        """Free the buffers of values that nobody after operation i reads."""
        dead = [j for j in self.places if self._last_use(j) <= i]
        gone = {address for j in dead for address in _addresses(self.places.pop(j))}
        alive = {address for place in self.places.values() for address in _addresses(place)}
        for address in gone - alive:
            if address in self.sizes_of:
                self.free.setdefault(self.sizes_of.pop(address), []).append(address)

    def _rows(self, width: int) -> Rows:
        """Rows for a value; slack behind them for kernels that work in tiles."""
        stride = round_up(width, 32) * 4
        return Rows(self._buffer((self.sizes.rows + PANEL) * stride, width), stride)

    def _panels(self, width: int, lanes: bool) -> Panels:
        """Panels for a value; a single token's in each lane's own memory, or in one for all."""
        blocks = width // 32
        single = round_up(blocks * SLOT_BYTES, 64)
        lane = self._buffer(single * (self.sizes.lanes if lanes else 1))
        address = self._buffer(fields.panels(self.sizes.rows) * PANEL * blocks * SLOT_BYTES)
        return Panels(address, blocks, lane, single if lanes else 0)


def _addresses(place: Place) -> list[int]:
    rows = [place.rows.address] if place.rows else []
    return rows + ([place.panels.address, place.panels.lane] if place.panels else [])
