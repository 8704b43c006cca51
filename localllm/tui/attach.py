"""Files put into a message: found by a few letters, read within bounds, quoted as a block."""

import os
import re
from collections.abc import Callable, Iterator
from pathlib import Path

from localllm.errors import BadRequest, NotFound, TooLarge

LARGEST = 2 << 20  # bytes of one attached file
MOST = 20_000  # files looked at below a folder
SKIPPED = {"__pycache__", "node_modules", "venv", "site-packages", "dist", "build", "target"}
MENTION = re.compile(r'(?<!\S)@(?:"([^"\n]+)"|([^\s"]+))')


def files_below(root: Path, stop: Callable[[], bool] = lambda: False) -> list[str]:
    """Relative names of the files below a folder, nearest first; hidden and built ones left out."""
    found: list[str] = []
    for name in _walk(root):
        found.append(name)
        if len(found) >= MOST or stop():
            break
    return sorted(found, key=lambda name: (name.count("/"), name.lower()))


def _walk(root: Path) -> Iterator[str]:
    for folder, folders, files in os.walk(root, followlinks=False):
        folders[:] = [f for f in sorted(folders) if not f.startswith(".") and f not in SKIPPED]
        base = Path(folder).relative_to(root)
        for file in sorted(files):
            if not file.startswith("."):
                yield (base / file).as_posix()


def read(path: Path) -> str:
    """The text of a file; errors say why it cannot be attached."""
    if not path.is_file():
        raise NotFound(f"There is no file {path}.")
    if path.stat().st_size > LARGEST:
        raise TooLarge(f"{path} is larger than an attached file may be (2 MiB).")
    data = path.read_bytes()
    if b"\0" in data:
        raise BadRequest(f"{path} is not a text file.", "Only text can be attached.")
    return data.decode("utf-8", errors="replace").replace("\r\n", "\n")


def quoted(path: Path, text: str) -> str:
    """The file as a fenced block under its name, with a fence longer than any inside."""
    fence = "```"
    while fence in text:
        fence += "`"
    return f"{path.as_posix()}:\n{fence}{path.suffix.lstrip('.')}\n{text.rstrip()}\n{fence}"


def with_files(message: str, root: Path) -> str:
    """The message with every file it mentions as @path or @"a path" quoted below it.

    A word that names no file stays what it is: an e-mail address, a decorator.
    """
    blocks = []
    names = [in_quotes or bare.rstrip(".,;:!?)") for in_quotes, bare in MENTION.findall(message)]
    for name in dict.fromkeys(names):
        path = root / Path(name).expanduser()
        if path.is_file():
            shown = path.relative_to(root) if path.is_relative_to(root) else path
            blocks.append(quoted(shown, read(path)))
    return "\n\n".join([message, *blocks])
