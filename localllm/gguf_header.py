"""Reads the header of one GGUF file: every number is checked before anything is built on it.

Format: https://github.com/ggml-org/ggml/blob/master/docs/gguf.md (versions 2 and 3).
All sizes are Python integers, so no product or sum can wrap. Arrays are walked or measured here,
but their contents stay in the file until somebody asks for them.
"""

import struct
from dataclasses import dataclass
from math import prod
from typing import NamedTuple

from localllm.errors import BadFile, Unsupported
from quant.types import GGML_TYPES

MAX_KEYS = 1 << 16
MAX_TENSORS = 1 << 17
MAX_NAME = 64  # bytes of a tensor name, as the format says
MAX_KEY = 1 << 16  # bytes of a key, as the format says
MAX_STRING = 1 << 24  # bytes
MAX_STRINGS = 1 << 21  # strings in all arrays together; the largest vocabularies have 2**18
MAX_ALIGNMENT = 1 << 16
MAX_DIMS = 4

STRING, ARRAY, BOOL = 8, 9, 7
# value type -> struct and numpy code of one element, bytes
SCALARS = {
    0: ("B", 1),
    1: ("b", 1),
    2: ("H", 2),
    3: ("h", 2),
    4: ("I", 4),
    5: ("i", 4),
    6: ("f", 4),
    7: ("?", 1),
    10: ("Q", 8),
    11: ("q", 8),
    12: ("d", 8),
}
_U32, _U64 = struct.Struct("<I"), struct.Struct("<Q")


class TensorInfo(NamedTuple):
    """One tensor: `shape` in numpy order (columns last), `offset` of its `nbytes` in the file."""

    name: str
    type: str
    shape: tuple[int, ...]
    offset: int
    nbytes: int


class Span(NamedTuple):
    """An array that stays in the file: `length` elements of type `kind`, bytes start to end."""

    kind: int
    start: int
    end: int
    length: int


@dataclass(frozen=True)
class Header:
    """What a file says of itself; values of `metadata` are scalars, strings or Spans."""

    version: int
    metadata: dict[str, object]
    tensors: dict[str, TensorInfo]
    data: int


def parse(buffer: memoryview) -> Header:
    """The header of the GGUF file that `buffer` maps; raises BadFile or Unsupported."""
    return _Parser(buffer).header()


