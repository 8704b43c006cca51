"""One file over HTTP: goes on where it stopped, and is checked before it gets its name."""

import http.client
import os
import re
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from localllm.errors import BadFile, Unavailable
from localllm.sources.plan import Progress
from localllm.sources.web import HINT, NoSuchRange, Web, host_of
from localllm.store import sha256_of

TRIES = 5  # in a row without a new byte
PIECE = 1 << 18
_RANGE = re.compile(r"bytes (\d+)-\d+/(\d+|\*)")


@dataclass(frozen=True)
class Remote:
    """A file on the web: its `size` in bytes (0: not known), its `sha256` ("": not known), and the
    Authorization that its own host asks for ("": none)."""

    url: str
    size: int = 0
    sha256: str = ""
    authorization: str = ""
    web: Web = field(default_factory=Web)

    def fetch(self, target: Path, progress: Progress) -> None:
        """Bring it to `target`; a half-done `target`.part is continued.

        `progress(bytes here, bytes in all)`. Raises BadFile, NotFound or Unavailable.
        """
        if target.exists():  # it got its name after its check
            progress(target.stat().st_size, self.size)
            return
        part = target.with_name(target.name + ".part")
        resumed = _length(part) > 0
        self._persist(part, progress)
        if self.sha256 and (found := sha256_of(part)) != self.sha256:
            _forget(part)
            if resumed:  # perhaps what was there before is to blame
                return self.fetch(target, progress)
            raise BadFile(
                f"{target.name} from {host_of(self.url)} is not what was promised: its sha256 is "
                f"{found}, not {self.sha256}.",
                "Try again; if it stays so, do not use it.",
            )
        os.replace(part, target)
        _tag(part).unlink(missing_ok=True)

    def _persist(self, part: Path, progress: Progress) -> None:
        """Try until the file is whole; give up after TRIES tries that brought nothing."""
        tries = 0
        while True:
            before = _length(part)
            try:
                return self._continue(part, progress)
            except Unavailable as error:
                if isinstance(error, NoSuchRange):
                    _forget(part)
                grew = _length(part) > before
                tries = 1 if grew else tries + 1
                if tries >= TRIES or (before == 0 and not grew):
                    raise
                time.sleep(0.25 * 2**tries)

    def _continue(self, part: Path, progress: Progress) -> None:
        start, tag = _length(part), _read_tag(part)
        if self.size and start == self.size:
            return progress(start, self.size)
        if start > self.size > 0 or not (tag or self.sha256):
            _forget(part)  # too long, or nothing would tell whether it is still the same file
            start, tag = 0, ""
        headers = {"Accept-Encoding": "identity"}
        if self.authorization:
            headers["Authorization"] = self.authorization
        if start:
            headers["Range"] = f"bytes={start}-"
            if tag:
                headers["If-Range"] = tag
        with self.web.open(self.url, headers) as answer:
            start, total = self._span(answer, start)
            _tag(part).write_text(_validator(answer), encoding="utf-8")
            self._copy(answer, part, start, total, progress)

    def _span(self, answer: Any, start: int) -> tuple[int, int]:
        """(where the body starts in the file, bytes of the whole file or 0)."""
        length = answer.headers.get("Content-Length", "")
        length = int(length) if length.isascii() and length.isdigit() else 0
        if answer.status != 206:
            start, total = 0, length
        else:
            match = _RANGE.fullmatch(answer.headers.get("Content-Range", ""))
            if match is None or int(match[1]) != start:
                raise Unavailable(f"{host_of(self.url)} sent another part than it was asked for.")
            total = int(match[2]) if match[2] != "*" else start + length
        if self.size and total and total != self.size:
            raise BadFile(
                f"{host_of(self.url)} has {total} bytes for {self.url}; {self.size} were promised."
            )
        return start, self.size or total

    def _copy(self, answer: Any, part: Path, start: int, total: int, progress: Progress) -> None:
        with part.open("r+b" if part.exists() else "wb") as file:
            file.seek(start)
            file.truncate()
            done = start
            while piece := self._piece(answer):
                done += len(piece)
                if total and done > total:
                    raise BadFile(f"{host_of(self.url)} sends more than the {total} bytes it has.")
                file.write(piece)
                progress(done, total)
        if total and done < total:
            raise Unavailable(f"{host_of(self.url)} broke off after {done} of {total} bytes.", HINT)

    def _piece(self, answer: Any) -> bytes:
        try:
            return answer.read(PIECE)
        except (OSError, http.client.HTTPException) as error:
            raise Unavailable(f"{host_of(self.url)} broke off: {error}.", HINT) from error


def _validator(answer: Any) -> str:
    """What tells later whether the file is still the same: a strong ETag or the date."""
    tag = answer.headers.get("ETag") or ""
    if tag and not tag.startswith("W/"):
        return tag
    return answer.headers.get("Last-Modified") or ""


def _length(part: Path) -> int:
    return part.stat().st_size if part.exists() else 0


def _tag(part: Path) -> Path:
    return part.with_name(part.name + ".tag")


def _read_tag(part: Path) -> str:
    try:
        return _tag(part).read_text(encoding="utf-8")[:1024].strip()
    except (OSError, UnicodeDecodeError):
        return ""


def _forget(part: Path) -> None:
    part.unlink(missing_ok=True)
    _tag(part).unlink(missing_ok=True)
