"""Vocabularies for tests: real ones, packed, and small ones made up on the spot."""

import functools
import json
import lzma
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

from localllm.gguf import GGUF
from localllm.text.bpe import _BYTE_OF as BYTE_OF

FOLDER = Path(__file__).parent / "data" / "tokenizers"
NORMAL, UNKNOWN, CONTROL, USER_DEFINED = 1, 2, 3, 4


@functools.cache
def real(name: str) -> dict[str, Any]:
    """The metadata of a vocabulary of the data folder."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "vocabulary.gguf"
        path.write_bytes(lzma.decompress((FOLDER / f"{name}.gguf.xz").read_bytes()))
        with GGUF.open(path) as gguf:
            values = {key: gguf.metadata[key] for key in gguf.metadata}
        arrays = {k: v.copy() for k, v in values.items() if isinstance(v, np.ndarray)}
        return values | arrays


@functools.cache
def read(name: str) -> Any:
    """A JSON file of the data folder."""
    return json.loads((FOLDER / f"{name}.json").read_text("utf-8"))


def letters(special: dict[str, int], merges: tuple[str, ...] = (), **more: Any) -> dict[str, Any]:
    """A byte-level BPE of the 256 bytes, what merges make, and these tokens with their kinds."""
    texts = sorted(BYTE_OF, key=BYTE_OF.__getitem__) + [merge.replace(" ", "") for merge in merges]
    kinds = [NORMAL] * len(texts) + list(special.values())
    metadata = {
        "model": "gpt2",
        "pre": "gpt-2",
        "tokens": texts + list(special),
        "token_type": np.array(kinds, np.int32),
        "merges": list(merges),
    }
    return {f"tokenizer.ggml.{key}": value for key, value in (metadata | more).items()}
