"""Two models side by side: each question goes to both."""

from functools import partial
from typing import ClassVar

from textual import on
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Horizontal
from textual.screen import Screen
from textual.widgets import Footer

from localllm.errors import LocalLLMError
from localllm.tui import attach
from localllm.tui.background import begin
from localllm.tui.doors import Doors
from localllm.tui.events import CopyWanted, EditWanted, FileWanted, InspectWanted, Sent
from localllm.tui.files import Files
from localllm.tui.history import History
from localllm.tui.pane import Pane
from localllm.tui.prompt import Prompt
from localllm.tui.shelf import Shelf
from localllm.tui.talk import Talk


class CompareScreen(Screen[None]):
    """Both talks are conversations of the history like any other."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape", "stop", "Stop, or back"),
        Binding("ctrl+n", "new", "New"),
    ]

    def __init__(self, doors: Doors, history: History, shelf: Shelf, models: tuple[str, str]):
        super().__init__()
        self._doors, self._shelf, self._models = doors, shelf, models
        self._talks = tuple(Talk(history) for _ in models)

    def compose(self) -> ComposeResult:
        with Horizontal():
            for side, talk in zip(("left", "right"), self._talks, strict=True):
                yield Pane(talk, self._shelf, id=side)
        yield Prompt(id="prompt")
        yield Footer(compact=True)

    def on_mount(self) -> None:
        self._prompt.focus()
        for pane, model in zip(self._panes, self._models, strict=True):
            pane.open_model(model)

    @property
    def _panes(self) -> list[Pane]:
        return list(self.query(Pane))

    @property
    def _prompt(self) -> Prompt:
        return self.query_one("#prompt", Prompt)

    @on(Sent)
    async def sent(self, event: Sent) -> None:
        if any(pane.busy or pane.waiting for pane in self._panes):
            self.notify("A model is not done yet: Esc stops both.")
            return
        try:
            text = attach.with_files(event.text, self._doors.files)
        except (LocalLLMError, OSError) as error:
            self.notify(str(error), severity="error")
            return
        self._prompt.clear()
        for pane in self._panes:
            await pane.say(text)

    @on(FileWanted)
    def file_wanted(self) -> None:
        def insert(name: str | None) -> None:
            self._prompt.insert(f'"{name}" ' if name and " " in name else f"{name or ''} ")

        self.app.push_screen(Files(self._doors.files), insert)

    @on(CopyWanted)
    def copy(self, event: CopyWanted) -> None:
        self.app.copy_to_clipboard(event.text)
        self.notify(f"Copied {event.what}.", timeout=2)

    @on(EditWanted)
    def edit(self, event: EditWanted) -> None:
        """Both sides share a prompt, so an edited message is asked anew at the end of each."""
        for pane in self._panes:
            if event.turn in pane.talk.chat.turns:
                self._prompt.put(pane.talk.chat.turns[event.turn].content)

    @on(InspectWanted)
    def inspect(self, event: InspectWanted) -> None:
        for pane in self._panes:
            if event.turn in pane.talk.chat.turns:
                pane.inspect(event.turn)

    def action_step(self, step: int) -> None:
        """Up and Down walk over the messages of the side that has the focus."""
        focused = self.focused
        panes = [p for p in self._panes if focused is not None and p in focused.ancestors]
        if not (panes or self._panes)[0].step(step):
            self._prompt.focus()

    async def action_new(self) -> None:
        for pane in self._panes:
            pane.talk.stop()
            pane.talk.new()
            await pane.reset()

    def action_stop(self) -> None:
        """Esc: stop both answers, or go back to the chat when none is under way."""
        stopped = [talk.stop() for talk in self._talks]  # both, so no any() here
        if True not in stopped:
            self.dismiss(None)

    def on_unmount(self) -> None:
        for talk in self._talks:
            talk.stop_all()
            begin(partial(self._shelf.give, talk.llm), "closing")
