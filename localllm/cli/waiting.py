"""One line on stderr that says what is being waited for, and how far it is."""

import shutil
import sys
import time
from typing import TextIO

from localllm.units import size

PATIENCE = 0.3  # seconds nobody needs a word for
MANY = 1_000_000  # from here on the numbers are bytes


class Waiting:
    """A progress callback (stage, done, total); use it as a context manager.

    On a terminal the line is rewritten in place and gone at the end. Elsewhere each stage is
    named once, on a line of its own, so that a log stays short.
    """

    def __init__(self, out: TextIO | None = None):
        self.out = out or sys.stderr
        self._live = self.out.isatty()
        self._since = time.monotonic()
        self._named: set[str] = set()
        self._shown = False

    def __call__(self, stage: str, done: int, total: int) -> None:
        if done >= total or time.monotonic() - self._since < PATIENCE:
            return
        if self._live:
            width = shutil.get_terminal_size().columns
            amounts = f"{done}/{total}" if total < MANY else f"{size(done)} of {size(total)}"
            line = f"{stage} {self._bar(done / total)} {amounts}"
            self.out.write(f"\r{line[: width - 1]}\x1b[K")
            self._shown = True
        elif stage not in self._named:
            self._named.add(stage)
            self.out.write(f"{stage} ...\n")
        self.out.flush()

    @staticmethod
    def _bar(share: float) -> str:
        full = int(share * 24)
        return "━" * full + "╌" * (24 - full)

    def clear(self) -> None:
        """Take the line away, for something else is to be printed."""
        if self._shown:
            self.out.write("\r\x1b[K")
            self.out.flush()
            self._shown = False

    def __enter__(self) -> "Waiting":
        return self

    def __exit__(self, *_: object) -> None:
        self.clear()
