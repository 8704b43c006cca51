"""The models on this machine: a folder for each, with a note that is written last.

models/<folder of the name>/localllm.json and, unless the model is used in place, its files. A model
is there when its note is; a folder gets its name in one rename, when all in it is complete.
"""

import hashlib
import json
import os
import shutil
from collections.abc import Callable
from dataclasses import asdict, dataclass
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from localllm import names, paths
from localllm.errors import BadFile, Busy, NotFound

NOTE = "localllm.json"
PARTIAL = ".partial"  # half-done downloads and their locks; below models(), so on the same disk
MAX_NOTE = 1 << 20
Progress = Callable[[int, int], None]


@dataclass(frozen=True)
class Installed:
    """A model on disk; `in_place`: its files belong to somebody else and are only read."""

    name: str
    files: tuple[Path, ...]
    size: int  # bytes, of all files
    sha256: tuple[str, ...]  # of each file; "" where nobody knows
    source: str
    added: str  # ISO 8601, UTC
    in_place: bool

    @property
    def path(self) -> Path:
        """The file to open."""
        return self.files[0]

    @property
    def present(self) -> bool:
        """Are the files still there? Those used in place may have gone."""
        return all(file.is_file() for file in self.files)


def home(name: str) -> Path:
    """The folder of the model `name`, there or not."""
    return paths.models() / names.folder(name)


def partial(name: str) -> Path:
    """Where the files of `name` are gathered before it is there."""
    return paths.models() / PARTIAL / names.folder(name)


def lock_file(name: str) -> Path:
    """What whoever changes the model `name` holds."""
    return paths.models() / PARTIAL / f"{names.folder(name)}.lock"


def installed() -> list[Installed]:
    """Every model with a readable note, by name."""
    found = (_read(note) for note in paths.models().glob(f"*/{NOTE}"))
    return sorted((model for model in found if model is not None), key=lambda each: each.name)


def find(name: str) -> Installed | None:
    """The model of that name; None when it is not installed, or its files have gone."""
    model = _read(home(name) / NOTE)
    return model if model is not None and model.name == name and model.present else None


def get(name: str) -> Installed:
    """The model of that name, or NotFound."""
    model = _read(home(name) / NOTE)
    if model is None or model.name != name:
        raise NotFound(f"{name} is not installed.", "`localllm list` shows what is.")
    return model


def write_note(folder: Path, model: Installed) -> None:
    """Write the note that makes `folder` a model; files inside the folder are named relative."""
    files = [file.name if file.parent == folder else str(file) for file in model.files]
    text = json.dumps({**asdict(model), "files": files}, indent=1)
    written = folder / f"{NOTE}.new"
    with written.open("w", encoding="utf-8") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    os.replace(written, folder / NOTE)


def settle(name: str, folder: Path) -> Installed:
    """Move the complete `folder` to its place, in one rename; the caller holds the lock."""
    target = home(name)
    target.parent.mkdir(parents=True, exist_ok=True)
    if target.exists():
        _discard(target)
    os.replace(folder, target)
    return get(name)


def remove(name: str) -> int:
    """Delete a model, or forget one that is used in place; returns the bytes that became free.

    Raises NotFound, or Busy while it is being pulled or the system will not let go of it.
    """
    from localllm.lock import held  # filelock costs 70 ms, and listing needs none

    model = get(name)
    with held(lock_file(name), wait=0):
        _discard(home(name))
    return 0 if model.in_place else model.size


def verify(name: str, progress: Progress | None = None) -> None:
    """Read a model's files and compare sizes and sha256; raises BadFile naming what differs."""
    model = get(name)
    done = 0
    for file, expected in zip(model.files, model.sha256, strict=True):
        if not file.is_file():
            raise BadFile(f"{file} has gone.", _again(model))
        digest = sha256_of(file, _shifted(progress, done, model.size))
        if expected and digest != expected:
            raise BadFile(f"{file} is damaged: its sha256 is {digest}.", _again(model))
        done += file.stat().st_size
    if done != model.size:
        raise BadFile(f"{name} has {done} bytes instead of {model.size}.", _again(model))


