"""models.yaml as data: what each name stands for, ours and the user's together."""

import os
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any

import yaml

from localllm import names, paths
from localllm.errors import BadFile, BadRequest

MAX_BYTES = 1 << 20
MAX_ENTRIES = 10_000
MAX_TEXT = 1 << 18
_LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_DUMPER = getattr(yaml, "CSafeDumper", yaml.SafeDumper)
_SHA256 = re.compile(r"[0-9a-f]{64}")


@dataclass(frozen=True, kw_only=True)
class Entry:
    """A model by name: where to get it, what it is, and what its makers or the user recommend."""

    name: str
    description: str = ""
    license: str = ""
    architecture: str = ""
    parameters: int = 0  # weights in the file; 0: not known
    capabilities: tuple[str, ...] = ()  # of "chat", "tools", "fim"
    file: str = ""
    size: int = 0  # bytes; 0: not known
    sha256: str = ""  # of the whole file, or ""
    sources: tuple[str, ...] = ()
    alias: str | None = None
    system: str | None = None
    template: str | None = None
    context: int | None = None  # tokens
    sampling: Mapping[str, float | int] = field(default_factory=dict)  # Sampling's field names

    def on(self, base: "Entry") -> "Entry":
        """`base` under this name, with what this entry sets put on top."""
        changes = {
            each.name: getattr(self, each.name)
            for each in fields(self)
            if getattr(self, each.name) not in (None, "", 0, ()) and each.name != "sampling"
        }
        sampling = {**base.sampling, **self.sampling}
        return replace(base, **{**changes, "sampling": sampling, "alias": None})


def built_in() -> Path:
    """models.yaml: in the installed package, or beside it in a checkout."""
    inside = Path(__file__).with_name("models.yaml")
    return inside if inside.exists() else Path(__file__).parent.parent / "models.yaml"


def read() -> dict[str, Entry]:
    """Every entry by name: ours, and the user's on top. Raises BadFile naming file and field."""
    entries = _read(built_in())
    user = paths.user_catalog()
    if user.exists():
        for name, entry in _read(user).items():
            known = entries.get(name)
            entries[name] = entry if known is None or entry.alias else entry.on(known)
    return entries


def edit(change: Callable[[dict[str, Any]], None]) -> None:
    """Apply `change` to the models of the user's file and replace the file in one go.

    The caller holds the lock of the user's file.
    """
    path = paths.user_catalog()
    models = _models(path) if path.exists() else {}
    change(models)
    path.parent.mkdir(parents=True, exist_ok=True)
    written = path.with_name(f"{path.name}.{os.getpid()}")
    text = yaml.dump({"models": models}, Dumper=_DUMPER, sort_keys=False, allow_unicode=True)
    written.write_text(text, encoding="utf-8")
    os.replace(written, path)


def _read(path: Path) -> dict[str, Entry]:
    return {name: _entry(path, name, values) for name, values in _models(path).items()}


def _models(path: Path) -> dict[str, Any]:
    try:
        with path.open("rb") as file:
            data = file.read(MAX_BYTES + 1)
        if len(data) > MAX_BYTES:
            raise BadFile(f"{path} is larger than {MAX_BYTES} bytes.")
        document = yaml.load(data, _LOADER)
    except OSError as error:
        raise BadFile(f"Cannot read {path}: {error}.") from error
    except (yaml.YAMLError, UnicodeDecodeError, RecursionError, ValueError) as error:
        reason = " ".join(str(error).split())[:300]
        raise BadFile(f"{path} is not YAML: {reason}.", "Mend or remove the file.") from None
    models = document.get("models") if isinstance(document, dict) else document
    if models is None:
        return {}
    if not isinstance(models, dict) or len(models) > MAX_ENTRIES:
        raise BadFile(f"{path}: 'models' must hold at most {MAX_ENTRIES} named entries.")
    return models


def _entry(path: Path, name: Any, values: Any) -> Entry:
    try:
        names.check(name)
        if not isinstance(values, dict):
            raise BadRequest("it is not a list of fields")
        unknown = set(values) - set(_CHECKS)
        if unknown:
            raise BadRequest(f"no such field: {min(map(str, unknown))!r}")
        checked = {key: _CHECKS[key](key, value) for key, value in values.items()}
        return Entry(name=name, **checked)
    except BadRequest as error:
        raise BadFile(f"{path}: {name!r}: {error.message}.", "Mend the entry.") from None


def _text(key: str, value: Any) -> str:
    if not isinstance(value, str) or len(value) > MAX_TEXT:
        raise BadRequest(f"{key!r} must be text")
    return value


def _file(key: str, value: Any) -> str:
    if not names.is_file_name(_text(key, value)):
        raise BadRequest(f"{key!r} must be a plain file name, not {value!r}")
    return value


def _hash(key: str, value: Any) -> str:
    if not _SHA256.fullmatch(_text(key, value)):
        raise BadRequest(f"{key!r} must be 64 digits of lower-case hex")
    return value


def _count(key: str, value: Any) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or not 0 < value < 1 << 62:
        raise BadRequest(f"{key!r} must be a whole number above 0")
    return value


def _texts(key: str, value: Any) -> tuple[str, ...]:
    if not isinstance(value, list) or len(value) > 64:
        raise BadRequest(f"{key!r} must be a list of at most 64 texts")
    return tuple(_text(key, each) for each in value)


def _numbers(key: str, value: Any) -> dict[str, float | int]:
    if not isinstance(value, dict) or len(value) > 64:
        raise BadRequest(f"{key!r} must map names to numbers")
    for name, number in value.items():
        if not isinstance(name, str) or not isinstance(number, int | float):
            raise BadRequest(f"{key!r} must map names to numbers")
    return value


_CHECKS: dict[str, Callable[[str, Any], Any]] = {
    "description": _text,
    "license": _text,
    "architecture": _text,
    "parameters": _count,
    "capabilities": _texts,
    "file": _file,
    "size": _count,
    "sha256": _hash,
    "sources": _texts,
    "alias": _text,
    "system": _text,
    "template": _text,
    "context": _count,
    "sampling": _numbers,
}
