"""What a GGUF file says of the model in it, as plain data for people and programs."""

from collections import Counter
from math import prod
from typing import Any

from localllm.gguf import GGUF

# general.file_type, llama.cpp's enum llama_ftype
FILE_TYPES = {
    0: "F32",
    1: "F16",
    2: "Q4_0",
    3: "Q4_1",
    7: "Q8_0",
    8: "Q5_0",
    9: "Q5_1",
    10: "Q2_K",
    11: "Q3_K_S",
    12: "Q3_K_M",
    13: "Q3_K_L",
    14: "Q4_K_S",
    15: "Q4_K_M",
    16: "Q5_K_S",
    17: "Q5_K_M",
    18: "Q6_K",
    19: "IQ2_XXS",
    20: "IQ2_XS",
    21: "Q2_K_S",
    22: "IQ3_XS",
    23: "IQ3_XXS",
    24: "IQ1_S",
    25: "IQ4_NL",
    26: "IQ3_S",
    27: "IQ3_M",
    28: "IQ2_S",
    29: "IQ2_M",
    30: "IQ4_XS",
    31: "IQ1_M",
    32: "BF16",
    36: "TQ1_0",
    37: "TQ2_0",
    38: "MXFP4_MOE",
    39: "NVFP4",
    40: "Q1_0",
}
_FIM = ("tokenizer.ggml.fim_pre_token_id", "tokenizer.ggml.prefix_token_id")
_FIM_TOKENS = {"<|fim_prefix|>", "<fim_prefix>", "<fim-prefix>", "<PRE>", "▁<PRE>"}


def describe(gguf: GGUF) -> dict[str, Any]:
    """Sizes in bytes, lengths in tokens; what the file does not say is None."""
    counts: Counter[str] = Counter()
    weights: Counter[str] = Counter()
    sizes: Counter[str] = Counter()
    for tensor in gguf.tensors.values():
        counts[tensor.type] += 1
        weights[tensor.type] += prod(tensor.shape)
        sizes[tensor.type] += tensor.nbytes
    template = gguf.get("tokenizer.chat_template", str, None)
    return {
        "name": gguf.get("general.name", str, None) or gguf.path.stem,
        "path": str(gguf.path),
        "files": [str(path) for path in gguf.paths],
        "size": gguf.size,
        "architecture": gguf.get("general.architecture", str, None),
        "parameters": sum(weights.values()),
        "context_length": _own(gguf, "context_length"),
        "embedding_length": _own(gguf, "embedding_length"),
        "layers": _own(gguf, "block_count"),
        "experts": _own(gguf, "expert_count") or 0,
        "vocabulary": _vocabulary(gguf),
        "quantization": quantization(gguf, weights),
        "license": gguf.get("general.license", str, None),
        "tensors": {
            kind: {"count": counts[kind], "parameters": weights[kind], "size": sizes[kind]}
            for kind in sorted(sizes, key=lambda kind: -sizes[kind])
        },
        "template": template,
        "capabilities": capabilities(gguf, template),
    }


def quantization(gguf: GGUF, weights: Counter[str]) -> str | None:
    """The name of the file's mix of block formats, else of the format that most weights have."""
    number = gguf.get("general.file_type", int, -1)
    if number in FILE_TYPES:
        return FILE_TYPES[number]
    return weights.most_common(1)[0][0] if weights else None


def capabilities(gguf: GGUF, template: str | None) -> list[str]:
    """Of "chat", "tools" and "fim": what the file's template and vocabulary provide for."""
    found = ["chat"] if template else []
    if template and "tools" in template:
        found.append("tools")
    if any(key in gguf.metadata for key in _FIM) or _has_fim_tokens(gguf):
        found.append("fim")
    return found


def _has_fim_tokens(gguf: GGUF) -> bool:
    tokens = gguf.get("tokenizer.ggml.tokens", list, [])
    return not _FIM_TOKENS.isdisjoint(tokens)


def _own(gguf: GGUF, key: str) -> int | None:
    if "general.architecture" not in gguf.metadata:
        return None
    value = gguf.metadata.get(f"{gguf.architecture}.{key}")
    return value if isinstance(value, int) else None


def _vocabulary(gguf: GGUF) -> int | None:
    key = "tokenizer.ggml.tokens"
    return gguf.metadata.count(key) if key in gguf.metadata else None
