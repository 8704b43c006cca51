"""A model as a program: the list of operations that one pass over a batch consists of.

An architecture calls a Recorder's methods once, when the model loads; what it gets back are names
of values, not arrays. A backend turns the list into work. Rows are tokens, f32; D is a value's
width. Weights are named as the file names them, without ".weight"; a bias that is there is used.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Literal, NamedTuple

from localllm.errors import BadFile

Activation = Literal["silu", "gelu"]


class Value(NamedTuple):
    """What an operation gives: the operation's place in the list, and the width of its rows."""

    op: int
    width: int


@dataclass(frozen=True, slots=True)
class Rope:
    """Which dims of a head turn together, and how fast: radians a position for each pair."""

    pairs: Literal["neighbours", "halves"]
    speeds: tuple[float, ...]
    magnitude: float = 1.0  # cosines and sines are multiplied by it


@dataclass(frozen=True, slots=True)
class Attention:
    """The numbers of an attention layer; `window` positions are seen, 0 meaning all."""

    layer: int  # which layer of the KV cache
    heads: int
    kv_heads: int
    k_dims: int
    v_dims: int
    scale: float
    window: int = 0
    softcap: float = 0.0
    first: bool = False  # of those with a window, or of those without

    def pages_of(self, kv_type: str) -> str:
        """The type of this layer's pages. All later layers see what a first one gets wrong: it
        has f16."""
        return "f16" if self.first else kv_type


@dataclass(frozen=True, slots=True)
class Op:
    """One operation on the values of earlier ones."""

    kind: str
    inputs: tuple[int, ...]
    width: int
    weight: str = ""
    epsilon: float = 0.0
    scale: float = 1.0
    heads: int = 0
    activation: Activation = "silu"
    rope: Rope | None = None
    attention: Attention | None = None


@dataclass(slots=True)
class Program:
    """The operations in order; the last one gives the logits."""

    ops: list[Op] = field(default_factory=list)

    @property
    def hidden_width(self) -> int:
        """Of the rows that the logits are made from."""
        return self.ops[self.ops[-1].inputs[0]].width

    @property
    def layers(self) -> list[Attention]:
        """The layers of the KV cache, in order."""
        found = [op.attention for op in self.ops if op.attention is not None]
        return sorted(found, key=lambda attention: attention.layer)


class Recorder:
    """Writes a Program down; `shapes` are those of the file's tensors, rows first."""

    def __init__(self, shapes: Mapping[str, tuple[int, ...]]):
        self.shapes, self.program = shapes, Program()

    def has(self, name: str) -> bool:
        """Whether the file has that tensor."""
        return f"{name}.weight" in self.shapes

    def embed(self, name: str = "token_embd", scale: float = 1.0) -> Value:
        """The rows of a matrix that the token ids pick, times `scale`."""
        return self._add("embed", (), self._matrix(name)[1], weight=name, scale=scale)

    def rms_norm(self, x: Value, name: str, epsilon: float) -> Value:
        """x / sqrt(mean of squares + epsilon) * weight."""
        self._vector(name, x.width)
        return self._add("rms_norm", (x,), x.width, weight=name, epsilon=epsilon)

    def head_norm(self, x: Value, name: str, heads: int, epsilon: float) -> Value:
        """The RMS norm of each head of a row by itself."""
        self._vector(name, x.width // heads)
        return self._add(
            "head_norm", (x,), x.width, weight=name, heads=heads, epsilon=epsilon
        )  # fmt: skip

    def linear(self, x: Value, name: str) -> Value:
        """x @ weight.T + bias."""
        rows, columns = self._matrix(name)
        if columns != x.width:
            raise BadFile(f"{name}.weight has {columns} columns, its input {x.width}.")
        if f"{name}.bias" in self.shapes and self.shapes[f"{name}.bias"] != (rows,):
            raise BadFile(f"{name}.bias should be of {rows} numbers.")
        return self._add("linear", (x,), rows, weight=name)

    def rope(self, x: Value, rope: Rope, heads: int) -> Value:
        """Each head's pairs of dims turned by the position times their speed."""
        if 2 * len(rope.speeds) > x.width // heads:
            raise BadFile("More dims are to be rotated than a head has.")
        return self._add("rope", (x,), x.width, heads=heads, rope=rope)

    def attend(self, q: Value, k: Value, v: Value, attention: Attention) -> Value:
        """Causal attention of each sequence over its own positions; K and V are kept."""
        others = [bool(a.window) for a in self.program.layers]
        a = replace(attention, first=bool(attention.window) not in others)
        wanted = (a.heads * a.k_dims, a.kv_heads * a.k_dims, a.kv_heads * a.v_dims)
        if (q.width, k.width, v.width) != wanted:
            raise BadFile(f"Q, K and V are {q.width, k.width, v.width} wide, not {wanted}.")
        return self._add("attend", (q, k, v), a.heads * a.v_dims, attention=a)

    def gate(self, gate: Value, up: Value, activation: Activation) -> Value:
        """activation(gate) * up."""
        if gate.width != up.width:
            raise BadFile(f"A gate of {gate.width} cannot hold {up.width} values.")
        return self._add("gate", (gate, up), up.width, activation=activation)

    def add(self, x: Value, y: Value) -> Value:
        """x + y."""
        if x.width != y.width:
            raise BadFile(f"Rows of {x.width} and of {y.width} cannot be added.")
        return self._add("add", (x, y), x.width)

    def logits(self, x: Value, name: str, softcap: float = 0.0) -> Value:
        """The product with the vocabulary, for the rows that are wanted."""
        value = self.linear(x, name)
        self.program.ops[-1] = Op("logits", (x.op,), value.width, weight=name, scale=softcap)
        return value

    def _add(self, kind: str, inputs: tuple[Value, ...], width: int, **settings) -> Value:
        places = tuple(value.op for value in inputs)
        self.program.ops.append(Op(kind, places, width, **settings))
        return Value(len(self.program.ops) - 1, width)

    def _matrix(self, name: str) -> tuple[int, int]:
        shape = self._shape(name)
        if len(shape) != 2:
            raise BadFile(f"{name}.weight should be a matrix, not {shape}.")
        return shape[0], shape[1]

    def _vector(self, name: str, width: int) -> None:
        if self._shape(name) != (width,):
            raise BadFile(f"{name}.weight should be of {width} numbers, not {self._shape(name)}.")

    def _shape(self, name: str) -> tuple[int, ...]:
        if not self.has(name):
            raise BadFile(f"The file lacks the tensor {name}.weight.")
        return self.shapes[f"{name}.weight"]
