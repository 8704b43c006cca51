"""A model's vocabulary as its file tells it: the texts and kinds of its tokens, checked."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from localllm.errors import BadFile, Unsupported

NORMAL, UNKNOWN, CONTROL, USER_DEFINED, UNUSED, BYTE = 1, 2, 3, 4, 5, 6  # tokenizer.ggml.token_type
MAX_TOKENS = 1 << 22
_KEY = "tokenizer.ggml."


@dataclass(frozen=True)
class Vocabulary:
    """`texts[id]` as the file spells them; `kinds` (V,) of the constants above."""

    model: str  # tokenizer.ggml.model: gpt2, llama, bert
    texts: list[str]
    kinds: np.ndarray  # uint8
    metadata: Mapping[str, Any]

    @classmethod
    def from_metadata(cls, metadata: Mapping[str, Any]) -> "Vocabulary":
        """Raises Unsupported where the file has no tokens, BadFile where its lists do not fit."""
        model, texts = metadata.get(_KEY + "model"), metadata.get(_KEY + "tokens")
        if not isinstance(model, str) or not isinstance(texts, list) or not texts:
            raise Unsupported(
                "This model file has no tokenizer: it knows ids, but not what they mean as text.",
                hint="Work with token ids, or get a file of the model with its vocabulary.",
            )
        if len(texts) > MAX_TOKENS:
            raise BadFile(f"The file claims {len(texts)} tokens; the most may be {MAX_TOKENS}.")
        if "" in texts:
            texts = [text or f"[EMPTY_{i}]" for i, text in enumerate(texts)]
        kinds = metadata.get(_KEY + "token_type")
        if kinds is None:
            kinds = np.full(len(texts), NORMAL, np.int32)
        if not isinstance(kinds, np.ndarray) or len(kinds) < len(texts):
            raise BadFile(f"The file has {len(texts)} tokens, but not a token type for each.")
        kinds = np.where((kinds >= NORMAL) & (kinds <= BYTE), kinds, NORMAL).astype(np.uint8)
        return cls(model, texts, kinds[: len(texts)], metadata)

    def setting(self, name: str, default: Any) -> Any:
        """The flag or name at `tokenizer.ggml.<name>`; its type is that of `default`."""
        value = self.metadata.get(_KEY + name, default)
        if default is not None and not isinstance(value, type(default)):
            raise BadFile(f"{_KEY}{name} is {type(value).__name__}, not {type(default).__name__}.")
        return value

    def token(self, name: str, default: int | None = None) -> int | None:
        """The id at `tokenizer.ggml.<name>_token_id`; None where the vocabulary has none."""
        value = self.metadata.get(f"{_KEY}{name}_token_id", default)
        if isinstance(value, int | np.integer) and 0 <= value < len(self.texts):
            return int(value)
        return default if default is not None and default < len(self.texts) else None

    def array(self, name: str) -> Any:
        """The list or array at `tokenizer.ggml.<name>`, or None."""
        return self.metadata.get(_KEY + name)

    def of_kind(self, *kinds: int) -> Iterator[tuple[int, str]]:
        """Ids and texts of the tokens of these kinds, ascending."""
        for i in np.flatnonzero(np.isin(self.kinds, kinds)).tolist():
            yield i, self.texts[i]
