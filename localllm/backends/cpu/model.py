"""A model on the CPU: a batch checked and written down, one native call, logits."""

import itertools
import math
import sys
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from functools import partial

import numpy as np

from localllm.backends.cpu import team
from localllm.backends.cpu.batch import BatchMemory
from localllm.backends.cpu.learn import SAMPLE
from localllm.backends.cpu.lower import Lowering
from localllm.backends.cpu.steps import Sizes, Step
from localllm.backends.cpu.team import Table, Team
from localllm.backends.cpu.weights import Weights
from localllm.batch import LOADING, PAGE, Batch
from localllm.gguf import GGUF
from localllm.kernels import pack
from localllm.kernels.fields import SPAN
from localllm.kernels.kinds import KINDS
from localllm.program import Program
from quant.jit import Kernel, compile_all
from quant.target import TARGET

LOGIT_BYTES = 64 << 20  # of logits that one step may give
MOST_WANTED, MOST_SEQUENCES = 512, 256
PRODUCTS = ("linear", "logits")  # kinds of operation that read a matrix
CROWD = 4  # (row, KV head) pairs a lane, up to which spans of rows are worked out apart
FEW, CATCH_UP = 64, 0.2  # rows of a step that starts before all weights are repacked; seconds
Progress = Callable[[str, int, int], None]
Until = Callable[[], Future]
Sample = Callable[[], Sequence[int]]


