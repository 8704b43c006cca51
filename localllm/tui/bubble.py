"""One message of a conversation; an answer grows by merged fragments while it streams."""

import time
from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Vertical
from textual.widgets import Collapsible, Label, Markdown, Static
from textual.widgets.markdown import MarkdownStream

from localllm.tui import clipboard, meter, thinking
from localllm.tui.code import Answer
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

FRAME = 1 / 20  # seconds between looks at a feed, when the screen keeps up
SLOWEST = 0.5  # seconds between them, when it does not
SHARE = 0.2  # of the time the UI thread may spend on a streaming answer


class Bubble(Vertical, can_focus=True):
    """A turn, who said it, and what it cost. Keys work on the focused one."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("r", "retry", "Retry"),
        Binding("e", "edit", "Edit"),
        Binding("c", "copy", "Copy"),
        Binding("k", "copy_code", "Copy code"),
        Binding("i", "inspect", "Tokens"),
        Binding("left", "branch(-1)", "Branch", key_display="←→"),
        Binding("right", "branch(1)", show=False),
        Binding("up", "screen.step(-1)", show=False),
        Binding("down", "screen.step(1)", show=False),
        Binding("t", "toggle_thinking", "Thinking", show=False),
    ]

    def __init__(self, turn: Turn, branches: list[int], feed: Feed | None = None):
        super().__init__(classes=turn.role)
        self.turn, self.branches, self.feed = turn, branches, feed
        self._reasoning = ""
        self._answer = ""
        self._seen = 0  # characters of the feed that are on the screen
        self._stream: MarkdownStream | None = None
        self._next = self._spent = 0.0
        self._pause = FRAME

    def compose(self) -> ComposeResult:
        yield Label(self._head(), classes="head")
        with Collapsible(title="Thinking", classes="thinking"):
            yield Static("", markup=False)
        yield Answer(classes="body")
        yield Label("", classes="foot", markup=False)

    def _head(self) -> str:
        who = "You" if self.turn.role == "user" else self.turn.model or "Assistant"
        if len(self.branches) > 1:
            at = self.branches.index(self.turn.id) + 1
            who += f"  ‹ {at}/{len(self.branches)} ›"
        return who.replace("[", r"\[")

    async def on_mount(self) -> None:
        self.query_one(Collapsible).display = False
        if self.feed is not None:
            self._stream = Markdown.get_stream(self.query_one(Answer))
            self._timer = self.set_interval(FRAME, self._tick)
        elif self.turn.role == "user":
            self.query_one(Answer).display = False
            await self.mount(Static(self.turn.content, markup=False, classes="said"), after=0)
        else:
            reasoning, answer = thinking.split(self.turn.content)
            self._show_reasoning(reasoning)
            await self.query_one(Answer).update(answer)
            self._show_foot()

    # --- streaming ---------------------------------------------------------------------------

    async def _tick(self) -> None:
        """Show what has come; less often when showing it takes too much of the UI's time."""
        feed, now = self.feed, time.monotonic()
        if feed is None or now < self._next:
            return
        spent = time.thread_time()
        busy = spent - self._spent > SHARE * (now - self._next + self._pause)
        self._pause = min(SLOWEST, self._pause * 1.5) if busy else max(FRAME, self._pause / 1.5)
        self._next, self._spent = now + self._pause, spent
        over = feed.done  # before taking: nothing comes after it
        await self._grow(feed.text)
        if over:
            await self._end(feed)
        else:
            self.post_message(Flowing(self.turn.id, feed))

    async def _grow(self, text: str) -> None:
        if len(text) == self._seen:
            return
        self._seen = len(text)
        reasoning, answer = thinking.split(text)
        self._show_reasoning(reasoning)
        if not answer.startswith(self._answer):  # it was reasoning, as its end mark now shows
            await self.query_one(Answer).update("")
            self._answer = ""
        if self._stream is not None:
            await self._stream.write(answer[len(self._answer) :])
        self._answer = answer

    async def _end(self, feed: Feed) -> None:
        self._timer.stop()
        if self._stream is not None:
            await self._stream.stop()
        self.feed, self._stream = None, None
        self._show_foot()
        if feed.error:
            self._show_error(feed.error.message, feed.error.hint)
        self.post_message(Ended(self.turn.id, feed))

    def _show_reasoning(self, text: str) -> None:
        if text != self._reasoning:
            self._reasoning = text
            fold = self.query_one(Collapsible)
            fold.display = bool(text)
            fold.query_one(Static).update(text)

    def _show_foot(self) -> None:
        foot = self.query_one(".foot", Label)
        cut = "" if self.turn.done or self.feed else "cut off"
        foot.update(meter.speed(self.turn.stats) or cut)

    def _show_error(self, message: str, hint: str) -> None:
        self.add_class("failed")
        self.query_one(".foot", Label).update(f"{message} {hint}".strip())

    # --- keys --------------------------------------------------------------------------------

    def action_retry(self) -> None:
        self.post_message(RetryWanted(self.turn.id))

    def action_edit(self) -> None:
        self.post_message(EditWanted(self.turn.id))

    def action_branch(self, step: int) -> None:
        self.post_message(BranchWanted(self.turn.id, step))

    def action_inspect(self) -> None:
        self.post_message(InspectWanted(self.turn.id))

    def action_copy(self) -> None:
        text = self.turn.content if self.feed is None else self.feed.text
        self.post_message(CopyWanted(thinking.split(text)[1], "the message"))

    def action_copy_code(self) -> None:
        blocks = clipboard.code_blocks(self.turn.content)
        if blocks:
            self.post_message(CopyWanted(blocks[-1], "its last code block"))

    def action_toggle_thinking(self) -> None:
        fold = self.query_one(Collapsible)
        fold.collapsed = not fold.collapsed

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """Keys are offered where they do something."""
        if action == "edit":
            return self.turn.role == "user"
        if action in ("inspect", "toggle_thinking"):
            return self.turn.role == "assistant"
        if action == "copy_code":
            return "```" in self.turn.content
        return len(self.branches) > 1 if action == "branch" else True