class _Parser:
    """One pass from the front to the back of the header."""

    def __init__(self, buffer: memoryview):
        self.buffer, self.size, self.at, self.strings = buffer, len(buffer), 0, 0

    def header(self) -> Header:
        version, tensors, keys = self._preamble()
        metadata: dict[str, object] = {}
        for _ in range(keys):
            key = self._name("key", MAX_KEY)
            if key in metadata:
                raise BadFile(f"The key {key!r} is there twice.")
            metadata[key] = self._value(key)
        alignment = _alignment(metadata)
        records = [self._record() for _ in range(tensors)]
        data = -(-self.at // alignment) * alignment
        found = _place(records, data, alignment, self.size)
        return Header(version, metadata, found, data)

    def _preamble(self) -> tuple[int, int, int]:
        if bytes(self.buffer[:4]) != b"GGUF":
            raise BadFile("This is not a GGUF file.", "localllm runs models in GGUF files.")
        self.at = 4
        version = self._u32("version")
        if version in (2 << 24, 3 << 24):
            raise BadFile("This GGUF file is big-endian; localllm reads little-endian ones.")
        if version not in (2, 3):
            raise BadFile(f"GGUF version {version} is not one of 2 and 3.")
        tensors, keys = self._u64("tensor count"), self._u64("key count")
        if keys > MAX_KEYS or tensors > MAX_TENSORS:
            raise BadFile(f"The header claims {keys} keys and {tensors} tensors, which is absurd.")
        return version, tensors, keys

    def _u32(self, what: str) -> int:
        return _U32.unpack_from(self.buffer, self._take(4, what))[0]

    def _u64(self, what: str) -> int:
        return _U64.unpack_from(self.buffer, self._take(8, what))[0]

    def _take(self, count: int, what: str) -> int:
        """Step over `count` bytes that must be there; where they start."""
        start, self.at = self.at, self.at + count
        if self.at > self.size:
            raise BadFile(f"The file ends within its header, at the {what}: it is truncated.")
        return start

    def _string(self, what: str, longest: int) -> bytes:
        length = self._u64(what)
        if length > longest:
            raise BadFile(f"The {what} claims to be {length} bytes long, which is absurd.")
        start = self._take(length, what)
        return bytes(self.buffer[start : start + length])

    def _name(self, what: str, longest: int) -> str:
        try:
            name = self._string(what, longest).decode("utf-8")
        except UnicodeDecodeError:
            raise BadFile(f"A {what} in the header is not UTF-8 text.") from None
        if not name or "\0" in name:
            raise BadFile(f"A {what} in the header is empty or holds a zero byte.")
        return name

    def _value(self, key: str) -> object:
        kind = self._u32(f"type of {key!r}")
        if kind == STRING:
            return self._string(f"value of {key!r}", MAX_STRING).decode("utf-8", "replace")
        if kind == ARRAY:
            return self._array(key)
        code, width = _scalar(kind, key)
        start = self._take(width, f"value of {key!r}")
        if kind == BOOL and self.buffer[start] > 1:
            raise BadFile(f"{key!r} is neither true nor false.")
        return struct.unpack_from("<" + code, self.buffer, start)[0]

    def _array(self, key: str) -> Span:
        kind, count = self._u32(f"type of {key!r}"), self._u64(f"length of {key!r}")
        if kind == ARRAY:
            raise BadFile(f"{key!r} is an array of arrays, which no model needs.")
        start = self.at
        if kind == STRING:
            self._skip_strings(key, count)
        else:
            self._take(_scalar(kind, key)[1] * count, f"array {key!r}")
        return Span(kind, start, self.at, count)

    def _skip_strings(self, key: str, count: int) -> None:
        self.strings += count
        if self.strings > MAX_STRINGS or count > (self.size - self.at) // 8:
            raise BadFile(f"{key!r} claims {count} strings, more than the file can hold.")
        unpack, buffer, at, size = _U64.unpack_from, self.buffer, self.at, self.size
        last = size - 8
        for _ in range(count):
            if at > last:
                break
            at += 8 + unpack(buffer, at)[0]
        else:
            if at <= size:
                self.at = at
                return
        raise BadFile(f"The file ends within the strings of {key!r}: it is truncated or damaged.")

    def _record(self) -> tuple[str, str, tuple[int, ...], int, int]:
        """(name, type, shape, offset within the data, bytes) of the next tensor."""
        name = self._name("tensor name", MAX_NAME)
        dims = self._u32(f"rank of {name!r}")
        if not 1 <= dims <= MAX_DIMS:
            raise BadFile(f"Tensor {name!r} claims {dims} dimensions; 1 to {MAX_DIMS} are allowed.")
        shape = tuple(self._u64(f"shape of {name!r}") for _ in range(dims))[::-1]
        number, offset = self._u32(f"type of {name!r}"), self._u64(f"offset of {name!r}")
        kind = GGML_TYPES.get(number)
        if kind is None:
            raise Unsupported(f"Tensor {name!r} has the unknown block format number {number}.")
        if 0 in shape or shape[-1] % kind.weights:
            raise BadFile(f"Tensor {name!r} has the shape {shape}, impossible for {kind.name}.")
        return name, kind.name, shape, offset, prod(shape) // kind.weights * kind.bytes


def _scalar(kind: int, key: str) -> tuple[str, int]:
    if kind not in SCALARS:
        raise BadFile(f"{key!r} has the unknown value type {kind}.")
    return SCALARS[kind]


def _alignment(metadata: dict[str, object]) -> int:
    value = metadata.get("general.alignment", 32)
    if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= MAX_ALIGNMENT:
        raise BadFile(f"The alignment {value!r} is not a number from 1 to {MAX_ALIGNMENT}.")
    if value & (value - 1):
        raise BadFile(f"The alignment {value} is not a power of two.")
    return value


def _place(records: list, data: int, alignment: int, size: int) -> dict[str, TensorInfo]:
    """The tensors by name, once each lies alone, aligned and whole within `size` bytes."""
    tensors: dict[str, TensorInfo] = {}
    for name, kind, shape, offset, nbytes in records:
        if name in tensors:
            raise BadFile(f"Tensor {name!r} is there twice.")
        if offset % alignment:
            raise BadFile(f"Tensor {name!r} does not start at a multiple of {alignment} bytes.")
        if data + offset + nbytes > size:
            raise BadFile(
                f"Tensor {name!r} ends at byte {data + offset + nbytes}, the file at {size}: "
                "it is truncated or damaged.",
                "Download it again.",
            )
        tensors[name] = TensorInfo(name, kind, shape, data + offset, nbytes)
    end = data
    for tensor in sorted(tensors.values(), key=lambda tensor: tensor.offset):
        if tensor.offset < end:
            raise BadFile(f"Tensor {tensor.name!r} overlaps another one.")
        end = tensor.offset + tensor.nbytes
    return tensors
