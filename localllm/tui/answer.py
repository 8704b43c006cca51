"""Prints one answer as it streams: progress of a long prompt, dim reasoning, Markdown."""

import time
from collections.abc import Callable
from dataclasses import dataclass
from threading import Event
from typing import Any

from localllm.tui import meter, thinking
from localllm.tui.ansi import Renderer
from localllm.tui.follow import END, Follower
from localllm.tui.inline import Inline
from localllm.tui.terminal import CLEAR_LINE, DIM, RESET, printable

BEAT = 0.1  # seconds between looks at the keyboard
PATIENCE = 1.0  # seconds a prompt may take before its progress is shown


@dataclass(frozen=True)
class Style:
    """How answers look: plain text as the model writes it, or rendered for a terminal."""

    plain: bool
    width: int = 80
    colours: int = 256


class Printer:
    """Turns deltas into what to print; reasoning is told from the answer by its marks."""

    def __init__(self, style: Style, write: Callable[[str], None]):
        self.style, self._write = style, write
        self._text = ""
        self._shown = [0, 0]  # characters of the reasoning and of the answer printed so far
        self._aside = Inline(style.width, style=DIM)
        self._answer = Renderer(style.width, style.colours)
        self._waiting = False
        self._since = time.monotonic()

    def progress(self, done: int, total: int) -> None:
        """Show how far the prompt is, once it takes long enough to wonder."""
        elapsed = time.monotonic() - self._since
        if elapsed < PATIENCE or done >= total or (self.style.plain and self._waiting):
            return
        line = meter.progress(done, total, elapsed)
        self._write(f"{line}\n" if self.style.plain else CLEAR_LINE + DIM + line + RESET)
        self._waiting = True

    def text(self, text: str) -> None:
        """Print one more piece of the answer."""
        self._end_wait()
        if self.style.plain:
            self._write(printable(text))
            return
        self._text += text
        reasoning, answer = thinking.split(self._text)
        if more := reasoning[self._shown[0] :]:
            if self._shown[1] == 0:  # otherwise it was on the screen before it was known to be one
                self._write("".join(self._reason(line) for line in more.splitlines(True)))
            self._shown = [len(reasoning), 0]
        if more := answer[self._shown[1] :]:
            if self._shown[0] and not self._shown[1]:
                self._write(self._aside.close() + "\n\n")
            self._shown[1] = len(answer)
            self._write(self._answer.push(more))

    def _reason(self, line: str) -> str:
        out = self._aside.push(printable(line.rstrip("\n")))
        if line.endswith("\n"):
            out += self._aside.close() + "\n"
            self._aside = Inline(self.style.width, style=DIM)
        return out

    def close(self) -> None:
        """Print what was held back, and leave the cursor on a fresh line."""
        self._end_wait()
        if self.style.plain:
            self._write("\n")
            return
        if self._shown[0] and not self._shown[1]:
            self._write(self._aside.close() + "\n")
        self._write(self._answer.close())

    def _end_wait(self) -> None:
        if self._waiting and not self.style.plain:
            self._write(CLEAR_LINE)
        self._waiting = False


def show(reply: Any, style: Style, write: Callable[[str], None], wish: Event) -> None:
    """Print a reply to its end; once `wish` is set it is stopped, and what has come stays."""
    printer, follower = Printer(style, write), Follower(reply)
    try:
        while (delta := follower.take(BEAT)) is not END:
            if wish.is_set():
                reply.cancel()
            if delta is not None and delta.progress:
                printer.progress(*delta.progress)
            if delta is not None and delta.text:
                printer.text(delta.text)
    finally:
        printer.close()
