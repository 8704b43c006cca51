"""The full-screen chat: screens, theme, and everything the command palette offers."""

import os
import sys
from collections.abc import Callable, Iterable, Mapping
from typing import Any, ClassVar

from textual.app import App, SystemCommand
from textual.binding import Binding, BindingType
from textual.screen import Screen

from localllm.tui import clipboard
from localllm.tui.chat import ChatScreen
from localllm.tui.compare import CompareScreen
from localllm.tui.doors import Doors, real
from localllm.tui.history import History
from localllm.tui.shelf import Shelf
from localllm.tui.talk import Talk
from localllm.tui.themes import DARK, LIGHT

PATIENCE = 1.0  # seconds that answers and models get to end when the user quits

PALETTE = (
    ("New chat", "Begin another conversation", "new"),
    ("Change the model", "Choose among those here, or pull one", "models"),
    ("Compare with another model", "Two models side by side", "compare"),
    ("System prompt", "Tell the model how to answer, or use a preset", "system"),
    ("Sampling", "Temperature, top_p and every other knob", "panel"),
    ("Chats", "Search, open, rename, delete and export conversations", "sidebar"),
    ("Another answer", "Ask the last question again; both answers are kept", "retry"),
    ("Token alternatives", "What else the model might have said", "inspect"),
    ("Export this chat", "Write it as Markdown and JSON", "export"),
)


class ChatApp(App[None]):
    """Owns the history and the open models; screens get them handed."""

    TITLE = "localllm"
    CSS_PATH = "app.tcss"
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("ctrl+t", "theme_switch", "Light/dark", show=False),
    ]

    def __init__(
        self,
        doors: Doors,
        model: str | None = None,
        system: str = "",
        options: Mapping[str, Any] | None = None,
    ):
        super().__init__()
        self._doors = doors
        self.history = History(doors.history)
        self.shelf = Shelf(doors.open)
        self._wanted = model or self.history.setting("model") or doors.default
        self._talk = Talk(self.history, system, options)
        for theme in (DARK, LIGHT):
            self.register_theme(theme)
        kept = self.history.setting("theme") or ""
        self.theme = kept if kept in self.available_themes else DARK.name

    def get_default_screen(self) -> Screen[Any]:
        return ChatScreen(self._doors, self._talk, self.shelf, self._wanted)

    def compare(self, left: str, right: str) -> None:
        """Put two models side by side."""
        self.push_screen(CompareScreen(self._doors, self.history, self.shelf, (left, right)))

    def action_theme_switch(self) -> None:
        self.theme = LIGHT.name if self.current_theme.dark else DARK.name

    def watch_theme(self, theme: str) -> None:
        """Chosen by key or in the palette, it stays."""
        if self.is_running:
            self.history.set_setting("theme", theme)

    def copy_to_clipboard(self, text: str) -> None:
        """By OSC 52; also out of tmux, where it is allowed."""
        self._clipboard = text
        if self._driver is not None:
            self._driver.write(clipboard.sequence(text, "TMUX" in os.environ))

    def get_system_commands(self, screen: Screen[Any]) -> Iterable[SystemCommand]:
        if isinstance(screen, ChatScreen):
            for title, help, action in PALETTE:
                yield SystemCommand(title, help, getattr(screen, f"action_{action}"))
        yield SystemCommand("Light or dark", "Switch the theme", self.action_theme_switch)
        yield from super().get_system_commands(screen)

    def close(self) -> bool:
        """Stop what is under way and close models and history; False when a model hangs."""
        self._talk.stop_all(PATIENCE)
        closed = self.shelf.close(PATIENCE)
        self.history.close()
        return closed


def run(
    open_llm: Callable[..., Any],
    model: str | None = None,
    system: str = "",
    options: Mapping[str, Any] | None = None,
) -> None:
    """Open the chat with a model, else with the last one used, else with the default.

    open_llm(name, progress) opens a model; options: the sampling knobs that the user turned.
    """
    app = ChatApp(real(open_llm), model, system, options)
    closed = False
    try:
        app.run()
    finally:
        closed = app.close()
    if not closed:  # a model is still opening: nobody should have to wait for that to quit
        sys.stdout.flush()
        os._exit(app.return_code or 0)
