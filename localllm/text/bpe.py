"""Byte-level BPE vocabularies (`tokenizer.ggml.model` = gpt2), run by the `tokenizers` library."""

import gc
from collections.abc import Iterator
from contextlib import contextmanager

from tokenizers import Regex, Tokenizer, models, pre_tokenizers

from localllm.errors import BadFile
from localllm.text.split import Split, split_of
from localllm.text.vocabulary import Vocabulary


def _byte_letters() -> dict[str, int]:
    """The letter that GPT-2 writes for each byte: itself where it can be seen, else 256 and up."""
    seen = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    hidden = [byte for byte in range(256) if byte not in seen]
    return {chr(byte): byte for byte in seen} | {chr(256 + i): b for i, b in enumerate(hidden)}


_BYTE_OF = _byte_letters()


class ByteLevelBPE:
    """Text to ids of one vocabulary; knows nothing of special tokens."""

    space_prefix = False

    def __init__(self, vocabulary: Vocabulary):
        split = split_of(vocabulary.setting("pre", None))
        merges = vocabulary.array("merges")
        if not isinstance(merges, list):
            raise BadFile("The file's tokenizer is byte-level BPE, but it has no merges.")
        self.add_bos = split.add_bos
        self.default_tokens: dict[str, int] = {}
        self._tokenizer = Tokenizer(_model(vocabulary.texts, merges, split.whole_words))
        self._tokenizer.pre_tokenizer = _words(split)

    def encode(self, text: str) -> list[int]:
        return self._tokenizer.encode(text, add_special_tokens=False).ids

    def id_of(self, text: str) -> int | None:
        """The id of the token that is spelled so in the file."""
        return self._tokenizer.token_to_id(text)

    @staticmethod
    def data_of(text: str) -> bytes:
        """The bytes that a normal token stands for."""
        try:
            return bytes([_BYTE_OF[letter] for letter in text])
        except KeyError:  # a token that was added as plain text
            return text.encode("utf-8", "replace")


def _words(split: Split) -> pre_tokenizers.PreTokenizer:
    cuts = [pre_tokenizers.Split(Regex(each), "isolated") for each in split.patterns]
    letters = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    return pre_tokenizers.Sequence([*cuts, letters])


def _model(texts: list[str], merges: list[str], whole_words: bool) -> models.BPE:
    with _no_collection():
        ids = {text: i for i, text in enumerate(texts)}
        pairs = _pairs(merges)
        try:
            return models.BPE(ids, pairs, ignore_merges=whole_words)
        except Exception:  # the library has no class of its own; a merge names an unknown token
            known = [(a, b) for a, b in pairs if a in ids and b in ids and a + b in ids]
        try:
            return models.BPE(ids, known, ignore_merges=whole_words)
        except Exception as error:
            raise BadFile(f"The file's tokenizer cannot be built: {error}") from error


def _pairs(merges: list[str]) -> list[tuple[str, str]]:
    """'a b' to ('a', 'b'), all at once: four times as fast as one after the other."""
    flat = iter(" ".join(merges).split(" "))
    pairs = list(zip(flat, flat, strict=False))
    if len(pairs) != len(merges) or next(flat, None) is not None:
        raise BadFile("The file's merges are not pairs of tokens.")
    return pairs


@contextmanager
def _no_collection() -> Iterator[None]:
    """Hundreds of thousands of tuples are made here, none of them garbage."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()
