"""Finds a file by a few letters of its name, for @ in a message."""

from pathlib import Path
from typing import ClassVar

from textual import on, work
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Vertical
from textual.content import Content
from textual.fuzzy import Matcher
from textual.screen import ModalScreen
from textual.style import Style
from textual.widgets import Input, Label, OptionList
from textual.widgets.option_list import Option
from textual.worker import get_current_worker

from localllm.tui import attach

SHOWN = 50  # names listed
MATCH = Style(bold=True, underline=True)


class Files(ModalScreen[str | None]):
    """The name of a file below `root`, relative to it; None when the user changes their mind."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape", "dismiss(None)", "Cancel"),
        Binding("down", "move(1)", show=False),
        Binding("up", "move(-1)", show=False),
    ]

    def __init__(self, root: Path):
        super().__init__()
        self._root = root
        self._names: list[str] = []

    def compose(self) -> ComposeResult:
        with Vertical(classes="dialog tall"):
            yield Label(f"Attach a file of {self._root.name or self._root}/", markup=False)
            yield Input(placeholder="a few letters of its name", compact=True)
            yield OptionList(compact=True)

    def on_mount(self) -> None:
        self._look()

    @work(thread=True, exclusive=True)
    def _look(self) -> None:
        worker = get_current_worker()
        names = attach.files_below(self._root, lambda: worker.is_cancelled)
        self.app.call_from_thread(self._found, names)

    def _found(self, names: list[str]) -> None:
        self._names = names
        self._list(self.query_one(Input).value)

    @on(Input.Changed)
    def search(self, event: Input.Changed) -> None:
        self._list(event.value)

    def _list(self, words: str) -> None:
        options = self.query_one(OptionList)
        options.clear_options()
        if words:
            matcher = Matcher(words, match_style=MATCH)
            scored = [(matcher.match(name), name) for name in self._names]
            best = sorted((s for s in scored if s[0] > 0), key=lambda s: -s[0])[:SHOWN]
            rows = [(matcher.highlight(name), name) for _, name in best]
        else:
            rows = [(Content(name), name) for name in self._names[:SHOWN]]
        options.add_options([Option(label, id=name) for label, name in rows])
        options.highlighted = 0 if rows else None

    def action_move(self, step: int) -> None:
        options = self.query_one(OptionList)
        options.action_cursor_down() if step > 0 else options.action_cursor_up()

    @on(Input.Submitted)
    def accept(self) -> None:
        option = self.query_one(OptionList).highlighted_option
        self.dismiss(option.id if option is not None else None)

    @on(OptionList.OptionSelected)
    def click(self, event: OptionList.OptionSelected) -> None:
        self.dismiss(event.option.id)
