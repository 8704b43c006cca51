"""WordPiece vocabularies (`tokenizer.ggml.model` = bert), as llama.cpp reads them."""

import unicodedata

from localllm.text.vocabulary import Vocabulary

_WORD_START = "\u2581"  # the file writes word starts with this and continuations bare
_CJK = (  # the blocks that BERT cuts into single characters
    (0x4E00, 0x9FFF),
    (0x3400, 0x4DBF),
    (0x20000, 0x2A6DF),
    (0x2A700, 0x2B73F),
    (0x2B740, 0x2B81F),
    (0x2B920, 0x2CEAF),
    (0xF900, 0xFAFF),
    (0x2F800, 0x2FA1F),
)


class WordPiece:
    """Text to ids of one vocabulary: the longest piece first, word by word."""

    space_prefix = False
    add_bos = True

    def __init__(self, vocabulary: Vocabulary):
        self.default_tokens = {"bos": 101, "unknown": 100, "seperator": 102, "padding": 0}
        self._ids = {text: i for i, text in enumerate(vocabulary.texts)}
        self._longest = max(map(len, vocabulary.texts))
        self._unknown = vocabulary.token("unknown", 100)
        self._lower = vocabulary.setting("normalizer.lowercase", True)
        self._strip = vocabulary.setting("normalizer.strip_accents", self._lower)

    def encode(self, text: str) -> list[int]:
        return [i for word in self._words(text) for i in self._pieces(_WORD_START + word)]

    def id_of(self, text: str) -> int | None:
        """The id of the token that is spelled so in the file."""
        return self._ids.get(text)

    @staticmethod
    def data_of(text: str) -> bytes:
        """The bytes that a normal token stands for."""
        return text.replace(_WORD_START, " ").encode("utf-8", "replace")

    def _words(self, text: str) -> list[str]:
        words = [""]
        for letter in unicodedata.normalize("NFD", text) if self._strip else text:
            kind = unicodedata.category(letter)
            if letter.isspace():
                words.append("")
            elif letter in "\0\ufffd" or kind.startswith("C") or (self._strip and kind == "Mn"):
                continue
            elif _stands_alone(letter, kind):
                words += [self._cased(letter), ""]
            else:
                words[-1] += self._cased(letter)
        return [word for word in words if word]

    def _cased(self, letter: str) -> str:
        return letter.lower() if self._lower else letter

    def _pieces(self, word: str) -> list[int]:
        found, at = [], 0
        while at < len(word):
            for end in range(min(len(word), at + self._longest), at, -1):
                if (i := self._ids.get(word[at:end])) is not None:
                    break
            else:
                return [self._unknown] if self._unknown is not None else []
            found.append(i)
            at = end
        return found


def _stands_alone(letter: str, kind: str) -> bool:
    code = ord(letter)
    if kind.startswith("P") or (code < 0x7F and kind.startswith("S")):
        return True
    return code > 0x2E7F and any(low <= code <= high for low, high in _CJK)
