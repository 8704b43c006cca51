"""How fast the dims of a head turn: base, linear and YaRN scaling, and a file's own factors.

Source: the formulas of YaRN (arXiv 2309.00071) with the meaning that llama.cpp gives to the keys.
"""

import math
from typing import Literal

import numpy as np

from localllm.errors import Unsupported
from localllm.gguf import GGUF
from localllm.models.spec import Spec, check, vector
from localllm.program import Rope


def rope_of(
    gguf: GGUF, spec: Spec, pairs: Literal["neighbours", "halves"], base: float | None = None,
    scaled: bool = True,
) -> Rope:  # fmt: skip
    """The model's RoPE; `base` instead of the file's, `scaled` False leaves out its scaling."""
    dims = spec.rope_dims
    speeds = (base or spec.rope_base) ** -(np.arange(0, dims, 2) / max(dims, 1))
    factors = vector(gguf, "rope_freqs.weight", dims // 2)
    if factors is not None:
        check(bool((factors > 0).all()), "rope_freqs.weight")
        speeds = speeds / factors
    kind = gguf.get(".rope.scaling.type", str, "none")
    factor = gguf.get(".rope.scaling.factor", float, gguf.get(".rope.scale_linear", float, 1.0))
    check(1e-6 < factor < 1e6, "rope.scaling.factor")
    if not scaled or (factor == 1.0 and kind != "yarn"):
        return Rope(pairs, tuple(speeds))
    if kind in ("none", "linear"):
        return Rope(pairs, tuple(speeds / factor))
    if kind == "yarn":
        return _yarn(gguf, pairs, speeds, dims, base or spec.rope_base, factor)
    raise Unsupported(f"RoPE scaling of type {kind!r} is not known to localllm.")


def _yarn(gguf: GGUF, pairs, speeds, dims: int, base: float, factor: float) -> Rope:
    """Fast dims as they are, slow ones `factor` times slower, a ramp between."""
    original = gguf.get(".rope.scaling.original_context_length", int, 0)
    check(original > 0, "rope.scaling.original_context_length")
    fast = gguf.get(".rope.scaling.yarn_beta_fast", float, 32.0)
    slow = gguf.get(".rope.scaling.yarn_beta_slow", float, 1.0)
    check(fast > 0 and slow > 0, "rope.scaling.yarn_beta")
    check(base > 1, "rope.freq_base")
    strength = gguf.get(".rope.scaling.attn_factor", float, 1.0)
    check(0 < strength < math.inf, "rope.scaling.attn_factor")

    def dim_of(turns: float) -> float:  # the dim that makes so many turns over the context
        return dims * math.log(original / (turns * 2 * math.pi)) / (2 * math.log(base))

    low, high = max(math.floor(dim_of(fast)), 0), min(math.ceil(dim_of(slow)), dims - 1)
    ramp = (np.arange(dims // 2) - low) / max(0.001, high - low)
    keep = 1 - np.clip(ramp, 0, 1)
    mixed = speeds * keep + speeds / factor * (1 - keep)
    return Rope(pairs, tuple(mixed), (1 + 0.1 * math.log(factor)) * strength)
