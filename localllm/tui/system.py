"""The system prompt of a conversation, and presets to take it from."""

from collections.abc import Mapping
from typing import ClassVar

from textual import on
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Horizontal, Vertical
from textual.screen import ModalScreen
from textual.widgets import Label, OptionList, TextArea
from textual.widgets.option_list import Option

from localllm.tui.dialogs import Question
from localllm.tui.history import History

BUILT_IN: Mapping[str, str] = {
    "(none)": "",
    "Brief": "Answer in as few words as the question allows.",
    "Programmer": "You are a careful programmer. Give working code first, then why it works.",
    "Teacher": "Explain step by step, with one small example, in words a beginner knows.",
    "Editor": "Correct spelling and grammar of what I write, and return only the corrected text.",
    "Translator": "Translate what I write into English. Return only the translation.",
}


class SystemPrompt(ModalScreen[str | None]):
    """The new system prompt; None when it stays as it is."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("ctrl+s", "accept", "Use it", priority=True),
        Binding("ctrl+n", "save", "Save as preset", priority=True),
        Binding("escape", "dismiss(None)", "Cancel", priority=True),
    ]

    def __init__(self, text: str, history: History):
        super().__init__()
        self._text, self._history = text, history

    def compose(self) -> ComposeResult:
        with Vertical(classes="dialog tall wide"):
            yield Label("System prompt")
            with Horizontal():
                yield OptionList(id="presets", compact=True)
                yield TextArea(self._text, id="system", compact=True)
            yield Label("^s use it · ^n save as preset · Del removes one of yours", classes="hint")

    def on_mount(self) -> None:
        self._list()
        self.query_one(TextArea).focus()

    def _list(self) -> None:
        presets = self.query_one(OptionList)
        presets.clear_options()
        self._presets = {**BUILT_IN, **self._history.presets()}
        presets.add_options([Option(name, id=name) for name in self._presets])

    @on(OptionList.OptionSelected)
    def take(self, event: OptionList.OptionSelected) -> None:
        self.query_one(TextArea).text = self._presets[event.option.id or ""]

    def action_accept(self) -> None:
        self.dismiss(self.query_one(TextArea).text.strip())

    def action_save(self) -> None:
        def save(name: str | None) -> None:
            if name:
                self._history.set_preset(name, self.query_one(TextArea).text.strip())
                self._list()

        self.app.push_screen(Question("Name of the preset"), save)

    def key_delete(self) -> None:
        option = self.query_one(OptionList).highlighted_option
        if self.focused is self.query_one(OptionList) and option is not None and option.id:
            self._history.set_preset(option.id, "")
            self._list()
