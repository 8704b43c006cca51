"""Text to token ids and back, for the vocabularies that GGUF files carry."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

from localllm.errors import BadRequest, Unsupported
from localllm.text import markers
from localllm.text.bpe import ByteLevelBPE
from localllm.text.markers import Finder
from localllm.text.spm import SentencePiece, byte_of
from localllm.text.vocabulary import BYTE, CONTROL, NORMAL, UNKNOWN, USER_DEFINED, Vocabulary
from localllm.text.wordpiece import WordPiece

_MODELS: dict[str, Callable[[Vocabulary], Any]] = {
    "gpt2": ByteLevelBPE,
    "llama": SentencePiece,
    "bert": WordPiece,
}
_BEGIN_KEYS = {"bert": "cls"}  # where BOS has another name
_SPACES = " \t\n\v\f\r"


class Part(NamedTuple):
    """A piece of a prompt; only in trusted ones may text become special tokens."""

    text: str
    trusted: bool


@dataclass(frozen=True)
class _Special:
    """Special tokens by text: `guarded` ones need trust, `plain` ones are ordinary text."""

    guarded: dict[str, int]
    plain: dict[str, int]


class Tokenizer:
    """The vocabulary of one model. Safe to use from many threads."""

    def __init__(self, vocabulary: Vocabulary):
        if vocabulary.model not in _MODELS:
            raise Unsupported(
                f"This model's tokenizer is of the kind '{vocabulary.model[:80]}', which localllm"
                " does not run.",
                hint=f"It runs {', '.join(_MODELS)}.",
            )
        self._vocabulary = vocabulary
        self._words = _MODELS[vocabulary.model](vocabulary)
        self._kinds = vocabulary.kinds.tobytes()
        defaults = self._words.default_tokens
        begin = _BEGIN_KEYS.get(vocabulary.model, "bos")
        self.vocab_size = len(vocabulary.texts)
        self.bos = vocabulary.token("bos", vocabulary.token(begin, defaults.get("bos")))
        self.eos = vocabulary.token("eos", defaults.get("eos"))
        self.add_bos = vocabulary.setting("add_bos_token", self._words.add_bos)
        self.add_bos = self.add_bos and self.bos is not None
        self._special = self._sort_special()
        self.special_tokens = {**self._special.plain, **self._special.guarded}
        self.fim = self._fim_tokens()
        self.end_ids = self._end_tokens()
        self._strips = _strips_after(vocabulary.metadata, self.special_tokens)

    @classmethod
    def from_gguf(cls, metadata: Mapping[str, Any]) -> "Tokenizer":
        """Raises Unsupported for an unknown kind or `pre`, or none; BadFile for a damaged one."""
        return cls(Vocabulary.from_metadata(metadata))

    def encode(self, text: str, special: bool = True, bos: bool = False) -> list[int]:
        """Token ids. `special`: texts of control tokens become those tokens; `bos`: BOS first."""
        ids = self.encode_parts([Part(text, special)])
        return [self.bos, *ids] if bos and self.bos is not None else ids

    def encode_parts(self, parts: Sequence[Part]) -> list[int]:
        """Ids of the parts' text as one text; special tokens only where every letter is trusted."""
        parts = [Part(_valid(part.text), part.trusted) for part in parts]
        text = "".join(part.text for part in parts)
        distrusted = _distrusted(parts)
        if distrusted is None:
            found = self._plain_finder.find(text)
        elif not distrusted:
            found = self._finder.find(text)
        else:
            trusted = lambda a, b, i: i not in self._guarded_ids or not any(distrusted[a:b])  # noqa: E731
            found = self._finder.find(text, trusted)
        return self._encode_between(text, found)

    def decode(self, ids: Iterable[int], special: bool = False) -> str:
        """The text of ids; control tokens are shown by their text only with `special`."""
        data = b"".join(self._data(i, special) for i in ids)
        text = data.decode("utf-8", "replace")
        return text[1:] if self._words.space_prefix and text.startswith(" ") else text

    def token_bytes(self, token: int, special: bool = False) -> bytes:
        """What a token adds to an answer: nothing for control tokens, but with `special`."""
        return self._data(token, special)

    def token_text(self, token: int) -> str:
        """How the file spells a token."""
        self._check(token)
        return self._vocabulary.texts[token]

    def guarded_starts(self, text: str) -> list[int]:
        """Where in a text a special token begins that only a chat template may write."""
        return self._guard.starts(text)

    def _encode_between(self, text: str, found: Iterable[tuple[int, int, int]]) -> list[int]:
        ids: list[int] = []
        at, follows = 0, True  # follows: the text comes first, or right after a special token
        for start, end, token in found:
            ids += self._encode_words(text[at:start], follows)
            ids.append(token)
            at, follows = end, True
            while token in self._strips and text[at : at + 1] and text[at] in _SPACES:
                at += 1
        return ids + self._encode_words(text[at:], follows)

    def _encode_words(self, text: str, follows: bool) -> list[int]:
        if not text:
            return []
        return self._words.encode(" " + text if follows and self._words.space_prefix else text)

    def _data(self, token: int, special: bool) -> bytes:
        self._check(token)
        text, kind = self._vocabulary.texts[token], self._kinds[token]
        if token in self._guarded_ids:
            always = text in markers.SYNTAX or (kind == USER_DEFINED and token not in self.end_ids)
            return text.encode("utf-8", "replace") if special or always else b""
        if kind == USER_DEFINED:
            return text.encode("utf-8", "replace")
        if kind == BYTE:
            return byte_of(text)
        return self._words.data_of(text) if kind == NORMAL else b""

    def _check(self, token: int) -> None:
        if not 0 <= token < self.vocab_size:
            last = self.vocab_size - 1
            raise BadRequest(f"There is no token {token}: this model's ids go from 0 to {last}.")

    def _sort_special(self) -> _Special:
        guarded = {text: i for i, text in self._vocabulary.of_kind(CONTROL, UNKNOWN)}
        plain: dict[str, int] = {}
        for i, text in self._vocabulary.of_kind(USER_DEFINED):
            (guarded if markers.is_unmistakable(text) else plain)[text] = i
        for text in filter(markers.is_framed, (*markers.ENDS, *sum(markers.FIM.values(), ()))):
            token = self._words.id_of(text)
            if token is not None:
                guarded[text] = token
        return _Special(guarded, plain)

    def _fim_tokens(self) -> dict[str, int]:
        old = {"pre": "prefix", "suf": "suffix", "mid": "middle"}
        named = {role: self._vocabulary.token(old[role]) for role in old}
        for role in markers.FIM:
            named[role] = self._vocabulary.token(f"fim_{role}", named.get(role))
        known = {role: token for role, token in named.items() if token is not None}
        return markers.fim_tokens(self._words.id_of, known)

    def _end_tokens(self) -> frozenset[int]:
        texts = markers.end_texts(self.special_tokens)
        texts -= {"</s>"} & self._special.plain.keys()  # an HTML tag, as in Gemma
        named = (self._vocabulary.token(name) for name in ("eot", "eom"))
        gaps = (self.fim.get(role) for role in markers.FIM_ENDS)
        ids = {self.special_tokens[text] for text in texts} | {self.eos, *named, *gaps}
        return frozenset(i for i in ids if i is not None)

    @cached_property
    def _guarded_ids(self) -> frozenset[int]:
        return frozenset(self._special.guarded.values())

    @cached_property
    def _finder(self) -> Finder:
        return Finder(self.special_tokens)

    @cached_property
    def _plain_finder(self) -> Finder:
        return Finder(self._special.plain)

    @cached_property
    def _guard(self) -> Finder:
        return Finder(self._special.guarded)


def _valid(text: str) -> str:
    """The text without lone surrogates, which are not characters; pairs of them are joined."""
    if text.isascii():
        return text
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def _distrusted(parts: Sequence[Part]) -> bytes | None:
    """A flag a letter; empty where all are trusted, None where none is."""
    if all(part.trusted for part in parts):
        return b""
    if not any(part.trusted for part in parts):
        return None
    return b"".join(bytes([not part.trusted]) * len(part.text) for part in parts)


def _strips_after(metadata: Mapping[str, Any], special: Mapping[str, int]) -> frozenset[int]:
    """Tokens that swallow the spaces after them: Phi-3's, by the model's name, as in llama.cpp."""
    name = str(metadata.get("general.name", "")).lower()
    if "phi-3" not in name and "phi3" not in name:
        return frozenset()
    keep = ("<unk>", "<s>", "<|endoftext|>")
    return frozenset(i for text, i in special.items() if text not in keep)
