"""A GGUF model as metadata and memory-mapped tensors, whether it is one file or many shards."""

import mmap
import os
import re
import stat
import struct
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from localllm import gguf_header
from localllm.errors import BadFile, NotFound, Unsupported
from localllm.gguf_header import BOOL, SCALARS, STRING, Header, Span, TensorInfo
from quant.types import by_name

__all__ = ["GGUF", "REQUIRED", "Metadata", "TensorInfo", "shards"]

REQUIRED: Any = object()
MAX_SHARDS = 1024
LOOKS, MISSES = 64, 4  # at pages of a file, and how many of those may be on disk alone
_SHARD = re.compile(r"(?P<stem>.+)-(?P<number>\d{5})-of-(?P<count>\d{5})\.gguf", re.ASCII)
_LENGTH = struct.Struct("<Q")


def shards(path: Path) -> list[Path]:
    """All files of the model that `path` belongs to, in order; [path] where it stands alone."""
    match = _SHARD.fullmatch(path.name)
    if match is None:
        return [path]
    count = int(match["count"])
    if not 1 <= int(match["number"]) <= count <= MAX_SHARDS:
        raise BadFile(f"{path.name}: shards are numbered from 1 to their count.")
    names = (f"{match['stem']}-{i:05d}-of-{count:05d}.gguf" for i in range(1, count + 1))
    return [path.with_name(name) for name in names]


class Metadata(Mapping[str, Any]):
    """Metadata by key: scalars as Python values, numeric arrays as read-only views of the file,
    string arrays as lists, decoded when first asked for."""

    def __init__(self, values: dict[str, object], buffer: memoryview):
        self._values, self._buffer = values, buffer

    def __getitem__(self, key: str) -> Any:
        value = self._values[key]
        if isinstance(value, Span):
            value = self._values[key] = self._decode(key, value)
        return value

    def __iter__(self) -> Iterator[str]:
        return iter(self._values)

    def __len__(self) -> int:
        return len(self._values)

    def __contains__(self, key: object) -> bool:
        return key in self._values

    def count(self, key: str) -> int:
        """Elements of the array of that name, without decoding it."""
        value = self._values[key]
        return value.length if isinstance(value, Span) else len(value)  # type: ignore[arg-type]

    def _decode(self, key: str, span: Span) -> Any:
        if span.kind == STRING:
            return list(self._strings(span))
        code, _ = SCALARS[span.kind]
        if span.kind != BOOL:
            return _readonly(np.frombuffer(self._buffer, "<" + code, span.length, span.start))
        bits = np.frombuffer(self._buffer, "u1", span.length, span.start)
        if bits.max(initial=0) > 1:
            raise BadFile(f"{key!r} holds values that are neither true nor false.")
        return _readonly(bits.view("?"))

    def _strings(self, span: Span) -> Iterator[str]:
        data, unpack, at = bytes(self._buffer[span.start : span.end]), _LENGTH.unpack_from, 0
        for _ in range(span.length):
            start = at + 8
            at = start + unpack(data, at)[0]
            yield data[start:at].decode("utf-8", "replace")


