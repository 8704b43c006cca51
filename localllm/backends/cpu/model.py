"""A model on the CPU: a batch checked and written down, one native call, logits."""

import ctypes
import sys
from collections.abc import Callable
from functools import partial

import numpy as np

from localllm.backends.cpu import team
from localllm.backends.cpu.batch import BatchMemory
from localllm.backends.cpu.lower import Lowering, Rows, Sizes, Step
from localllm.backends.cpu.team import Table, Team
from localllm.backends.cpu.weights import Weights
from localllm.batch import LOADING, PAGE, Batch
from localllm.gguf import GGUF
from localllm.kernels import pack
from localllm.kernels.fields import SPAN
from localllm.program import Program
from quant.jit import Kernel, compile_all
from quant.target import TARGET

LOGIT_BYTES = 64 << 20  # of logits that one step may give
MOST_WANTED, MOST_SEQUENCES = 512, 256
PRODUCTS = ("linear", "logits")  # kinds of operation that read a matrix
CROWD = 4  # (row, KV head) pairs a lane, up to which spans of rows are worked out apart
Progress = Callable[[str, int, int], None]


class CPUModel:
    """The engine's view of a model (see `localllm.batch.Model`), on a team of threads."""

    def __init__(
        self, gguf: GGUF, program: Program, *, lanes: int, context: int, pages: int,
        max_rows: int = 512, progress: Progress | None = None, pin: bool | None = None,
    ):  # fmt: skip
        self.program, self.gguf = program, gguf
        self.architecture = gguf.architecture
        self.vocab, self.context, self.pages = program.ops[-1].width, context, pages
        self.width = program.hidden_width
        self.max_rows, self.max_sequences = max_rows, MOST_SEQUENCES
        self.max_wanted = int(np.clip(LOGIT_BYTES // (4 * self.vocab), 8, MOST_WANTED))
        self.max_wanted = min(self.max_wanted, max_rows)
        names = dict.fromkeys(op.weight for op in program.ops if op.kind in PRODUCTS)
        self.weights = Weights(gguf, names, program.ops[0].weight)
        compile_all(self._kernels(names), lanes, progress)
        self.team = Team(lanes, pin=sys.platform == "linux" if pin is None else pin)
        self._load(names, lanes, progress)

    def _kernels(self, names) -> list[Kernel]:
        from localllm.kernels import attention, heads, linear, norm, spans

        formats = {form.name: form for form in map(self.weights.formats.get, names)}.values()
        own = [*team.KERNELS, heads.heads, attention.attend, *spans.SPANS.values()]
        own += [norm.norm, linear.gated, linear.linear, attention.merge_spans, linear.pick]
        return [f.product for f in formats] + own + [pack.pack] + [f.repack for f in formats]

    def _load(self, names, lanes: int, progress: Progress | None) -> None:
        spans = -(-self.context // SPAN)
        most = spans + CROWD * lanes
        crowd = CROWD * lanes / min(a.kv_heads for a in self.program.layers)
        sizes = Sizes(self.max_rows, self.max_wanted, lanes, self.context, self.pages, most)
        self.batch = BatchMemory(
            self.max_rows, self.max_sequences, spans * SPAN // PAGE + 8, most, crowd
        )
        lowering = Lowering(self.program, self.weights, sizes, self.batch.address)
        for name in names:
            self.weights.matrix(name)
        self.lowered = lowering.run()
        self.steps: list[Step] = self.lowered.steps
        rows = [
            (s.kernel.address, s.args.ctypes.data, s.units, s.kind, s.alone) for s in self.steps
        ]
        self.table = Table(rows, lanes)
        self.embedded = _floats(self.lowered.embedded, self.max_rows)
        self.logit_rows = _floats(self.lowered.logits, self.max_wanted)
        self.hidden_rows = _floats(self.lowered.hidden, self.max_rows)
        self._hidden = slice(0)  # those of the batch that was run last
        tell: Progress = progress or _silent
        self.weights.pack(self.team, partial(tell, LOADING))

    @property
    def device(self) -> str:
        """What it runs on, for people."""
        return f"CPU, {TARGET.name}, {self.team.lanes} threads"

    @property
    def parameters(self) -> int:
        """How many numbers the file's tensors hold."""
        return sum(int(np.prod(info.shape)) for info in self.gguf.tensors.values())

    def forward(self, batch: Batch) -> np.ndarray:
        """(W, vocab) f32, overwritten by the next call. Raises BadRequest for a bad batch."""
        self.batch.write(batch, self)
        self._embed(batch.ids)
        last = int(self.batch.positions[: len(batch.ids)].max())
        for table in self.lowered.ropes.values():
            table.reach(last)
        self.team.run(self.table, self.batch.fields)
        self._hidden = slice(len(batch.wanted), len(batch.wanted) + len(batch.hidden))
        logits = self.logit_rows[: len(batch.wanted), : self.vocab]
        cap = self.program.ops[-1].scale
        return logits if not cap else cap * np.tanh(logits / cap)

    def hidden(self) -> np.ndarray:
        """(H, width) f32 of the batch that was run last, overwritten by the next."""
        return self.hidden_rows[self._hidden, : self.width]

    def _embed(self, ids: np.ndarray) -> None:
        op = self.program.ops[0]
        rows = self.weights.rows(op.weight, ids)
        if op.scale != 1:
            rows *= np.float32(op.scale)
        self.embedded[: len(ids), : op.width] = rows

    def copy_page(self, source: int, target: int) -> None:
        """Copy a page of KV in all layers."""
        self.lowered.pool.copy(source, target)

    def close(self) -> None:
        """End the team's threads."""
        self.team.close()


def _silent(stage: str, done: int, total: int) -> None:
    """Tell nobody."""


def _floats(rows: Rows, count: int) -> np.ndarray:
    """The memory of rows as (count, width) f32."""
    size = count * rows.stride
    memory = memoryview((ctypes.c_char * size).from_address(rows.address))
    return np.frombuffer(memory, np.float32).reshape(count, -1)
