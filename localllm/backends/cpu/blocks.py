"""Argument blocks of a program's steps: what every kernel finds in the same place."""

import numpy as np

from localllm.backends.cpu.buffers import Buffers
from localllm.backends.cpu.pool import Pool
from localllm.backends.cpu.steps import Lowered, Sizes, Step
from localllm.kernels import fields, linear, states
from localllm.kernels.fields import round_up
from localllm.program import Attention, Program
from quant.jit import Kernel
from quant.rows import PANEL


class Blocks(Buffers):
    """Steps while a program is lowered, which know what rows they work on.

    wanted, tail: whether only those whose logits or hidden rows are wanted, only those whose
    logits are.
    """

    def __init__(self, program: Program, sizes: Sizes, batch: int):
        super().__init__(
            program.ops, sizes, Lowered(pool=Pool(program.layers, sizes.pages, sizes.kv_type))
        )
        self.batch = batch
        self.wanted, self.tail, self.layer = False, False, -1
        self.scratch_bytes = scratch_bytes(program.layers)
        self.scratch = self._memory(sizes.lanes * self.scratch_bytes)

    def _block(self, size: int) -> np.ndarray:
        args = np.zeros(size, np.int64)
        args[fields.BATCH] = self.batch
        args[fields.ROWS] = self._row_kind
        args[fields.SCRATCH], args[fields.SCRATCH_BYTES] = self.scratch, self.scratch_bytes
        self.out.memory.append(args)
        return args

    def _emit(self, name: str, kernel: Kernel, args: np.ndarray, units: int, **more) -> None:
        self.out.steps.append(Step(name, self.layer, kernel, args, units, **more))

    @property
    def _row_kind(self) -> int:
        wanted = fields.LOGITS if self.tail else fields.WANTED
        return wanted if self.wanted else fields.TOKENS

    @property
    def _panel_kind(self) -> int:
        return fields.WANTED_PANELS if self.wanted else fields.PANELS

    @property
    def _chunk_kind(self) -> int:
        wanted = fields.LOGIT_CHUNKS if self.tail else fields.WANTED_CHUNKS
        return wanted if self.wanted else fields.CHUNKS


def scratch_bytes(layers: list[Attention]) -> int:
    """What the kernels of one lane work in."""
    chunk = fields.CHUNK * PANEL * 64
    gated = 2 * 32 * 4 * linear.PART * PANEL + 128 * PANEL
    need = [states.scratch_bytes(a.v_dims, a.heads // a.kv_heads) for a in layers]
    return round_up(max(chunk, gated, *need), 4096)
