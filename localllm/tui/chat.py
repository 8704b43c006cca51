"""The chat screen: conversations on the left, the talk in the middle, sampling on the right."""

import re
from pathlib import Path
from typing import Any, ClassVar

from textual import on
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Horizontal, Vertical
from textual.screen import Screen
from textual.widgets import Footer, Label

from localllm.errors import LocalLLMError
from localllm.tui import attach, clipboard, export
from localllm.tui.doors import Doors
from localllm.tui.events import (
    Chosen,
    CopyWanted,
    EditWanted,
    Ended,
    ExportWanted,
    FileWanted,
    InspectWanted,
    Opened,
    OpenFailed,
    Removed,
    Renamed,
    RetryWanted,
    Sent,
    Turned,
)
from localllm.tui.files import Files
from localllm.tui.pane import Pane
from localllm.tui.panel import Panel
from localllm.tui.picker import Picker
from localllm.tui.prompt import Prompt
from localllm.tui.shelf import Shelf
from localllm.tui.sidebar import Sidebar
from localllm.tui.system import SystemPrompt
from localllm.tui.talk import Talk

WIDE = 100  # columns from which the sidebar is shown without being asked for


class ChatScreen(Screen[None]):
    """Takes what widgets ask for and hands it to the talk."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape", "stop", "Stop"),
        Binding("ctrl+n", "new", "New"),
        Binding("ctrl+o", "models", "Model"),
        Binding("ctrl+r", "retry", "Retry"),
        Binding("ctrl+s", "sidebar", "Chats"),
        Binding("ctrl+g", "panel", "Sampling"),
        Binding("f2", "system", "System", show=False),
        Binding("f3", "inspect", "Tokens", show=False),
        Binding("f4", "compare", "Compare", show=False),
    ]

    def __init__(self, doors: Doors, talk: Talk, shelf: Shelf, model: str):
        super().__init__()
        self._doors, self._talk, self._shelf, self._model = doors, talk, shelf, model
        self._editing: int | None = None
        self._warned = False
        self._sidebar_wanted: bool | None = None  # None: as the width allows

    def compose(self) -> ComposeResult:
        with Horizontal():
            yield Sidebar(self._talk.history, id="sidebar")
            with Vertical(id="middle"):
                yield Pane(self._talk, self._shelf, id="pane")
                yield Label("", id="editing", markup=False)
                yield Prompt(id="prompt")
            yield Panel(id="panel")
        yield Footer(compact=True)

    def on_mount(self) -> None:
        self.query_one("#panel").display = False
        self.query_one("#editing").display = False
        self._prompt.focus()
        self.call_after_refresh(self._pane.open_model, self._model)
        self._warn()

    def on_resize(self) -> None:
        wanted = self._sidebar_wanted
        self._sidebar.display = self.size.width >= WIDE if wanted is None else wanted

    @property
    def _pane(self) -> Pane:
        return self.query_one("#pane", Pane)

    @property
    def _prompt(self) -> Prompt:
        return self.query_one("#prompt", Prompt)

    @property
    def _sidebar(self) -> Sidebar:
        return self.query_one("#sidebar", Sidebar)

    # --- talking -----------------------------------------------------------------------------

    @on(Sent)
    async def sent(self, event: Sent) -> None:
        if self._pane.busy:
            self.notify("The model is still answering: Esc stops it.")
            return
        if self._pane.waiting:
            self.notify("The question before waits for a model: ^o chooses one.")
            return
        try:
            text = attach.with_files(event.text, self._doors.files)
        except (LocalLLMError, OSError) as error:
            self.notify(str(error), severity="error")
            return
        editing = self._editing
        self._edit(None)
        self._prompt.clear()
        await self._pane.say(text, editing)
        self._sidebar.refill(self._talk.chat.id)

    def action_stop(self) -> None:
        """Esc: stop the answer, else leave an edit, else go to the prompt."""
        if not self._talk.stop() and self._editing is not None:
            self._edit(None)
            self._prompt.clear()
        self._prompt.focus()

    @on(Ended)
    def ended(self) -> None:
        self._sidebar.refill()
        self._warn()

    def _warn(self) -> None:
        """Say once that chats are not kept."""
        trouble = self._talk.history.trouble
        if trouble and not self._warned:
            self._warned = True
            text = f"Chats are lost when you leave: {trouble}. ^p exports this one."
            self.notify(text, severity="warning", timeout=20)

    def action_retry(self) -> None:
        turn = self._talk.last("assistant") or self._talk.last("user")
        if turn is not None:
            self._pane.post_message(RetryWanted(turn.id))

    @on(EditWanted)
    def edit(self, event: EditWanted) -> None:
        if self._pane.busy:
            self.notify("Esc stops the answer first.")
            return
        self._edit(event.turn)
        self._prompt.put(self._talk.chat.turns[event.turn].content)

    def _edit(self, turn: int | None) -> None:
        self._editing = turn
        label = self.query_one("#editing", Label)
        label.display = turn is not None
        label.update("Editing an earlier message: Enter sends it as a new branch, Esc leaves it")

    def action_step(self, step: int) -> None:
        """Up and Down walk over the messages, and back to the prompt below the last."""
        if not self._pane.step(step):
            self._prompt.focus()

    @on(FileWanted)
    def file_wanted(self) -> None:
        def insert(name: str | None) -> None:
            if name:
                self._prompt.insert(f'"{name}" ' if " " in name else f"{name} ")
            self._prompt.focus()

        self.app.push_screen(Files(self._doors.files), insert)

    @on(CopyWanted)
    def copy(self, event: CopyWanted) -> None:
        self.app.copy_to_clipboard(event.text)
        lost = len(event.text.encode()) * 4 // 3 > clipboard.LARGEST
        what = f"the beginning of {event.what}" if lost else event.what
        self.notify(f"Copied {what}.", timeout=2)

    # --- conversations -----------------------------------------------------------------------

    async def action_new(self) -> None:
        self._talk.new()
        self._edit(None)
        await self._pane.reset()
        self._sidebar.refill(0)
        self._prompt.focus()

    @on(Chosen)
    async def chosen(self, event: Chosen) -> None:
        try:
            self._talk.open(event.conversation)
        except LocalLLMError as error:
            self.notify(error.message, severity="error")
            return
        self._edit(None)
        await self._pane.reset()
        self._sidebar.refill(event.conversation)
        self._prompt.focus()

    @on(Removed)
    async def removed(self, event: Removed) -> None:
        if event.conversation == self._talk.chat.id:
            self._talk.stop()
            await self.action_new()

    @on(Renamed)
    def renamed(self, event: Renamed) -> None:
        if event.conversation == self._talk.chat.id:
            self._talk.chat.title = event.title

    @on(ExportWanted)
    def export(self, event: ExportWanted) -> None:
        try:
            chat = self._talk.history.get(event.conversation)
            stem = re.sub(r"[^\w-]+", "-", chat.title).strip("-")[:40] or f"chat-{chat.id}"
            paths = [Path(f"{stem}.md").absolute(), Path(f"{stem}.json").absolute()]
            for path in paths:
                export.write(path, chat.title, chat.model, chat.messages())
        except (LocalLLMError, OSError) as error:
            self.notify(str(error), severity="error")
        else:
            self.notify(f"Written: {paths[0]} and .json")

    def action_export(self) -> None:
        if self._talk.chat.id:
            self.export(ExportWanted(self._talk.chat.id))

    def action_sidebar(self) -> None:
        """Show the chats and go to them, or hide them when one is there already."""
        inside = self.focused is not None and self._sidebar in self.focused.ancestors
        self._sidebar_wanted = not (self._sidebar.display and inside)
        self._sidebar.display = self._sidebar_wanted
        if self._sidebar_wanted:
            self._sidebar.query_one("#search").focus()
        else:
            self._prompt.focus()

    # --- model and settings ------------------------------------------------------------------

    def action_models(self) -> None:
        def opened(name: str | None) -> None:
            if name:
                self._pane.open_model(name)
            self._prompt.focus()

        self.app.push_screen(Picker(self._doors, wanted=self._model), opened)

    @on(Opened)
    async def opened(self, event: Opened) -> None:
        self._model = event.model
        self._talk.history.set_setting("model", event.model)
        if self.query_one(Panel).display:
            await self._fill_panel()

    @on(OpenFailed)
    def open_failed(self) -> None:
        if self._talk.llm is None and self.app.screen is self:
            self.action_models()

    async def action_panel(self) -> None:
        panel = self.query_one(Panel)
        panel.display = not panel.display
        if panel.display:
            await self._fill_panel()
            self.call_after_refresh(self._focus_panel)
        else:
            self._prompt.focus()

    def _focus_panel(self) -> None:
        self.query_one(Panel).query("Dial").first().focus()

    async def _fill_panel(self) -> None:
        llm: Any = self._talk.llm
        defaults = llm.defaults if llm is not None else None
        await self.query_one(Panel).fill(defaults, self._talk.options)

    @on(Turned)
    def turned(self, event: Turned) -> None:
        self._talk.options[event.name] = event.value

    def action_system(self) -> None:
        def use(text: str | None) -> None:
            if text is not None:
                self._talk.set_system(text)
            self._prompt.focus()

        self.app.push_screen(SystemPrompt(self._talk.chat.system, self._talk.history), use)

    @on(InspectWanted)
    def inspect(self, event: InspectWanted) -> None:
        self._pane.inspect(event.turn)

    def action_inspect(self) -> None:
        if (turn := self._talk.last("assistant")) is not None:
            self._pane.inspect(turn.id)

    def action_compare(self) -> None:
        def begin(name: str | None) -> None:
            if name:
                self.app.compare(self._model, name)  # type: ignore[attr-defined]

        self.app.push_screen(Picker(self._doors, "Compare with"), begin)
