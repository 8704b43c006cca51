"""The numbers of a model, read from the file's metadata once and checked before they are used."""

import math
from dataclasses import dataclass

import numpy as np

from localllm.errors import BadFile, Unsupported
from localllm.gguf import GGUF

MOST_LAYERS, MOST_WIDTH, MOST_DIMS = 1024, 1 << 20, 512


@dataclass(frozen=True, slots=True)
class Spec:
    """What every decoder has. Keys as in llama.cpp's `LLM_KV`, with its defaults."""

    layers: int
    width: int
    context: int  # trained length, tokens
    heads: int
    kv_heads: int
    k_dims: int
    v_dims: int
    rope_dims: int
    epsilon: float
    rope_base: float

    @classmethod
    def of(cls, gguf: GGUF) -> "Spec":
        """Read a file's numbers. Raises BadFile for absurd ones."""
        width, heads = gguf.get(".embedding_length", int), gguf.get(".attention.head_count", int)
        check(1 <= width <= MOST_WIDTH and 1 <= heads <= width, "embedding_length or head_count")
        dims = width // heads
        k_dims = gguf.get(".attention.key_length", int, dims)
        spec = cls(
            layers=gguf.get(".block_count", int),
            width=width,
            context=gguf.get(".context_length", int),
            heads=heads,
            kv_heads=gguf.get(".attention.head_count_kv", int, heads),
            k_dims=k_dims,
            v_dims=gguf.get(".attention.value_length", int, dims),
            rope_dims=gguf.get(".rope.dimension_count", int, k_dims),
            epsilon=gguf.get(".attention.layer_norm_rms_epsilon", float),
            rope_base=gguf.get(".rope.freq_base", float, 10000.0),
        )
        spec._check(gguf)
        return spec

    def _check(self, gguf: GGUF) -> None:
        check(1 <= self.layers <= MOST_LAYERS, "block_count")
        check(1 <= self.context <= 1 << 28, "context_length")
        check(1 <= self.kv_heads <= self.heads, "head_count_kv")
        check(self.heads % self.kv_heads == 0, "head_count_kv")
        check(2 <= self.k_dims <= MOST_DIMS and self.k_dims % 2 == 0, "key_length")
        check(1 <= self.v_dims <= MOST_DIMS, "value_length")
        check(0 <= self.rope_dims <= self.k_dims and self.rope_dims % 2 == 0, "dimension_count")
        check(0 < self.epsilon < 1, "layer_norm_rms_epsilon")
        check(math.isfinite(self.rope_base) and self.rope_base > 0, "rope.freq_base")
        if gguf.get(".expert_count", int, 0):
            raise Unsupported(
                f"{gguf.path.name} is a mixture of experts, which localllm does not run yet.",
                "Pick a dense model of the same family.",
            )

    @property
    def scale(self) -> float:
        """What scores are multiplied by when the file does not say: 1 / sqrt(dims)."""
        return 1 / math.sqrt(self.k_dims)


def check(holds: bool, key: str) -> None:
    """Raise BadFile, naming the key, when its value is absurd."""
    if not holds:
        raise BadFile(f"The file's {key!r} has a value that no model can have.")


def vector(gguf: GGUF, name: str, size: int) -> np.ndarray | None:
    """An F32 tensor of `size` numbers, (size,) f32, or None when the file has none."""
    info = gguf.tensors.get(name)
    if info is None:
        return None
    if info.type != "F32" or math.prod(info.shape) != size:
        raise BadFile(f"{name} should be {size} numbers of F32, not {info.shape} {info.type}.")
    return gguf.blocks(name).reshape(-1).view("<f4")
