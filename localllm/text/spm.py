"""SentencePiece vocabularies (`tokenizer.ggml.model` = llama), run by the `sentencepiece` library.

The library wants its own file format, a protobuf message (sentencepiece_model.proto). It is written
here byte by byte: five times as fast as through protobuf classes, and nothing more to install.
"""

import numpy as np
import sentencepiece

from localllm.errors import BadFile
from localllm.text.vocabulary import BYTE, CONTROL, UNKNOWN, UNUSED, USER_DEFINED, Vocabulary

MAX_PIECE = 1 << 13  # UTF-8 bytes
_SPACE = "\u2581"  # what the format writes for a space
_BPE = 2
_BYTE_TEXTS = {f"<0x{byte:02X}>": byte for byte in range(256)}


class SentencePiece:
    """Text to ids of one vocabulary; knows nothing of special tokens."""

    def __init__(self, vocabulary: Vocabulary):
        self.space_prefix = vocabulary.setting("add_space_prefix", True)
        self.add_bos = True
        self.default_tokens = {"bos": 1, "eos": 2, "unknown": 0}
        self._processor = sentencepiece.SentencePieceProcessor()
        try:
            self._processor.LoadFromSerializedProto(_message(vocabulary))
        except RuntimeError as error:
            raise BadFile(f"The file's vocabulary cannot be used: {error}") from error
        self._unknown = self._processor.unk_id()
        self._unknown_text = vocabulary.texts[self._unknown]

    def encode(self, text: str) -> list[int]:
        return self._processor.EncodeAsIds(text)

    def id_of(self, text: str) -> int | None:
        """The id of the token that is spelled so in the file."""
        found = self._processor.PieceToId(text)
        return found if found != self._unknown or text == self._unknown_text else None

    @staticmethod
    def data_of(text: str) -> bytes:
        """The bytes that a normal token stands for."""
        return text.replace(_SPACE, " ").encode("utf-8", "replace")


def _message(vocabulary: Vocabulary) -> bytes:
    """ModelProto: pieces (1), trainer_spec (2), normalizer_spec (3)."""
    kinds, has_bytes = _piece_kinds(vocabulary)
    scores = vocabulary.array("scores")
    if not isinstance(scores, np.ndarray) or len(scores) < len(vocabulary.texts):
        raise BadFile("The file's tokenizer is SentencePiece, but not every token has a score.")
    trainer = _number(3, _BPE) + _number(35, int(has_bytes))
    # no normalization, no leading space of its own, every space kept, spaces written as U+2581
    normalizer = _bytes(1, b"identity") + _number(3, 0) + _number(4, 0) + _number(5, 1)
    pieces = _pieces(vocabulary.texts, scores[: len(kinds)], kinds)
    return pieces + _bytes(2, trainer) + _bytes(3, normalizer)


def _piece_kinds(vocabulary: Vocabulary) -> tuple[np.ndarray, bool]:
    """The kinds as the library wants them, and whether unknown characters fall back to bytes.

    Control and user-defined tokens are cut out of a text before it comes here, so here they match
    nothing; one token is unknown; byte tokens are either all there or not used.
    """
    kinds, texts = vocabulary.kinds.copy(), vocabulary.texts
    kinds[kinds == USER_DEFINED] = CONTROL
    has_bytes = {texts[i] for i in np.flatnonzero(kinds == BYTE)} == _BYTE_TEXTS.keys()
    if not has_bytes:
        kinds[kinds == BYTE] = UNUSED
    unknown = vocabulary.token("unknown", 0)
    if kinds[unknown] not in (UNKNOWN, CONTROL) and (kinds == UNKNOWN).any():
        unknown = int(np.flatnonzero(kinds == UNKNOWN)[0])
    kinds[kinds == UNKNOWN] = UNUSED
    kinds[unknown] = UNKNOWN
    return kinds, has_bytes


def _pieces(texts: list[str], scores: np.ndarray, kinds: np.ndarray) -> bytes:
    """SentencePiece messages: piece (1), score (2, f32), type (3); heads are made once a length."""
    tails = np.zeros(len(texts), [("tag", "u1"), ("score", "<f4"), ("type", "u1"), ("kind", "u1")])
    tails["tag"], tails["type"] = 2 << 3 | 5, 3 << 3
    tails["score"], tails["kind"] = scores, kinds
    width, data = tails.dtype.itemsize, tails.tobytes()
    coded = [text.encode("utf-8", "replace") for text in texts]
    longest = max(map(len, coded))
    if longest > MAX_PIECE:
        raise BadFile(f"The file has a token of {longest} bytes; the most may be {MAX_PIECE}.")
    heads = [_head(length, width) for length in range(longest + 1)]
    ends = range(0, len(data), width)
    return b"".join(
        [
            heads[len(text)] + text + data[at : at + width]
            for text, at in zip(coded, ends, strict=True)
        ]
    )


def _head(length: int, tail: int) -> bytes:
    inner = _tag(1, 2) + _varint(length)
    return _tag(1, 2) + _varint(len(inner) + length + tail) + inner


def _tag(field: int, wire: int) -> bytes:
    return _varint(field << 3 | wire)


def _number(field: int, value: int) -> bytes:
    return _tag(field, 0) + _varint(value)


def _bytes(field: int, value: bytes) -> bytes:
    return _tag(field, 2) + _varint(len(value)) + value


def _varint(value: int) -> bytes:
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*out, value])


def byte_of(text: str) -> bytes:
    """The byte of a byte token such as <0x0A>; nothing where it is not one."""
    return bytes([_BYTE_TEXTS[text]]) if text in _BYTE_TEXTS else b""
