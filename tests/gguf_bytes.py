"""Writes GGUF bytes field by field, so that a test can write any of them wrong."""

import struct

U32, F32, BOOL, STRING, ARRAY, U64 = 4, 6, 7, 8, 9, 10
_CODES = {0: "B", 1: "b", 2: "H", 3: "h", U32: "I", 5: "i", F32: "f", BOOL: "B", U64: "Q", 12: "d"}


def text(value: str | bytes) -> bytes:
    data = value.encode() if isinstance(value, str) else value
    return struct.pack("<Q", len(data)) + data


def scalar(kind: int, value) -> bytes:
    return text(value) if kind == STRING else struct.pack("<" + _CODES[kind], value)


def pair(key: str | bytes, kind: int, value) -> bytes:
    return text(key) + struct.pack("<I", kind) + scalar(kind, value)


def array(key: str, kind: int, values, count: int | None = None) -> bytes:
    body = b"".join(scalar(kind, value) for value in values)
    length = len(values) if count is None else count
    return text(key) + struct.pack("<IIQ", ARRAY, kind, length) + body


def tensor(name: str, shape, kind: int = 0, offset: int = 0, rank: int | None = None) -> bytes:
    """`shape` in the file's order: columns first."""
    dims = struct.pack(f"<{len(shape)}Q", *shape)
    rank = len(shape) if rank is None else rank
    return text(name) + struct.pack("<I", rank) + dims + struct.pack("<IQ", kind, offset)


def gguf(pairs=(), tensors=(), data: bytes = b"", *, version=3, counts=None, align=32) -> bytes:
    keys, records = counts or (len(pairs), len(tensors))
    records, keys = (len(tensors), len(pairs)) if counts is None else (records, keys)
    head = b"GGUF" + struct.pack("<IQQ", version, records, keys) + b"".join([*pairs, *tensors])
    return head + b"\0" * (-len(head) % align) + data
