"""Llama (also Mistral, SmolLM2, TinyLlama): RMS norms, grouped heads, RoPE on neighbours."""

from localllm.gguf import GGUF
from localllm.models.rope import rope_of
from localllm.models.spec import Spec
from localllm.program import Attention, Recorder, Rope


def record(m: Recorder, gguf: GGUF) -> None:
    """Write the model down."""
    decoder(m, gguf, rope_of(gguf, Spec.of(gguf), "neighbours"))


def decoder(m: Recorder, gguf: GGUF, rope: Rope) -> None:
    """The decoder that many families share; they differ in their RoPE and in the tensors there."""
    spec = Spec.of(gguf)
    x = m.embed("token_embd")
    for n in range(spec.layers):
        b = f"blk.{n}."
        h = m.rms_norm(x, b + "attn_norm", spec.epsilon)
        q, k, v = (m.linear(h, b + f"attn_{name}") for name in "qkv")
        q, k = m.rope(q, rope, spec.heads), m.rope(k, rope, spec.kv_heads)
        a = m.attend(q, k, v, attention(spec, n))
        x = m.add(x, m.linear(a, b + "attn_output"))
        h = m.rms_norm(x, b + "ffn_norm", spec.epsilon)
        h = m.gate(m.linear(h, b + "ffn_gate"), m.linear(h, b + "ffn_up"), "silu")
        x = m.add(x, m.linear(h, b + "ffn_down"))
    x = m.rms_norm(x, "output_norm", spec.epsilon)
    m.logits(x, "output" if m.has("output") else "token_embd")


def attention(spec: Spec, layer: int, window: int = 0) -> Attention:
    """A layer's attention over `window` positions, or all."""
    return Attention(
        layer, spec.heads, spec.kv_heads, spec.k_dims, spec.v_dims, spec.scale, window
    )  # fmt: skip
