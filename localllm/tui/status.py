"""The line above the keys: the model, what the answer costs, how full the context is."""

import itertools
import time

from textual.app import ComposeResult
from textual.containers import Horizontal
from textual.widgets import Label

from localllm.tui import meter
from localllm.tui.feed import Feed
from localllm.tui.waiting import TICK, WHEEL

NARROW = 52  # columns below which the context is told in fewer words


class Status(Horizontal):
    """Model on the left, what happens in the middle, the context on the right."""

    _full: tuple[int, int | None] = (0, None)  # tokens in use, and how many there may be

    def compose(self) -> ComposeResult:
        yield Label("no model", id="model", markup=False)
        yield Label("", id="doing", markup=False)
        yield Label("", id="context", markup=False)

    def model(self, text: str) -> None:
        self.query_one("#model", Label).update(text)

    def on_mount(self) -> None:
        self._wheel = itertools.cycle(WHEEL)
        self._turning = self.set_interval(TICK, self._turn, pause=True)
        self._opening = ""

    def doing(self, text: str) -> None:
        self._turning.pause()
        self.query_one("#doing", Label).update(text)

    def context(self, used: int, size: int | None) -> None:
        """Show how full the context is, in a warning colour when it is nearly so."""
        self._full = (used, size)
        label = self.query_one("#context", Label)
        label.update(self._meter(used, size) if size else "")
        label.set_class(meter.is_tight(used, size), "tight")

    def _meter(self, used: int, size: int) -> str:
        wide = self.size.width >= NARROW
        return f"context {meter.context(used, size)}" if wide else meter.share(used, size)

    def on_resize(self) -> None:
        self.context(*self._full)

    def opening(self, stage: str, done: int = 0, total: int = 0) -> None:
        """How far a model is with opening, behind a wheel that turns meanwhile."""
        self._opening = stage + (f" {100 * done // total} %" if total else "")
        self._turning.resume()
        self._turn()

    def _turn(self) -> None:
        self.query_one("#doing", Label).update(f"{next(self._wheel)} {self._opening} …")

    def flowing(self, feed: Feed) -> None:
        """An answer under way: its speed, or how far the model is with reading the prompt."""
        elapsed = time.monotonic() - feed.started
        if feed.progress and elapsed > 1:
            self.doing(meter.progress(*feed.progress, elapsed, width=12))
        elif feed.first:
            wait = feed.first - feed.started
            self.doing(f"{feed.rate:.1f} t/s · first after {wait:.2f} s · {feed.tokens:,} tokens")
        else:
            self.doing(f"waiting for the first token … {elapsed:.0f} s")
