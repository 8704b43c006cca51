"""One message of a conversation, drawn line by line; an answer grows while it streams.

One widget for a whole message, however long: a screen with thousands of lines stays quick.
"""

import time
from typing import ClassVar

from rich.segment import Segment
from textual.binding import Binding, BindingType
from textual.content import Content
from textual.events import Click
from textual.geometry import Size
from textual.selection import Selection
from textual.strip import Strip
from textual.style import Style
from textual.timer import Timer
from textual.widget import Widget

from localllm.tui import clipboard, meter, thinking
from localllm.tui.conversation import Turn
from localllm.tui.events import (
    BranchWanted,
    CopyWanted,
    EditWanted,
    Ended,
    Flowing,
    InspectWanted,
    RetryWanted,
)
from localllm.tui.feed import Feed
from localllm.tui.prose import Prose
from localllm.tui.terminal import printable
from localllm.tui.typeset import BLANK, COPY, Line, plain

FRAME = 1 / 20  # seconds between looks at a feed, when the screen keeps up
SLOWEST = 0.5  # seconds between them, when it does not
SHARE = 0.2  # of the time the UI thread may spend on a streaming answer


class Bubble(Widget, can_focus=True):
    """A turn: who said it, what, and what it cost. Keys work on the focused one."""

    ALLOW_SELECT = True
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("r", "retry", "Retry"),
        Binding("e", "edit", "Edit"),
        Binding("c", "copy", "Copy"),
        Binding("k", "copy_code", "Copy code"),
        Binding("i", "inspect", "Tokens"),
        Binding("t", "toggle_thinking", "Thinking"),
        Binding("left", "branch(-1)", "Branch", key_display="←→"),
        Binding("right", "branch(1)", show=False),
        Binding("up", "screen.step(-1)", show=False),
        Binding("down", "screen.step(1)", show=False),
    ]

    def __init__(self, turn: Turn, branches: list[int], feed: Feed | None = None):
        super().__init__(classes=turn.role)
        self.turn, self.branches, self.feed = turn, branches, feed
        self._reasoning = self._answer = ""
        self._unfolded = False
        self._prose = Prose()
        self._foot = ""
        self._lines: list[Line] = []  # as laid out for
        self._width = 0  # this many columns; 0: something changed since
        self._timer: Timer | None = None
        self._next = self._spent = 0.0
        self._pause = FRAME
        if turn.role == "assistant" and feed is None:
            self._grow(turn.content)
            self._settle()

    # --- drawing -----------------------------------------------------------------------------

    def get_content_height(self, container: Size, viewport: Size, width: int) -> int:
        if width != self._width:
            self._width, self._lines = width, self._laid_out(width)
        return len(self._lines)

    def _changed(self) -> None:
        self._width = 0
        self.refresh(layout=True)

    def _laid_out(self, width: int) -> list[Line]:
        head = [Line(Content.styled(self._head(), "bold $foreground 60%"))]
        if self.turn.role == "user":
            return head + plain(printable(self.turn.content), width)
        body = self._prose.lines(width) if self._answer else []
        style = "$text-error" if self.has_class("failed") else "$foreground 50%"
        foot = plain(self._foot, width, style) if self._foot else []
        return [*head, *self._thoughts(width), *body, *([BLANK] if body and foot else []), *foot]

    def _head(self) -> str:
        who = "You" if self.turn.role == "user" else self.turn.model or "Assistant"
        if len(self.branches) > 1:
            at = self.branches.index(self.turn.id) + 1
            who += f"  ‹ {at}/{len(self.branches)} ›"
        return printable(who)

    def _thoughts(self, width: int) -> list[Line]:
        """The reasoning: one dim line, or all of it when unfolded."""
        if not self._reasoning:
            return []
        mark = "▼" if self._unfolded else "▶"
        words = f"{len(self._reasoning.split()):,} words"
        lines = [Line(Content.styled(f"{mark} Thinking · {words}", "$foreground 60%"))]
        if self._unfolded:
            rows = plain(self._reasoning, width - 2, "$foreground 60% italic")
            lines += [Line(row.text.pad_left(2)) for row in rows]
        return [*lines, BLANK]

    def render_line(self, y: int) -> Strip:
        base = self.visual_style
        if y >= len(self._lines):
            return Strip.blank(self.content_size.width, base.rich_style)
        text = self._lines[y].text
        selection = self.text_selection
        if selection is not None and (span := selection.get_span(y)) is not None:
            chosen = self.screen.get_visual_style("screen--selection")
            text = text.stylize(chosen, span[0], len(text) if span[1] == -1 else span[1])
        parts = text.render(base, end="", parse_style=_style)
        strip = Strip([Segment(part, (base + style).rich_style) for part, style in parts])
        return strip.adjust_cell_length(self.content_size.width, base.rich_style).apply_offsets(
            0, y
        )

    def get_selection(self, selection: Selection) -> tuple[str, str] | None:
        return selection.extract("\n".join(line.text.plain for line in self._lines)), "\n"

    # --- streaming ---------------------------------------------------------------------------

    def on_mount(self) -> None:
        if self.feed is not None:
            self._timer = self.set_interval(FRAME, self._tick)

    def _tick(self) -> None:
        """Show what has come; less often when showing it takes too much of the UI's time."""
        feed, now = self.feed, time.monotonic()
        if feed is None or now < self._next:
            return
        spent = time.thread_time()
        busy = spent - self._spent > SHARE * (now - self._next + self._pause)
        self._pause = min(SLOWEST, self._pause * 1.5) if busy else max(FRAME, self._pause / 1.5)
        self._next, self._spent = now + self._pause, spent
        over = feed.done  # before its text: nothing comes after it
        self._grow(feed.text)
        if over:
            self._end(feed)
        else:
            self.post_message(Flowing(self.turn.id, feed))

    def _grow(self, text: str) -> None:
        reasoning, answer = thinking.split(printable(text))
        if (reasoning, answer) == (self._reasoning, self._answer):
            return
        if answer.startswith(self._answer):
            self._prose.put(answer[len(self._answer) :])
        else:  # it was reasoning, as its end mark now shows
            self._prose = Prose(answer)
        self._reasoning, self._answer = reasoning, answer
        self._changed()

    def _end(self, feed: Feed) -> None:
        if self._timer is not None:
            self._timer.stop()
        self.feed = None
        self._settle()
        self._changed()
        self.refresh_bindings()
        self.post_message(Ended(self.turn.id, feed))

    def _settle(self) -> None:
        """Say below an answer what it cost, or why it ended."""
        stats = self.turn.stats
        self._foot = stats.get("error") or meter.speed(stats)
        self.set_class("error" in stats, "failed")
        if not self.turn.done:
            self._foot = "cut off"

    # --- keys and clicks ---------------------------------------------------------------------

    def on_click(self, event: Click) -> None:
        """Copies a code block when its button is hit, unfolds the reasoning."""
        at = event.get_content_offset(self)
        if at is None or at.y >= len(self._lines):
            return
        line = self._lines[at.y]
        if line.code and at.x >= line.text.cell_length - len(COPY):
            self.post_message(CopyWanted(line.code, "the code"))
        elif self._reasoning and at.y == 1:
            self.action_toggle_thinking()

    def action_retry(self) -> None:
        self.post_message(RetryWanted(self.turn.id))

    def action_edit(self) -> None:
        self.post_message(EditWanted(self.turn.id))

    def action_branch(self, step: int) -> None:
        self.post_message(BranchWanted(self.turn.id, step))

    def action_inspect(self) -> None:
        self.post_message(InspectWanted(self.turn.id))

    def action_copy(self) -> None:
        text = self.turn.content if self.turn.role == "user" else self._answer
        self.post_message(CopyWanted(text, "the message"))

    def action_copy_code(self) -> None:
        if blocks := clipboard.code_blocks(self._answer):
            self.post_message(CopyWanted(blocks[-1], "its last code block"))

    def action_toggle_thinking(self) -> None:
        self._unfolded = not self._unfolded
        self._changed()

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """Keys are offered where they do something."""
        offered = {
            "edit": self.turn.role == "user",
            "inspect": self.turn.role == "assistant",
            "copy_code": "```" in self._answer,
            "toggle_thinking": bool(self._reasoning),
            "branch": len(self.branches) > 1,
        }
        return offered.get(action, True)


def _style(style: Style | str) -> Style:
    """A style, its theme variables filled in by the running app."""
    return Style.parse(style) if isinstance(style, str) else style
