"""Writes small random GGUF files of the architectures we run, text and all, in milliseconds."""

from dataclasses import dataclass, field
from pathlib import Path

import gguf
import numpy as np
from gguf.constants import GGML_QUANT_SIZES, GGMLQuantizationType

SCALES = {"Q4_K": 2, "Q5_K": 2, "Q6_K": 1}  # f16 scales of a block: at its start, Q6_K's at its end
TEMPLATE = (
    "{% for message in messages %}<|im_start|>{{ message.role }}\n{{ message.content }}<|im_end|>\n"
    "{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
SPECIAL = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]


@dataclass(frozen=True)
class Tiny:
    """The numbers of a tiny model; `type` is the block format of its matrices."""

    architecture: str = "llama"
    type: str = "Q8_0"
    layers: int = 2
    width: int = 64
    heads: int = 4
    kv_heads: int = 2
    head_width: int = 16
    feed_forward: int = 96
    vocab: int = 320
    context: int = 256
    text: bool = True  # a byte-level vocabulary and a ChatML template
    template: bool = True
    seed: int = 0
    metadata: dict[str, object] = field(default_factory=dict)  # further keys, architecture added


def write(path: Path, tiny: Tiny | None = None, **numbers) -> Path:
    """Write the file that `tiny`, or Tiny(**numbers), describes."""
    tiny = tiny or Tiny(**numbers)
    writer = gguf.GGUFWriter(path, tiny.architecture)
    _numbers(writer, tiny)
    if tiny.text:
        _text(writer, tiny)
    random = np.random.default_rng(tiny.seed)
    for name, shape in _tensors(tiny).items():
        _tensor(writer, name, shape, tiny.type, random)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def _numbers(writer: gguf.GGUFWriter, tiny: Tiny) -> None:
    writer.add_name(f"tiny {tiny.architecture}")
    writer.add_context_length(tiny.context)
    writer.add_embedding_length(tiny.width)
    writer.add_block_count(tiny.layers)
    writer.add_feed_forward_length(tiny.feed_forward)
    writer.add_head_count(tiny.heads)
    writer.add_head_count_kv(tiny.kv_heads)
    writer.add_key_length(tiny.head_width)
    writer.add_value_length(tiny.head_width)
    writer.add_rope_dimension_count(tiny.head_width)
    writer.add_rope_freq_base(10000.0)
    writer.add_layer_norm_rms_eps(1e-6)
    writer.add_vocab_size(tiny.vocab)
    if tiny.architecture == "gemma3":
        writer.add_sliding_window(32)
    for key, value in tiny.metadata.items():
        add = writer.add_float32 if isinstance(value, float) else writer.add_uint32
        add(f"{tiny.architecture}.{key}", value)


def _tensors(tiny: Tiny) -> dict[str, tuple[int, ...]]:
    """Name -> (rows, columns) or (columns,), as the architecture's file has them."""
    width, wide = tiny.width, tiny.feed_forward
    queries, keys = tiny.heads * tiny.head_width, tiny.kv_heads * tiny.head_width
    shapes: dict[str, tuple[int, ...]] = {
        "token_embd.weight": (tiny.vocab, width),
        "output_norm.weight": (width,),
    }
    if tiny.architecture != "gemma3":  # there the embedding is the output matrix too
        shapes["output.weight"] = (tiny.vocab, width)
    for layer in range(tiny.layers):
        block = {
            "attn_norm.weight": (width,),
            "attn_q.weight": (queries, width),
            "attn_k.weight": (keys, width),
            "attn_v.weight": (keys, width),
            "attn_output.weight": (width, queries),
            "ffn_norm.weight": (width,),
            "ffn_gate.weight": (wide, width),
            "ffn_up.weight": (wide, width),
            "ffn_down.weight": (width, wide),
        }
        if tiny.architecture == "qwen2":
            block |= {"attn_q.bias": (queries,), "attn_k.bias": (keys,), "attn_v.bias": (keys,)}
        if tiny.architecture in ("gemma3", "qwen3"):
            head = (tiny.head_width,)
            block |= {"attn_q_norm.weight": head, "attn_k_norm.weight": head}
        if tiny.architecture == "gemma3":
            block |= {"post_attention_norm.weight": (width,), "post_ffw_norm.weight": (width,)}
        shapes |= {f"blk.{layer}.{name}": shape for name, shape in block.items()}
    return shapes


def _tensor(writer, name: str, shape: tuple[int, ...], kind: str, random) -> None:
    """Norms near 1, biases near 0, matrices that keep the size of what they multiply."""
    if len(shape) == 1:
        centre = 1.0 if name.endswith("norm.weight") else 0.0
        writer.add_tensor(name, (centre + 0.1 * random.normal(size=shape)).astype(np.float32))
        return
    type_id = GGMLQuantizationType[kind]
    if kind in SCALES:
        writer.add_tensor(name, _blocks(shape, kind, random), raw_dtype=type_id)
        return
    values = (random.normal(size=shape) / np.sqrt(shape[1])).astype(np.float32)
    writer.add_tensor(name, gguf.quants.quantize(values, type_id), raw_dtype=type_id)


def _blocks(shape: tuple[int, ...], kind: str, random) -> np.ndarray:
    """Random blocks of a K-quant, (rows, bytes) uint8, their f16 scales small and positive."""
    weights, size = GGML_QUANT_SIZES[GGMLQuantizationType[kind]]
    blocks = random.integers(0, 256, (shape[0], shape[1] // weights, size), dtype=np.uint8)
    scales = random.uniform(1e-4, 3e-4, (*blocks.shape[:2], SCALES[kind])).astype(np.float16)
    where = slice(size - 2, size) if kind == "Q6_K" else slice(0, 2 * SCALES[kind])
    blocks[:, :, where] = scales.view(np.uint8)
    return blocks.reshape(shape[0], -1)


def _text(writer: gguf.GGUFWriter, tiny: Tiny) -> None:
    """The 256 bytes, a few merges, the ChatML marks, and unused entries up to the vocabulary."""
    letters = _byte_letters()
    merges = ["h e", "l l", "Ġ Ġ"]
    tokens = [*letters, *(merge.replace(" ", "") for merge in merges)]
    kinds = [gguf.TokenType.NORMAL] * len(tokens) + [gguf.TokenType.CONTROL] * len(SPECIAL)
    tokens += SPECIAL
    end = tokens.index("<|im_end|>")
    spare = tiny.vocab - len(tokens)
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("gpt-2")
    writer.add_token_list(tokens + [f"<unused{n}>" for n in range(spare)])
    writer.add_token_types(kinds + [gguf.TokenType.UNUSED] * spare)
    writer.add_token_merges(merges)
    writer.add_bos_token_id(tokens.index("<|im_start|>"))
    writer.add_eos_token_id(end)
    writer.add_add_bos_token(False)
    if tiny.template:
        writer.add_chat_template(TEMPLATE)


def _byte_letters() -> list[str]:
    """The printable letter that stands for each byte in GPT-2's vocabularies, byte 0 first."""
    plain = {*range(33, 127), *range(161, 173), *range(174, 256)}
    others = (byte for byte in range(256) if byte not in plain)
    stand_in = {byte: chr(256 + n) for n, byte in enumerate(others)}
    return [chr(byte) if byte in plain else stand_in[byte] for byte in range(256)]
