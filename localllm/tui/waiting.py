"""A line that says what is being waited for and how far it is; it never stands still."""

import itertools
import shutil
import sys
import threading
import time
from typing import Protocol

from localllm.tui import meter
from localllm.units import size

PATIENCE = 0.3  # seconds nobody needs a word for
TICK = 0.15  # seconds between two pictures of the wheel
SOON = 2.0  # seconds after which the time that is left can be told
MANY = 1_000_000  # from here on the numbers are bytes
WIDTH = 24  # cells of the bar
WHEEL, BAR = "⠋⠙⠹⠸⠼⠴⠦⠧⠇⠏", "━╌"
PLAIN_WHEEL, PLAIN_BAR = "|/-\\", "#."


class Terminal(Protocol):
    """What is written to."""

    @property
    def encoding(self) -> str: ...

    def isatty(self) -> bool: ...
    def write(self, text: str, /) -> object: ...
    def flush(self) -> None: ...


class Waiting:
    """A progress callback (stage, done, total); use it as a context manager.

    On a terminal the line is rewritten in place, with a wheel that turns also while nothing is
    reported, and gone at the end. Elsewhere each stage is named once, on a line of its own, so that
    a log stays short.
    """

    def __init__(self, out: Terminal | None = None):
        self.out: Terminal = out or sys.stderr
        self._live = self.out.isatty()
        fancy = "utf" in (getattr(self.out, "encoding", None) or "utf-8").lower()
        self._wheel = itertools.cycle(WHEEL if fancy else PLAIN_WHEEL)
        self._bar = BAR if fancy else PLAIN_BAR
        self._since = self._stage_since = time.monotonic()
        self._named: set[str] = set()
        self._now: tuple[str, int, int] | None = None
        self._shown = False
        self._lock, self._over = threading.RLock(), threading.Event()
        self._thread: threading.Thread | None = None

    def __call__(self, stage: str, done: int, total: int) -> None:
        with self._lock:
            if self._now is None or self._now[0] != stage:
                self._stage_since = time.monotonic()
            self._now = None if done >= total else (stage, done, total)
            if self._live and self._thread is None:
                self._thread = threading.Thread(target=self._turn, name="waiting", daemon=True)
                self._thread.start()
            self._show()

    def _turn(self) -> None:
        while not self._over.wait(TICK):
            with self._lock:
                if not self._over.is_set():
                    self._show()

    def _show(self) -> None:
        if self._now is None or time.monotonic() - self._since < PATIENCE:
            return
        stage = self._now[0]
        if self._live:
            columns = shutil.get_terminal_size().columns
            self.out.write(f"\r{self._line(*self._now)[: columns - 1]}\x1b[K")
            self._shown = True
        elif stage not in self._named:
            self._named.add(stage)
            self.out.write(f"{stage} ...\n")
        self.out.flush()

    def _line(self, stage: str, done: int, total: int) -> str:
        elapsed = time.monotonic() - self._stage_since
        if total == 1:  # there is nothing to count
            return f"{next(self._wheel)} {stage} {meter.seconds(elapsed)}"
        full = WIDTH * done // total
        bar = self._bar[0] * full + self._bar[1] * (WIDTH - full)
        amounts = f"{done}/{total}" if total < MANY else f"{size(done)} of {size(total)}"
        told = meter.seconds(elapsed)
        if done and elapsed > SOON and total >= MANY:  # kernels take too unequal times to guess
            told = f"{meter.seconds(elapsed * (total - done) / done)} left"
        return f"{next(self._wheel)} {stage} {bar} {amounts}  {told}"

    def clear(self) -> None:
        """Take the line away, for something else is to be printed."""
        with self._lock:
            self._now = None
            if self._shown:
                self.out.write("\r\x1b[K")
                self.out.flush()
                self._shown = False

    def __enter__(self) -> "Waiting":
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self.clear()
