"""Walks a Program in NumPy, one whole sequence at a time: what every backend is held against."""

from collections.abc import Mapping

import gguf
import naive
import numpy as np

from localllm.program import Op, Program

FLOATS = ("F32", "F16", "BF16")
GATES = {"silu": naive.silu, "gelu": naive.gelu}


class Interpreter:
    """Runs a program over a file's tensors in f64.

    rows8: inputs of quantized matrices are rounded to int8 rows first, as a backend may do; without
    it everything is exact.
    """

    def __init__(self, program: Program, file, rows8: bool = True):
        self.program, self.file, self.rows8 = program, file, rows8
        self.known: dict[str, np.ndarray] = {}

    def logits(self, ids) -> np.ndarray:
        """(T,) -> (T, vocab) f64."""
        return self._values(ids)[-1]

    def hidden(self, ids) -> np.ndarray:
        """(T,) -> (T, width) f64, what the logits are made from."""
        return self._values(ids)[self.program.ops[-1].inputs[0]]

    def _values(self, ids) -> list[np.ndarray]:
        self.ids, values = np.asarray(ids), []
        for op in self.program.ops:
            values.append(getattr(self, f"_{op.kind}")(op, *(values[i] for i in op.inputs)))
        return values

    def tensor(self, name: str) -> np.ndarray:
        """A tensor as f64, unpacked by the gguf package."""
        if name not in self.known:
            info, blocks = self.file.tensors[name], self.file.blocks(name)
            kind = gguf.GGMLQuantizationType[info.type]
            values = blocks.view("<f4") if info.type == "F32" else gguf.dequantize(blocks, kind)
            self.known[name] = values.reshape(info.shape).astype("f8")
        return self.known[name]

    def _embed(self, op: Op) -> np.ndarray:
        return self.tensor(f"{op.weight}.weight")[self.ids] * op.scale

    def _rms_norm(self, op: Op, x: np.ndarray) -> np.ndarray:
        return naive.rms_norm(x, self.tensor(f"{op.weight}.weight"), op.epsilon)

    def _head_norm(self, op: Op, x: np.ndarray) -> np.ndarray:
        return self._rms_norm(op, _heads(x, op.heads)).reshape(x.shape)

    def _linear(self, op: Op, x: np.ndarray) -> np.ndarray:
        name = f"{op.weight}.weight"
        integer = self.rows8 and self.file.tensors[name].type not in FLOATS
        y = naive.product(self.tensor(name), naive.rounded(x) if integer else x)
        bias = f"{op.weight}.bias"
        return y + self.tensor(bias) if bias in self.file.tensors else y

    def _rope(self, op: Op, x: np.ndarray) -> np.ndarray:
        turned = naive.rope(_heads(x, op.heads), np.arange(len(x)), op.rope)
        return turned.reshape(x.shape)

    def _attend(self, op: Op, q: np.ndarray, k: np.ndarray, v: np.ndarray) -> np.ndarray:
        a = op.attention
        heads = (_heads(q, a.heads), _heads(k, a.kv_heads), _heads(v, a.kv_heads))
        return naive.attention(*heads, a).reshape(len(q), -1)

    def _gate(self, op: Op, gate: np.ndarray, up: np.ndarray) -> np.ndarray:
        return GATES[op.activation](gate) * up

    def _add(self, op: Op, x: np.ndarray, y: np.ndarray) -> np.ndarray:
        return x + y

    def _logits(self, op: Op, x: np.ndarray) -> np.ndarray:
        y = self._linear(op, x)
        return op.scale * np.tanh(y / op.scale) if op.scale else y


def _heads(x: np.ndarray, heads: int) -> np.ndarray:
    return x.reshape(len(x), heads, -1)


def nmse(got: np.ndarray, want: np.ndarray) -> float:
    """Squared error over squared signal."""
    return float(((got - want) ** 2).sum() / (np.asarray(want, "f8") ** 2).sum())


def log_softmax(x: np.ndarray) -> np.ndarray:
    """(T, vocab) logits -> log-probabilities, f64."""
    x = x.astype("f8") - x.max(-1, keepdims=True)
    return x - np.log(np.exp(x).sum(-1, keepdims=True))


def bucket_kl(logits: np.ndarray, reference: Mapping[str, np.ndarray]) -> np.ndarray:
    """KL(reference || logits) of each token, over the reference's likeliest and one bucket for the
    rest: (T, vocab) -> (T,)."""
    ours = np.take_along_axis(log_softmax(logits), reference["top_ids"].astype(int), 1)
    theirs = reference["top_logprobs"].astype("f8")
    p, q = np.exp(theirs), np.exp(ours)
    p_rest, q_rest = (np.clip(1 - some.sum(1), 1e-12, 1) for some in (p, q))
    return (p * (theirs - ours)).sum(1) + p_rest * np.log(p_rest / q_rest)
