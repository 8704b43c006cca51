"""Qwen2 (also Qwen2.5 and its Coder): Llama with biases on q, k and v, and RoPE on halves."""

from localllm.gguf import GGUF
from localllm.models.arch.llama import decoder
from localllm.models.rope import rope_of
from localllm.models.spec import Spec
from localllm.program import Recorder


def record(m: Recorder, gguf: GGUF) -> None:
    """Write the model down."""
    decoder(m, gguf, rope_of(gguf, Spec.of(gguf), "halves"))
