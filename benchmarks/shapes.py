"""GGUF files of real models' shapes with random weights: as large as they, and no download."""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import gguf
import numpy as np

from quant.types import by_name

SCALES = {"Q4_0": (0,), "Q5_0": (0,), "Q8_0": (0,), "Q6_K": (208,)}  # f16 scales; others 0 and 2
SPREAD = {  # standard deviation of a weight whose bytes are random and whose scales are 1
    "Q4_0": 4.6, "Q4_1": 4.6, "Q5_0": 9.2, "Q5_1": 9.2, "Q8_0": 74.0, "Q4_K": 250.0,
    "Q5_K": 520.0, "Q6_K": 1370.0,
}  # fmt: skip
MEAN = {"Q4_1": -7.5, "Q5_1": -15.5, "Q4_K": 7.5, "Q5_K": 15.5}  # the second scale over the first
PIECE = 1 << 16  # blocks that are different; a larger matrix repeats them


@dataclass(frozen=True)
class Shape:
    """The numbers of a model. kinds: the block format of each matrix; "*" of all others.

    better: of every second layer's V and down projections, as llama.cpp's Q4_K_M has them.
    """

    name: str
    architecture: str
    layers: int
    width: int
    heads: int
    kv_heads: int
    head_width: int
    feed_forward: int
    vocab: int
    kinds: dict[str, str]
    better: dict[str, str]
    head: str = ""  # the output matrix's format; without one it is the embedding
    context: int = 8192


SHAPES = [
    Shape("smollm2", "llama", 30, 576, 9, 3, 64, 1536, 49152, {"token_embd": "Q8_0", "*": "Q4_1"},
          {}),
    Shape("gemma3:270m", "gemma3", 18, 640, 4, 1, 256, 2048, 262144,
          {"token_embd": "Q8_0", "attn_output": "Q4_K", "ffn_down": "Q4_K", "*": "Q5_0"},
          {"attn_v": "Q8_0", "ffn_down": "Q6_K"}),
    Shape("qwen2.5-coder:0.5b", "qwen2", 24, 896, 14, 2, 64, 4864, 151936,
          {"ffn_down": "Q4_K", "*": "Q5_0"}, {"attn_v": "Q8_0", "ffn_down": "Q6_K"}, "Q8_0"),
    Shape("qwen2.5-coder:1.5b", "qwen2", 28, 1536, 12, 2, 128, 8960, 151936, {"*": "Q4_K"},
          {"attn_v": "Q6_K", "ffn_down": "Q6_K"}, "Q6_K"),
    Shape("llama-3.1:8b", "llama", 32, 4096, 32, 8, 128, 14336, 128256, {"*": "Q4_K"},
          {"attn_v": "Q6_K", "ffn_down": "Q6_K"}, "Q6_K"),
]  # fmt: skip


def write(shape: Shape, path: Path) -> Path:
    """Write the file of a shape."""
    writer = gguf.GGUFWriter(path, shape.architecture)
    writer.add_context_length(shape.context)
    writer.add_embedding_length(shape.width)
    writer.add_block_count(shape.layers)
    writer.add_feed_forward_length(shape.feed_forward)
    writer.add_head_count(shape.heads)
    writer.add_head_count_kv(shape.kv_heads)
    writer.add_key_length(shape.head_width)
    writer.add_value_length(shape.head_width)
    writer.add_rope_dimension_count(shape.head_width)
    writer.add_rope_freq_base(1e6)
    writer.add_layer_norm_rms_eps(1e-6)
    if shape.architecture == "gemma3":
        writer.add_sliding_window(512)
    random = np.random.default_rng(0)
    for name, size, kind in _tensors(shape):
        if kind == "F32":
            centre = 1.0 if name.endswith("norm.weight") else 0.0
            writer.add_tensor(name, (centre + 0.1 * random.normal(size=size)).astype(np.float32))
        else:
            blocks = _blocks(kind, size, random)
            writer.add_tensor(name, blocks, raw_dtype=gguf.GGMLQuantizationType[kind])
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def _tensors(s: Shape) -> Iterator[tuple[str, tuple[int, ...], str]]:
    """Name, (rows, columns) or (columns,), and block format."""
    q, kv = s.heads * s.head_width, s.kv_heads * s.head_width
    matrices = {
        "attn_q": (q, s.width), "attn_k": (kv, s.width), "attn_v": (kv, s.width),
        "attn_output": (s.width, q), "ffn_gate": (s.feed_forward, s.width),
        "ffn_up": (s.feed_forward, s.width), "ffn_down": (s.width, s.feed_forward),
    }  # fmt: skip
    vectors = {"attn_norm.weight": s.width, "ffn_norm.weight": s.width}
    if s.architecture == "qwen2":
        vectors |= {"attn_q.bias": q, "attn_k.bias": kv, "attn_v.bias": kv}
    if s.architecture == "gemma3":
        vectors |= dict.fromkeys(("attn_q_norm.weight", "attn_k_norm.weight"), s.head_width)
        vectors |= dict.fromkeys(("post_attention_norm.weight", "post_ffw_norm.weight"), s.width)
    yield "token_embd.weight", (s.vocab, s.width), s.kinds.get("token_embd", s.kinds["*"])
    yield "output_norm.weight", (s.width,), "F32"
    if s.head:
        yield "output.weight", (s.vocab, s.width), s.head
    for layer in range(s.layers):
        for name, size in matrices.items():
            plain = s.kinds.get(name, s.kinds["*"])
            kind = s.better.get(name, plain) if layer % 2 == 0 else plain
            yield f"blk.{layer}.{name}.weight", size, kind
        for name, count in vectors.items():
            yield f"blk.{layer}.{name}", (count,), "F32"


def _blocks(kind: str, size: tuple[int, ...], random: np.random.Generator) -> np.ndarray:
    """(rows, bytes a row) u8: random bytes whose weights keep the size of what they multiply."""
    rows, columns = size
    block = by_name(kind)
    blocks = random.integers(0, 256, (min(PIECE, rows * columns // block.weights), block.bytes))
    blocks = blocks.astype(np.uint8)
    scale = np.float16(1 / (SPREAD[kind] * math.sqrt(columns)))
    for at, factor in zip(SCALES.get(kind, (0, 2)), (1.0, MEAN.get(kind, 0.0)), strict=False):
        blocks[:, at : at + 2] = np.array([scale * np.float16(factor)]).view(np.uint8)
    return np.resize(blocks, (rows, columns // block.weights * block.bytes))