class GGUF:
    """An open model: `metadata`, `tensors` by name, their bytes as views of the mapped files."""

    def __init__(self, paths: list[Path], maps: list[mmap.mmap], headers: list[Header]):
        self.path, self.size = paths[0], sum(map(len, maps))
        self.paths = tuple(paths)
        self.tensors: dict[str, TensorInfo] = {}
        self._maps = maps
        self._home: dict[str, int] = {}
        self.metadata = Metadata(headers[0].metadata, memoryview(maps[0]))
        for number, header in enumerate(headers):
            for name, tensor in header.tensors.items():
                if name in self.tensors:
                    raise BadFile(f"Tensor {name!r} is in two of the model's files.")
                self.tensors[name], self._home[name] = tensor, number

    @classmethod
    def open(cls, path: Path) -> "GGUF":
        """Map a model's files and read their headers; any shard stands for all of them.

        Raises NotFound, BadFile or Unsupported, each naming the file.
        """
        paths = shards(Path(path))
        maps: list[mmap.mmap] = []
        headers: list[Header] = []
        try:
            for each in paths:
                maps.append(_map(each))
                with memoryview(maps[-1]) as view:  # let go of it also where it is refused
                    headers.append(_named(each, gguf_header.parse, view))
            _named(paths[0], _check_split, headers)
            return _named(paths[0], cls, paths, maps, headers)
        except BaseException:
            for opened in maps:
                _unmap(opened)
            raise

    @property
    def architecture(self) -> str:
        """The name under which the model's own keys stand."""
        return self.get("general.architecture", str)

    def get(self, key: str, kind: type | tuple[type, ...], default: Any = REQUIRED) -> Any:
        """The value of `key`, checked to be of `kind`; ".x" means "{architecture}.x".

        `kind` is int, float (an int will do), str, bool, list (of strings), np.ndarray, or a tuple
        of these. Raises BadFile where it is missing without a default, or of another kind.
        """
        if key.startswith("."):
            key = self.architecture + key
        if key not in self.metadata:
            if default is REQUIRED:
                raise BadFile(f"{self.path.name} lacks the key {key!r}.")
            return default
        value, kinds = self.metadata[key], kind if isinstance(kind, tuple) else (kind,)
        if type(value) is int and float in kinds and int not in kinds:
            return float(value)
        if not isinstance(value, kinds) or (isinstance(value, bool) and bool not in kinds):
            names = " or ".join(each.__name__ for each in kinds)
            raise BadFile(f"{self.path.name}: {key!r} is {type(value).__name__}, not {names}.")
        return value

    def blocks(self, name: str) -> np.ndarray:
        """(rows, bytes a row) uint8: a read-only view of the mapped file; leading axes are folded.

        Raises BadFile where the model has no such tensor.
        """
        if name not in self.tensors:
            raise BadFile(f"{self.path.name} has no tensor {name!r}.")
        tensor = self.tensors[name]
        kind = by_name(tensor.type)
        row = tensor.shape[-1] // kind.weights * kind.bytes
        data = np.frombuffer(self._maps[self._home[name]], "u1", tensor.nbytes, tensor.offset)
        return _readonly(data.reshape(-1, row))

    def release(self, name: str | None = None) -> None:
        """Tell the system that the pages of a tensor, or of all, are not needed for now.

        A hint to save memory: views stay valid and read the file again when touched.
        """
        if not hasattr(mmap, "MADV_DONTNEED"):
            return
        for each in [name] if name is not None else list(self.tensors):
            tensor, mapped = self.tensors[each], self._maps[self._home[each]]
            start = -(-tensor.offset // mmap.PAGESIZE) * mmap.PAGESIZE
            length = tensor.offset + tensor.nbytes - start
            if length > 0:
                mapped.madvise(mmap.MADV_DONTNEED, start, length)

    def in_memory(self) -> bool:
        """Whether reading the files would wait for a disk hardly ever, by looks here and there."""
        return hasattr(os, "RWF_NOWAIT") and all(map(_at_hand, self.paths))

    def close(self) -> None:
        """Unmap the files; a view that is still held keeps its file mapped until it goes."""
        self.metadata = Metadata({}, memoryview(b""))
        for mapped in self._maps:
            _unmap(mapped)

    def __enter__(self) -> "GGUF":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _readonly(array: np.ndarray) -> np.ndarray:
    array.flags.writeable = False
    return array


def _map(path: Path) -> mmap.mmap:
    try:
        status = path.stat()
        if not stat.S_ISREG(status.st_mode):
            raise NotFound(f"{path} is not a file.", "Name a .gguf file.")
        if status.st_size < 24:
            raise BadFile(f"{path.name} has {status.st_size} bytes, too few for a GGUF file.")
        with path.open("rb") as file:
            return mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    except FileNotFoundError:
        raise NotFound(f"There is no file {path}.", "Check the path and the name.") from None
    except (OSError, ValueError) as error:
        raise NotFound(f"Cannot read {path}: {error}.") from error


def _at_hand(path: Path) -> bool:
    """Whether the system holds a file's pages, but for MISSES of LOOKS."""
    misses, buffer = 0, [bytearray(1)]
    with path.open("rb", buffering=0) as file:
        size = os.fstat(file.fileno()).st_size
        for at in range(0, size, max(size // LOOKS, 1)):
            try:
                os.preadv(file.fileno(), buffer, at, os.RWF_NOWAIT)
            except OSError:  # that page is not there, or the file system cannot tell
                misses += 1
    return misses <= MISSES


def _unmap(mapped: mmap.mmap) -> None:
    try:
        mapped.close()
    except BufferError:  # somebody still holds a view; the map goes when the view does
        pass


def _named(path: Path, step: Any, *arguments: Any) -> Any:
    """`step(*arguments)`, its errors named after the file."""
    try:
        return step(*arguments)
    except (BadFile, Unsupported) as error:
        raise type(error)(f"{path.name}: {error.message}", error.hint) from None


def _check_split(headers: list[Header]) -> None:
    for number, header in enumerate(headers):
        count, place = header.metadata.get("split.count", 1), header.metadata.get("split.no", 0)
        if (count or 1, place) != (len(headers), number):
            raise BadFile(
                f"Its name says part {number + 1} of {len(headers)}, but it claims to be one of "
                f"{count!r} parts, number {place!r} from 0.",
                "Shards must keep the names they were published under.",
            )
    total = headers[0].metadata.get("split.tensors.count")
    if len(headers) > 1 and total != sum(len(header.tensors) for header in headers):
        raise BadFile("The shards do not hold as many tensors as the first one says.")
