"""The smallest files that count as models: an architecture, a name and one tensor."""

import hashlib

from gguf_bytes import STRING, gguf, pair, tensor


def tiny(name: str = "tiny", weights: int = 64, *more: bytes) -> bytes:
    """A GGUF file with `weights` F32 weights."""
    pairs = [pair("general.architecture", STRING, "llama"), pair("general.name", STRING, name)]
    return gguf([*pairs, *more], [tensor("a.weight", (weights,))], bytes(4 * weights))


def sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()
