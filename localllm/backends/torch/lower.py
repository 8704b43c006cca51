"""A program as a list of torch calls over static buffers; done once, when the model loads.

Products that read the same rows are one call; from the last attention on, only the rows that
are wanted go on. A buffer is used again once nobody reads its value any more.
"""

from collections.abc import Callable
from dataclasses import dataclass, field

import torch
from torch import Tensor
from torch.nn import functional

from localllm.backends.torch.attention import Pool, attend
from localllm.backends.torch.batch import Step, bucket
from localllm.backends.torch.weights import Weights, multiply
from localllm.errors import Unsupported
from localllm.program import Op, Program, Rope

Call = Callable[[Step], None]
ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "silu": functional.silu,
    "gelu": lambda x: functional.gelu(x, approximate="tanh"),
}


@dataclass
class Lowered:
    """The calls; `tail` only where logits are wanted. result: logits, or rows of a cut program."""

    body: list[Call] = field(default_factory=list)
    tail: list[Call] = field(default_factory=list)
    pools: list[Pool] = field(default_factory=list)  # a layer each
    ropes: list[Rope] = field(default_factory=list)
    buffers: list[Tensor] = field(default_factory=list)
    result: Tensor | None = None
    hidden: Tensor | None = None  # what the logits are made from


class Lowering:
    """One pass over a program's operations; rows, wanted: the most that a step has."""

    def __init__(self, program: Program, weights: Weights, rows: int, wanted: int, pages: int):
        self.ops, self.weights, self.pages = program.ops, weights, pages
        self.device, self.heights = weights.device, (bucket(rows), bucket(wanted))  # all, logits
        self.dtype = torch.float32 if self.device.exact else torch.float16
        self.last_uses = dict(enumerate(range(len(self.ops))))
        for i, op in enumerate(self.ops):
            self.last_uses |= dict.fromkeys(op.inputs, i)
        self.values: dict[int, Tensor] = {}
        self.done: set[int] = set()
        self.free: dict[tuple[int, int], list[Tensor]] = {}
        self.out, self.picked = Lowered(), False
        whole = self.ops[-1].kind == "logits"
        attends = [i for i, op in enumerate(self.ops) if op.kind == "attend"]
        self.last = attends[-1] if whole else None

    def run(self) -> Lowered:
        """Lower every operation in order. Raises Unsupported for one that is not known here."""
        for i, op in enumerate(self.ops):
            if i not in self.done:
                lower = getattr(self, f"_{op.kind}", None)
                if lower is None:
                    raise Unsupported(
                        f"Torch devices do not know the operation {op.kind!r} of this model.",
                        "Use --device cpu.",
                    )
                lower(i, op)
            for value in {i, *op.inputs}:
                if self.last_uses[value] == i != len(self.ops) - 1:
                    buffer = self.values.pop(value)
                    self.free.setdefault((len(buffer), buffer.shape[1]), []).append(buffer)
            if i == self.last:
                self._pick()
        self.out.result = self.values[len(self.ops) - 1]
        if self.last is not None:
            self.out.hidden = self.values[self.ops[-1].inputs[0]]
        return self.out

    # ---- memory -------------------------------------------------------------------------------

    def _buffer(self, width: int, logits: bool = False) -> Tensor:
        shape = (self.heights[logits], width)
        if self.free.get(shape):
            return self.free[shape].pop()
        self.out.buffers.append(torch.zeros(shape, device=self.device.kind))
        return self.out.buffers[-1]

    def _new(self, i: int) -> Tensor:
        op = self.ops[i]
        self.values[i] = self._buffer(op.width, logits=op.kind == "logits")
        return self.values[i]

    def _emit(self, call: Call) -> None:
        (self.out.tail if self.picked else self.out.body).append(call)

    def _rows(self) -> Callable[[Step], int]:
        """How many rows of a buffer a step uses, here."""
        return _wanted if self.picked else _all

    def _pick(self) -> None:
        """Go on with the rows that are wanted."""
        self.picked, kept = True, dict(self.values)
        for i, source in kept.items():
            target = self._new(i)

            def pick(step: Step, source=source, target=target) -> None:
                torch.index_select(source, 0, step.wanted, out=target[: step.shape.wanted])

            self._emit(pick)

    # ---- operations ---------------------------------------------------------------------------

    def _embed(self, i: int, op: Op) -> None:
        matrix, out = self.weights.matrix(op.weight), self._new(i)

        def embed(step: Step) -> None:
            torch.mul(matrix.rows(step.ids), op.scale, out=out[: step.shape.rows])

        self._emit(embed)

    def _rms_norm(self, i: int, op: Op) -> None:
        x, out, n = self.values[op.inputs[0]], self._new(i), self._rows()
        gain = self.weights.vector(f"{op.weight}.weight")
        shift = self.weights.vector(f"{op.weight}.bias")
        shape = (-1, op.heads or 1, op.width // (op.heads or 1))

        def norm(step: Step) -> None:
            rows = x[: n(step)].view(shape)
            y = functional.rms_norm(rows, shape[2:], gain, op.epsilon)
            y = y if shift is None else y + shift
            out[: n(step)].copy_(y.view(-1, op.width))

        self._emit(norm)

    _head_norm = _rms_norm

    def _linear(self, i: int, op: Op) -> None:
        """All products that read the same rows."""
        same = [j for j, other in enumerate(self.ops) if other.kind == "linear"]
        same = [j for j in same if self.ops[j].inputs == op.inputs and j >= i]
        self.done.update(same)
        self._products(op.inputs[0], same, self._rows())

    def _products(self, source: int, ops: list[int], n: Callable[[Step], int]) -> None:
        x = self.values[source]
        targets = [(self.weights.matrix(self.ops[j].weight), self._new(j)) for j in ops]
        biases = [self.weights.vector(f"{self.ops[j].weight}.bias") for j in ops]

        def products(step: Step) -> None:
            count = n(step)
            if not count:  # hidden rows alone
                return
            multiply(x[:count], [(matrix, out[:count]) for matrix, out in targets])
            for (_, out), bias in zip(targets, biases, strict=True):
                if bias is not None:
                    out[:count].add_(bias)

        self._emit(products)

    def _logits(self, i: int, op: Op) -> None:
        self._products(op.inputs[0], [i], _logits)
        out, cap = self.values[i], op.scale

        def soften(step: Step) -> None:
            out[: step.shape.logits].div_(cap).tanh_().mul_(cap)

        if cap:
            self._emit(soften)

    def _rope(self, i: int, op: Op) -> None:
        x, out, n, rope = self.values[op.inputs[0]], self._new(i), self._rows(), op.rope
        assert rope is not None  # an op of this kind has one
        if rope not in self.out.ropes:
            self.out.ropes.append(rope)
        shape, pairs = (-1, op.heads, op.width // op.heads), len(rope.speeds)

        def turn(step: Step) -> None:
            source, target = x[: n(step)].view(shape), out[: n(step)].view(shape)
            cos, sin = step.turns[rope]
            (a, b), (c, d) = (_pairs(rope, each, pairs) for each in (source, target))
            torch.sub(a * cos, b * sin, out=c)
            torch.add(b * cos, a * sin, out=d)
            target[..., 2 * pairs :].copy_(source[..., 2 * pairs :])

        self._emit(turn)

    def _attend(self, i: int, op: Op) -> None:
        a, (q, k, v) = op.attention, (self.values[j] for j in op.inputs)
        assert a is not None  # an op of this kind has them
        pool, out, dtype = Pool(a, self.pages, self.device.kind), self._new(i), self.dtype
        self.out.pools.append(pool)

        def attention(step: Step) -> None:
            rows = step.shape.rows
            pool.store(step.slots, k[:rows], v[:rows])
            attend(q, step, a, pool, dtype, out)

        self._emit(attention)

    def _gate(self, i: int, op: Op) -> None:
        (gate, up), n = (self.values[j] for j in op.inputs), self._rows()
        out, activate = self._new(i), ACTIVATIONS[op.activation]

        def gated(step: Step) -> None:
            torch.mul(activate(gate[: n(step)]), up[: n(step)], out=out[: n(step)])

        self._emit(gated)

    def _add(self, i: int, op: Op) -> None:
        (x, y), out, n = (self.values[j] for j in op.inputs), self._new(i), self._rows()

        def add(step: Step) -> None:
            torch.add(x[: n(step)], y[: n(step)], out=out[: n(step)])

        self._emit(add)


def _all(step: Step) -> int:
    return step.shape.rows


def _wanted(step: Step) -> int:
    return step.shape.wanted


def _logits(step: Step) -> int:
    return step.shape.logits


def _pairs(rope: Rope, x: Tensor, pairs: int) -> tuple[Tensor, Tensor]:
    """The dims that turn together: first and second of each pair."""
    if rope.pairs == "neighbours":
        return x[..., 0 : 2 * pairs : 2], x[..., 1 : 2 * pairs : 2]
    return x[..., :pairs], x[..., pairs : 2 * pairs]