class CPUModel:
    """The engine's view of a model (see `localllm.batch.Model`), on a team of threads."""

    drafts = True
    ahead = 7

    def __init__(
        self, gguf: GGUF, program: Program, *, lanes: int, context: int, pages: int,
        max_rows: int = 512, kv_type: str = "f16", sample: Sample | None = None,
        progress: Progress | None = None, pin: bool | None = None, until: Until | None = None,
    ):  # fmt: skip
        self.program, self.gguf = program, gguf
        self.architecture = gguf.architecture
        self.vocab, self.context, self.pages = program.ops[-1].width, context, pages
        self.width = program.hidden_width
        self.max_rows, self.max_sequences = max_rows, MOST_SEQUENCES
        self.max_wanted = int(np.clip(LOGIT_BYTES // (4 * self.vocab), 8, MOST_WANTED))
        self.max_wanted = min(self.max_wanted, max_rows)
        names = dict.fromkeys(op.weight for op in program.ops if op.kind in PRODUCTS)
        self.weights = Weights(gguf, names, program.ops[0].weight, lanes)
        compile_all(self._kernels(names, kv_type), lanes, progress)
        self.team = Team(lanes, pin=sys.platform == "linux" if pin is None else pin)
        self.used = False
        try:
            self._lower(names, lanes, kv_type)
            learns = bool(self.lowered.shapes)
            self._pack(progress or _silent, None if learns else until)
            if learns:
                ids = sample() if sample else ()
                self._learn(np.array(ids or range(0, self.vocab, self.vocab // SAMPLE + 1)))
        except BaseException:  # Ctrl-C too
            self.close()
            raise

    def _kernels(self, names, kv_type: str) -> list[Kernel]:
        """Those that compile for long are at both ends, where processes begin; so they end soon
        after each other."""
        from localllm.kernels import advance, attention, draw, embed, linear, norm

        formats = {form.name: form for form in map(self.weights.formats.get, names)}.values()
        first = self.program.ops[0].weight
        rows = [self.weights.formats[first].unpack_row, embed.embed] if first else []
        kinds = [KINDS[kind] for kind in {a.pages_of(kv_type): 0 for a in self.program.layers}]
        front = [*(kind.heads for kind in kinds), *(f.product for f in formats)]
        front += [*team.KERNELS, draw.draw, advance.advance, *rows]
        middle = [linear.pick, pack.pack, pack.pack_until, *(f.repack for f in formats)]
        back = [linear.linear, linear.gated, norm.norm, attention.merge_spans]
        back += [span for kind in kinds for span in kind.spans.values()] + [attention.attend]
        return front + middle + back

    def _lower(self, names, lanes: int, kv_type: str) -> None:
        spans = -(-self.context // SPAN)
        most = spans + CROWD * lanes
        crowd = CROWD * lanes / min(a.kv_heads for a in self.program.layers)
        sizes = Sizes(
            self.max_rows, self.max_wanted, lanes, self.context, self.pages, most, kv_type
        )
        self.batch = BatchMemory(
            self.max_rows, self.max_sequences, spans * SPAN // PAGE + 8, most, crowd
        )
        lowering = Lowering(self.program, self.weights, sizes, self.batch.address)
        for name in names:
            self.weights.matrix(name)
        self.lowered = lowering.run()
        self.steps: list[Step] = self.lowered.steps
        self.table = self._table(self.steps)
        self.logit_rows = self.lowered.logits.view(self.max_wanted)
        self.hidden_rows = self.lowered.hidden.view(self.max_rows)
        self.draws = self.lowered.draws
        self._hidden = slice(0)  # those of the batch that was run last

    def _pack(self, progress: Progress, until: Until | None) -> None:
        if until is None:
            self.weights.pack(self.team, partial(progress, LOADING))
        else:
            progress(LOADING, 0, len(self.weights.loaded))
            self.weights.pack_until(until())

    def _table(self, steps: Sequence[Step]) -> Table:
        rows = [(s.kernel.address, s.args.ctypes.data, s.units, s.kind, s.alone) for s in steps]
        return Table(rows, self.team.lanes)

    def _learn(self, sample: np.ndarray) -> None:
        """The shapes of K, from a sample that goes through the model with none."""
        count = min(SAMPLE, len(sample), self.context, self.pages * PAGE)
        ids = sample[:count].astype(np.int32)
        shapes = self.lowered.shapes
        seen: list[list[tuple[np.ndarray, np.ndarray]]] = [[] for _ in shapes]
        cuts = [0, *(shape.step for shape in shapes)]
        tables = [self._table(self.steps[a:b]) for a, b in itertools.pairwise(cuts)]
        pages = np.arange(self.pages, dtype=np.int32)[None]
        for first in range(0, count, self.max_rows):
            part = ids[first : first + self.max_rows]
            ends, start = np.array([0, len(part)], np.int32), np.array([first], np.int32)
            self._write(Batch(part, ends, start, pages, part[:0]))
            for shape, table, rows in zip(shapes, tables, seen, strict=True):
                self.team.run(table, self.batch.fields)
                rows.append(shape.read(len(part)))
        for shape, rows in zip(shapes, seen, strict=True):
            shape.learn(*(np.concatenate(x) for x in zip(*rows, strict=True)))

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
        if self.weights.late:
            self._catch_up(len(batch.ids))
        self._write(batch)
        self.team.run(self.table, self.batch.fields, self.batch.passes)
        self._hidden = slice(len(batch.wanted), len(batch.wanted) + len(batch.hidden))
        logits = self.logit_rows[: len(batch.wanted), : self.vocab]
        cap = self.program.ops[-1].scale
        return logits if not cap else cap * np.tanh(logits / cap)

    def _catch_up(self, rows: int) -> None:
        """Repack on before a step, but before the first one only where that is less work."""
        if self.used or rows > FEW:
            seconds = CATCH_UP if rows <= FEW else math.inf
            self.weights.pack(self.team, partial(_silent, LOADING), seconds)
        self.used = True

    def _write(self, batch: Batch) -> None:
        """A batch, and what its positions need, to where the kernels read it."""
        self.batch.write(batch, self)
        last = int(self.batch.positions[: len(batch.ids)].max()) + batch.ahead
        for table in self.lowered.ropes.values():
            table.reach(last)

    def drawn(self) -> np.ndarray:
        """(passes, W) i64 of the batch that was run last, overwritten by the next; see
        `localllm.batch.Model`."""
        return self.batch.drawn

    def hidden(self) -> np.ndarray:
        """(H, width) f32 of the batch that was run last, overwritten by the next."""
        return self.hidden_rows[self._hidden, : self.width]

    def close(self) -> None:
        """End the team's threads."""
        self.team.close()


def _silent(stage: str, done: int, total: int) -> None:
    """Tell nobody."""
