"""What a model may be called, and the folder its name gets."""

import hashlib
import os
import re
from typing import Any

from localllm.errors import BadRequest

MAX_NAME = 255
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*(/[A-Za-z0-9][A-Za-z0-9._-]*)*(:[A-Za-z0-9._-]+)?")
_RESERVED = re.compile(r"(con|prn|aux|nul|com\d|lpt\d)(\..*)?", re.IGNORECASE)
_UNSAFE = re.compile(r'[\x00-\x1f<>:"/\\|?*\x7f]')
SCHEMES = ("hf", "pypi")


def scheme(model: str) -> str:
    """`hf` or `pypi` where `model` names a source, `path` for a file, else `name`."""
    head, colon, _ = model.partition(":")
    if colon and head.lower() in SCHEMES:
        return head.lower()
    looks = model.lower().endswith(".gguf") or model.startswith((".", "~", "/", "\\"))
    drive = re.match(r"[A-Za-z]:[\\/]", model)
    return "path" if looks or drive or _is_file(model) else "name"


def check(name: Any) -> str:
    """`name`, when a model may be called that; raises BadRequest."""
    if not isinstance(name, str) or not is_name(name):
        raise BadRequest(
            f"{str(name)[:80]!r} cannot be a model's name",
            "Use letters, digits, '.', '_' and '-', with one ':' before a tag.",
        )
    return name


def is_name(name: str) -> bool:
    """May a model be called that? Sources and files have names of their own form."""
    looks = name.partition(":")[0].lower() in SCHEMES or name.lower().endswith(".gguf")
    return not looks and len(name) <= MAX_NAME and _NAME.fullmatch(name) is not None


def hub(model: str) -> tuple[str, str]:
    """("user/repo", file or quantization or "") of "hf:user/repo[:quant]" or "hf:user/repo/file".

    Raises BadRequest.
    """
    path, _, quant = model.partition(":")[2].partition(":")
    pieces = path.split("/")
    if len(pieces) < 2 or not all(pieces) or (len(pieces) > 2 and quant):
        raise BadRequest(f"{model!r} is not of the form hf:user/repo[:quant].")
    return "/".join(pieces[:2]), "/".join(pieces[2:]) or quant


def folder(name: str) -> str:
    """The folder of the model `name`: one for each name, valid and distinct on every system."""
    plain = name.replace(":", "@").replace("/", "+")
    safe = re.sub(r"[^a-z0-9._@+-]", "-", plain.lower())[:100].rstrip(".")
    taken = "@" in name or "+" in name or _RESERVED.fullmatch(safe) or safe.startswith(".")
    if safe and safe == plain and not taken:
        return safe
    digest = hashlib.sha256(name.encode("utf-8", "surrogatepass")).hexdigest()
    return f"{safe.lstrip('.')}-{digest[:8]}"


def is_file_name(name: str) -> bool:
    """Is `name` one plain file name, on every system?"""
    return (
        0 < len(name) <= MAX_NAME
        and not _UNSAFE.search(name)
        and not name.startswith((".", " "))
        and not name.endswith((".", " "))
        and not _RESERVED.fullmatch(name)
    )


def _is_file(model: str) -> bool:
    """A bare word is a name even where a file of that name lies about."""
    return ("/" in model or "\\" in model) and os.path.isfile(model)
