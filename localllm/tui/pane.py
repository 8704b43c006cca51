"""A conversation on the screen: its bubbles, its status line, and what the bubbles ask for."""

from typing import Any

from textual import on
from textual.app import ComposeResult
from textual.containers import Vertical

from localllm.errors import Unavailable
from localllm.tui import meter
from localllm.tui.background import begin, post, seldom
from localllm.tui.bubble import Bubble
from localllm.tui.events import (
    BranchWanted,
    EarlierWanted,
    Ended,
    Flowing,
    Loading,
    Opened,
    OpenFailed,
    RetryWanted,
)
from localllm.tui.feed import as_error
from localllm.tui.shelf import Shelf
from localllm.tui.status import Status
from localllm.tui.talk import Talk
from localllm.tui.tokens import Tokens
from localllm.tui.transcript import Transcript

WELCOME = """\
[b $text-primary]localllm[/]
Nothing you write leaves this machine.

[b]Enter[/b]  sends           [b]^o[/b]  models
[b]^j   [/b]  breaks a line   [b]^n[/b]  new chat
[b]Esc  [/b]  stops           [b]^s[/b]  chats
[b]@    [/b]  attaches files  [b]^g[/b]  sampling
[b]↑    [/b]  to the answers  [b]^p[/b]  all else
"""


class Pane(Vertical):
    """Answers are read by worker threads; nothing here waits for the engine."""

    def __init__(self, talk: Talk, shelf: Shelf, id: str | None = None):
        super().__init__(id=id)
        self.talk, self._shelf = talk, shelf
        self._wanted = ""  # the model that was chosen last
        self.waiting = False  # a question waits for the model to be open

    def compose(self) -> ComposeResult:
        yield Transcript(WELCOME)
        yield Status()

    @property
    def transcript(self) -> Transcript:
        return self.query_one(Transcript)

    @property
    def status(self) -> Status:
        return self.query_one(Status)

    # --- the model ---------------------------------------------------------------------------

    def open_model(self, name: str, gone: Any = None) -> None:
        """Open a model in the background; Opened or OpenFailed is posted.

        gone: the same model in a server that no longer answers.
        """
        self.status.model(name.rpartition("/")[2])  # of a path, the file
        self.status.opening("opening")
        self._wanted = name
        begin(lambda: self._open_model(name, gone), f"opening {name}")

    def _open_model(self, name: str, gone: Any) -> None:
        """On a thread of its own."""

        def progress(stage: str, done: int, total: int) -> None:
            post(self, Loading(name, stage, done, total))

        try:
            self._shelf.forget(gone)
            llm = self._shelf.take(name, seldom(progress))
        except Exception as error:
            post(self, OpenFailed(name, as_error(error)))
        else:
            post(self, Opened(name, llm))

    @on(Loading)
    def opening(self, event: Loading) -> None:
        event.stop()
        self.status.opening(event.stage, event.done, event.total)

    @on(Opened)
    async def opened(self, event: Opened) -> None:
        if event.model != self._wanted:  # the user chose another one meanwhile
            begin(lambda: self._shelf.give(event.llm), "closing")
            return
        before = self.talk.use(event.llm)
        begin(lambda: self._shelf.give(before), "closing")
        self._show_model()
        if self.waiting:
            await self.answer()

    @on(OpenFailed)
    def open_failed(self, event: OpenFailed) -> None:
        self._show_model()
        self.notify(f"{event.error.message} {event.error.hint}".strip(), severity="error")

    def _show_model(self) -> None:
        llm = self.talk.llm
        self.status.model(llm.name if llm is not None else "no model")
        served = llm is not None and llm.server
        self.status.doing(f"in the server at {served}" if served else "")
        self._show_context()

    def _show_context(self) -> None:
        llm = self.talk.llm
        self.status.context(self.talk.used, llm.context if llm is not None else None)

    # --- talking -----------------------------------------------------------------------------

    async def show(self) -> None:
        """Bring the screen in line with the conversation."""
        await self.transcript.show(self.talk.chat, self.talk.streaming)
        self._show_context()

    async def reset(self) -> None:
        """Show a conversation that was just opened, from its end."""
        self.transcript.reset()
        self.status.doing("")
        await self.show()

    async def say(self, text: str, instead_of: int | None = None) -> None:
        """Put a question; it waits for the model when that is still opening."""
        self.talk.say(text, instead_of)
        self.transcript.anchor()
        await self.answer()

    async def answer(self) -> None:
        """Have the question at the end answered."""
        self.waiting = self.talk.llm is None
        feed = self.talk.answer() if not self.waiting and self.talk.unanswered else None
        try:
            await self.show()
        finally:  # not before its bubble is there, which would miss the end of a quick answer
            if feed is not None:
                begin(feed.run, "answer")

    @property
    def busy(self) -> bool:
        return self.talk.feed is not None

    @on(RetryWanted)
    async def retry(self, event: RetryWanted) -> None:
        event.stop()
        if self.busy:
            self.notify("Esc stops the answer first.")
        else:
            self.talk.back_to_question(event.turn)
            await self.answer()

    @on(BranchWanted)
    async def branch(self, event: BranchWanted) -> None:
        event.stop()
        beside = self.talk.chat.turns[event.turn].parent
        self.talk.branch(event.turn, event.step)
        await self.show()
        shown = [b for b in self.transcript.bubbles if b.turn.parent == beside]
        if shown:
            shown[0].focus()

    @on(EarlierWanted)
    async def earlier(self, event: EarlierWanted) -> None:
        event.stop()
        first = self.transcript.bubbles[0]
        self.transcript.more()
        await self.show()
        self.transcript.scroll_to_widget(first, top=True, animate=False)

    @on(Flowing)
    def flowing(self, event: Flowing) -> None:
        event.stop()
        self.status.flowing(event.feed)
        llm, feed = self.talk.llm, event.feed
        if feed.first and feed.prompt and llm is not None:
            self.status.context(feed.prompt + feed.tokens, llm.context)

    @on(Ended)
    def ended(self, event: Ended) -> None:
        self.status.doing("")  # what it cost stands below the answer
        llm = self.talk.llm
        if isinstance(event.feed.error, Unavailable) and llm is not None and llm.server:
            self.notify("The server has gone: the model is opened again. ^r repeats the question.")
            self.open_model(llm.name, gone=llm)
        self._show_context()
        size = self.talk.llm.context if self.talk.llm is not None else None
        if meter.is_tight(self.talk.used, size):
            full = meter.context(self.talk.used, size)
            self.notify(f"The context is nearly full: {full}. ^n begins anew.", severity="warning")

    def inspect(self, turn: int) -> None:
        """Show the alternatives of an answer's tokens."""
        found, llm = self.talk.logprobs.get(turn), self.talk.llm
        if not found or llm is None:
            self.talk.records_alternatives = True
            self.notify("Alternatives are recorded from the next answer on: r asks again.")
        else:
            self.app.push_screen(Tokens(found, lambda id: llm.detokenize([id], special=True)))

    def step(self, step: int) -> bool:
        """Move the focus to the bubble before or after; False beyond the last."""
        bubbles = self.transcript.bubbles
        focused = self.screen.focused
        at = bubbles.index(focused) if isinstance(focused, Bubble) and focused in bubbles else None
        target = len(bubbles) - 1 if at is None else max(0, at + step)
        if target >= len(bubbles):
            return False
        if bubbles:
            bubbles[target].focus()
        return bool(bubbles)