def sha256_of(file: Path, progress: Progress | None = None) -> str:
    """The sha256 of a file in hex, read in pieces."""
    digest, buffer = hashlib.sha256(), memoryview(bytearray(1 << 22))
    done, total = 0, file.stat().st_size
    with file.open("rb", buffering=0) as opened:
        while count := opened.readinto(buffer):
            digest.update(buffer[:count])
            done += count
            if progress is not None:
                progress(done, total)
    return digest.hexdigest()


def prune() -> list[tuple[str, int]]:
    """Delete what crashes and broken notes left behind; (name, bytes) of each thing deleted.

    What another process is busy with stays, and so does what is used in place by a good note.
    """
    from localllm.lock import held

    gone = []
    for folder in _leftovers():
        try:
            owner = folder.name.partition(".gone-")[0]
            with held(paths.models() / PARTIAL / f"{owner}.lock", wait=0):
                size = size_of(folder)
                _discard(folder)
                gone.append((folder.name, size))
        except Busy:
            continue
    return gone


def show(path: Path) -> dict[str, Any]:
    """What a model's file says of itself, ready for JSON; see describe.describe."""
    from localllm.describe import describe  # numpy, which listing does not need
    from localllm.gguf import GGUF

    with GGUF.open(path) as gguf:
        return describe(gguf)


def now() -> str:
    """The time as notes write it."""
    return datetime.now(timezone.utc).isoformat(timespec="seconds")


def size_of(folder: Path) -> int:
    """Bytes of all files below `folder`."""
    return sum(file.stat().st_size for file in folder.rglob("*") if file.is_file())


def _shifted(progress: Progress | None, start: int, total: int) -> Progress | None:
    return None if progress is None else lambda done, _: progress(start + done, total)


def _leftovers() -> list[Path]:
    models = paths.models()
    halves = [each for each in models.glob(f"{PARTIAL}/*") if each.is_dir()]
    broken = [each for each in models.glob("*") if each.is_dir() and each.name != PARTIAL]
    return halves + [each for each in broken if _read(each / NOTE) is None]


def _discard(folder: Path) -> None:
    """Take `folder` away in one rename, then delete it."""
    grave = paths.models() / PARTIAL / f"{folder.name}.gone-{os.getpid()}"
    try:
        grave.parent.mkdir(parents=True, exist_ok=True)
        shutil.rmtree(grave, ignore_errors=True)
        os.replace(folder, grave)
    except OSError as error:
        raise Busy(f"Cannot remove {folder}: {error}.", "Close what uses the model.") from error
    shutil.rmtree(grave, ignore_errors=True)


def _again(model: Installed) -> str:
    return "" if model.in_place else f"`localllm pull --force {model.name}` fetches it again."


def _read(note: Path) -> Installed | None:
    """The model that `note` describes; None where there is no note or it is damaged."""
    try:
        with note.open("rb") as file:
            data = file.read(MAX_NOTE + 1)
        values = json.loads(data) if len(data) <= MAX_NOTE else None
        return _checked(note.parent, values)
    except (OSError, ValueError, TypeError, KeyError, RecursionError):
        return None


def _checked(folder: Path, values: Any) -> Installed:
    texts = [values[key] for key in ("name", "source", "added")]
    files, hashes, size = values["files"], values["sha256"], values["size"]
    if not all(isinstance(each, str) for each in [*texts, *files, *hashes]) or not files:
        raise ValueError("texts expected")
    if len(files) != len(hashes) or not isinstance(size, int) or size < 0:
        raise ValueError("sizes expected")
    in_place = values["in_place"] is True
    if not in_place and not all(names.is_file_name(file) for file in files):
        raise ValueError("plain file names expected")
    name, source, added = texts
    whole = tuple(folder / file for file in files)
    return Installed(name, whole, size, tuple(hashes), source, added, in_place)
