"""Cosines and sines of positions, worked out as far as positions have come."""

import numpy as np

from localllm.backends.cpu.memory import aligned
from localllm.kernels.heads import HALVES, NEIGHBOURS
from localllm.program import Rope
from quant.simd import LANES

STEP = 256  # positions worked out at a time


class RopeTable:
    """Rows of (cosines, sines) f32 for positions 0 to context - 1; memory is touched on demand.

    Neighbours that fill vectors have each cosine twice and the sines with their signs.
    """

    def __init__(self, rope: Rope, context: int):
        self.speeds, self.magnitude = np.array(rope.speeds), rope.magnitude
        self.dims = 2 * len(rope.speeds)
        self.kind = NEIGHBOURS if rope.pairs == "neighbours" else HALVES
        self.twice = self.kind == NEIGHBOURS and self.dims % LANES == 0
        width = 2 * self.dims if self.twice else self.dims
        self.memory = aligned(context * width * 4)
        self.rows = self.memory.view(np.float32).reshape(context, width)
        self.known = 0

    @property
    def address(self) -> int:
        """Where position 0 stands."""
        return self.memory.ctypes.data

    def reach(self, position: int) -> None:
        """Work out the rows up to a position."""
        while self.known <= position:
            first, self.known = self.known, min(self.known + STEP, len(self.rows))
            angles = np.outer(np.arange(first, self.known), self.speeds)
            cos, sin = np.cos(angles) * self.magnitude, np.sin(angles) * self.magnitude
            if self.twice:
                cos, sin = cos.repeat(2, 1), sin.repeat(2, 1)
                sin[:, ::2] *= -1
            self.rows[first : self.known] = np.concatenate([cos, sin], 1)
