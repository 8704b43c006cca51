"""The conversations, newest first: search, choose, rename, delete, export."""

from typing import ClassVar

from rich.markup import escape
from textual import on
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Vertical
from textual.widgets import Input, OptionList
from textual.widgets.option_list import Option

from localllm.tui.dialogs import Confirm, Question
from localllm.tui.events import Chosen, ExportWanted, Removed, Renamed
from localllm.tui.history import Entry, History
from localllm.tui.terminal import printable


class Conversations(OptionList):
    """The list."""

    @property
    def chosen(self) -> int | None:
        option = self.highlighted_option
        return int(option.id) if option is not None and option.id else None


class Sidebar(Vertical):
    """Shows what the history finds for the words in the search line.

    Its keys act on the highlighted conversation.
    """

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("r", "rename", "Rename"),
        Binding("d,delete", "delete", "Delete"),
        Binding("x", "export", "Export"),
        Binding("down", "enter_list", show=False),
    ]

    def __init__(self, history: History, id: str | None = None):
        super().__init__(id=id)
        self._history = history
        self._entries: dict[int, Entry] = {}
        self._current: int | None = None

    def compose(self) -> ComposeResult:
        yield Input(placeholder="Search chats", id="search", compact=True)
        yield Conversations(id="conversations", compact=True)

    def on_mount(self) -> None:
        self.refill()

    def refill(self, current: int | None = None) -> None:
        """Ask the history again; `current`: another conversation is on the screen now."""
        self._current = current if current is not None else self._current
        found = self._history.find(self.query_one(Input).value)
        self._entries = {entry.id: entry for entry in found}
        conversations = self.query_one(Conversations)
        at = conversations.highlighted
        conversations.clear_options()
        for entry in found:
            mark = "● " if entry.id == self._current else "  "
            title = escape(printable(entry.title).replace("\n", " ")) or "(empty)"
            conversations.add_option(Option(mark + title, id=str(entry.id)))
        if current in self._entries:
            conversations.highlighted = list(self._entries).index(current)
        elif at is not None and found:
            conversations.highlighted = min(at, len(found) - 1)

    @on(Input.Changed)
    def search(self) -> None:
        self.refill()

    @on(Input.Submitted)
    def action_enter_list(self) -> None:
        conversations = self.query_one(Conversations)
        if conversations.highlighted is None and conversations.option_count:
            conversations.highlighted = 0
        conversations.focus()

    @on(OptionList.OptionSelected)
    def choose(self, event: OptionList.OptionSelected) -> None:
        event.stop()
        self.post_message(Chosen(int(event.option.id or 0)))

    def action_rename(self) -> None:
        if (number := self.query_one(Conversations).chosen) is None:
            return

        def rename(title: str | None) -> None:
            if title:
                self._history.rename(number, title)
                self.refill()
                self.post_message(Renamed(number, title))

        self.app.push_screen(Question("Rename the chat", self._entries[number].title), rename)

    def action_delete(self) -> None:
        if (number := self.query_one(Conversations).chosen) is None:
            return

        def delete(sure: bool | None) -> None:
            if sure:
                self._history.delete(number)
                self.refill()
                self.post_message(Removed(number))

        title = self._entries[number].title
        self.app.push_screen(Confirm(f"Delete “{title}” for good?"), delete)

    def action_export(self) -> None:
        if (number := self.query_one(Conversations).chosen) is not None:
            self.post_message(ExportWanted(number))
