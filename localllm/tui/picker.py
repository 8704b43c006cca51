"""Chooses a model: its size and quantization, whether it fits, and a pull when it is not here."""

import threading
from typing import ClassVar

from rich.table import Table
from rich.text import Text
from textual import on
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Vertical
from textual.screen import ModalScreen
from textual.widgets import Input, Label, OptionList, ProgressBar
from textual.widgets.option_list import Option

from localllm.errors import Cancelled, LocalLLMError
from localllm.tui import meter
from localllm.tui.background import begin, post, seldom
from localllm.tui.doors import Choice, Doors
from localllm.tui.events import ChoicesFound, Loading, PullEnded
from localllm.tui.feed import as_error


class Picker(ModalScreen[str | None]):
    """The name of an installed model; None when the user changes their mind."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape", "leave", "Cancel"),
        Binding("down", "move(1)", show=False),
        Binding("up", "move(-1)", show=False),
    ]

    def __init__(self, doors: Doors, title: str = "Choose a model", wanted: str = ""):
        super().__init__()
        self._doors, self._title, self._wanted = doors, title, wanted
        self._choices: dict[str, Choice] = {}
        self._stop = threading.Event()
        self._pulling = False

    def compose(self) -> ComposeResult:
        with Vertical(classes="dialog tall wide"):
            yield Label(self._title, markup=False)
            yield Input(placeholder="search, or hf:user/repo, or a path", compact=True)
            yield OptionList(compact=True)
            yield ProgressBar(show_eta=True)
            yield Label("looking …", classes="hint", markup=False)

    def on_mount(self) -> None:
        self.query_one(ProgressBar).display = False
        begin(self._look, "looking")

    def _look(self) -> None:
        """On a thread of its own."""
        try:
            post(self, ChoicesFound(self._doors.choices()))
        except LocalLLMError as error:
            post(self, PullEnded("", error))

    @on(ChoicesFound)
    def found(self, event: ChoicesFound) -> None:
        choices = event.choices
        self._choices = {choice.name: choice for choice in choices}
        self._list("")
        options = self.query_one(OptionList)
        if self._wanted in self._choices:
            options.highlighted = list(self._choices).index(self._wanted)

    @on(Input.Changed)
    def search(self, event: Input.Changed) -> None:
        self._list(event.value.strip())

    def _list(self, words: str) -> None:
        options = self.query_one(OptionList)
        options.clear_options()
        names = [name for name in self._choices if words.lower() in name.lower()]
        options.add_options([Option(_row(self._choices[name]), id=name) for name in names])
        options.highlighted = 0 if names else None
        if words and not names:
            self._hint(f"Enter opens {words}")

    @on(OptionList.OptionHighlighted)
    def describe(self, event: OptionList.OptionHighlighted) -> None:
        choice = self._choices.get(event.option.id or "")
        if choice is not None and not self._pulling:
            what = "Enter opens it." if choice.installed else "Enter pulls it, then opens it."
            self._hint(f"{choice.verdict}\n{what}" if choice.verdict else what)

    def action_move(self, step: int) -> None:
        options = self.query_one(OptionList)
        options.action_cursor_down() if step > 0 else options.action_cursor_up()

    @on(Input.Submitted)
    def accept(self, event: Input.Submitted) -> None:
        option = self.query_one(OptionList).highlighted_option
        self._take(option.id if option is not None else event.value.strip())

    @on(OptionList.OptionSelected)
    def click(self, event: OptionList.OptionSelected) -> None:
        self._take(event.option.id)

    def _take(self, name: str | None) -> None:
        if not name or self._pulling:
            return
        choice = self._choices.get(name)
        if choice is not None and not choice.installed:
            self._pulling = True
            self.query_one(ProgressBar).display = True
            self._hint(f"pulling {name} …  Esc stops; a later pull goes on from there")
            begin(lambda: self._pull(name), f"pulling {name}")
        else:
            self.dismiss(name)

    def _pull(self, name: str) -> None:
        """On a thread of its own."""

        show = seldom(lambda *far: post(self, Loading(name, *far)))

        def progress(stage: str, done: int, total: int) -> None:
            if self._stop.is_set():
                raise Cancelled("The pull was stopped.")
            show(stage, done, total)

        try:
            self._doors.pull(name, progress)
        except Exception as error:
            post(self, PullEnded(name, as_error(error)))
        else:
            post(self, PullEnded(name))

    @on(Loading)
    def advance(self, event: Loading) -> None:
        event.stop()
        done, total = event.done, event.total
        self.query_one(ProgressBar).update(total=total or None, progress=done)
        size = f"{meter.size(done)} of {meter.size(total)}" if total else meter.size(done)
        self._hint(f"{event.stage}: {size}\nEsc stops; a later pull goes on from there")

    @on(PullEnded)
    def ended(self, event: PullEnded) -> None:
        event.stop()
        if event.error is None:
            self.dismiss(event.model)
            return
        self._pulling = False
        self.query_one(ProgressBar).display = False
        self._hint(f"{event.error.message}\n{event.error.hint}".strip())

    def _hint(self, text: str) -> None:
        self.query_one(".hint", Label).update(text)

    def action_leave(self) -> None:
        self._stop.set()
        self.dismiss(None)


def _row(choice: Choice) -> Table:
    """One line: name, size, quantization, and whether it is here and fits."""
    row = Table.grid(padding=(0, 1), expand=True)
    row.add_column(ratio=1, no_wrap=True, overflow="ellipsis")
    for width in (8, 8, 8, 9):
        row.add_column(width=width, no_wrap=True, justify="right")
    fits = {True: Text("fits", "green"), False: Text("too big", "red"), None: Text("")}
    here = "here" if choice.installed else "to pull"
    size = meter.size(choice.size) if choice.size else ""
    row.add_row(choice.name, size, choice.quant, here, fits[choice.fits])
    return row
