"""Gemma 3: sliding windows, norms of heads and after each part, GELU, scaled embeddings."""

import math

import numpy as np

from localllm.gguf import GGUF
from localllm.models.arch.llama import attention
from localllm.models.rope import rope_of
from localllm.models.spec import Spec, check
from localllm.program import Recorder

LOCAL_BASE = 10000.0  # of RoPE in the layers that see a window
PERIOD = 6  # every sixth layer sees everything


def record(m: Recorder, gguf: GGUF) -> None:
    """Write the model down."""
    spec, windows = Spec.of(gguf), windows_of(gguf)
    everywhere = rope_of(gguf, spec, "halves")
    local = gguf.get(".rope.freq_base_swa", float, LOCAL_BASE)
    check(0 < local < math.inf, "rope.freq_base_swa")
    nearby = rope_of(gguf, spec, "halves", local, scaled=False)
    x = m.embed("token_embd", scale=math.sqrt(spec.width))
    for n in range(spec.layers):
        b, rope = f"blk.{n}.", nearby if windows[n] else everywhere
        h = m.rms_norm(x, b + "attn_norm", spec.epsilon)
        q, k, v = (m.linear(h, b + f"attn_{name}") for name in "qkv")
        q = m.head_norm(q, b + "attn_q_norm", spec.heads, spec.epsilon)
        k = m.head_norm(k, b + "attn_k_norm", spec.kv_heads, spec.epsilon)
        q, k = m.rope(q, rope, spec.heads), m.rope(k, rope, spec.kv_heads)
        a = m.linear(m.attend(q, k, v, attention(spec, n, windows[n])), b + "attn_output")
        x = m.add(x, m.rms_norm(a, b + "post_attention_norm", spec.epsilon))
        h = m.rms_norm(x, b + "ffn_norm", spec.epsilon)
        h = m.gate(m.linear(h, b + "ffn_gate"), m.linear(h, b + "ffn_up"), "gelu")
        h = m.linear(h, b + "ffn_down")
        x = m.add(x, m.rms_norm(h, b + "post_ffw_norm", spec.epsilon))
    x = m.rms_norm(x, "output_norm", spec.epsilon)
    cap = gguf.get(".final_logit_softcapping", float, 0.0)
    check(0 <= cap < math.inf, "final_logit_softcapping")
    m.logits(x, "output" if m.has("output") else "token_embd", cap)


def windows_of(gguf: GGUF) -> list[int]:
    """How many positions each layer sees, 0 for all: from a period, or a flag for each layer."""
    layers, window = gguf.get(".block_count", int), gguf.get(".attention.sliding_window", int)
    check(0 < window < 1 << 28, "attention.sliding_window")
    pattern = gguf.get(".attention.sliding_window_pattern", (int, np.ndarray), PERIOD)
    if isinstance(pattern, int):
        check(pattern > 0, "attention.sliding_window_pattern")
        local = [n % pattern < pattern - 1 for n in range(layers)]
    else:
        check(len(pattern) >= layers, "attention.sliding_window_pattern")
        local = [bool(flag) for flag in pattern[:layers]]
    return [window if here else 0 for here in local]
