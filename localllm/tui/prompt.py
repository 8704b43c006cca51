"""The input: Enter sends, Ctrl-J or Shift-Enter breaks the line, @ asks for a file."""

from typing import ClassVar

from textual.binding import Binding, BindingType
from textual.events import Key
from textual.widgets import TextArea

from localllm.tui.events import FileWanted, Sent


class Prompt(TextArea):
    """A few lines of text. A paste with newlines in it does not send."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("enter", "send", "Send", show=False),
        Binding("ctrl+j,shift+enter,alt+enter", "newline", "Newline", key_display="^j"),
    ]

    def __init__(self, id: str | None = None):
        super().__init__(id=id, placeholder="Ask something · @ attaches a file", compact=True)

    def action_send(self) -> None:
        if text := self.text.strip():
            self.post_message(Sent(text))

    def action_newline(self) -> None:
        self.insert("\n")

    def on_key(self, event: Key) -> None:
        """Enter sends; @ at the start of a word asks for a file; Up leaves an empty prompt.

        Enter is handled here, in order with the letters before it: a priority binding would
        overtake letters that came in the same burst.
        """
        row, column = self.cursor_location
        before = self.document.get_line(row)[:column]
        if event.key == "enter":
            event.stop()
            event.prevent_default()
            self.action_send()
        elif event.character == "@" and (not before or before[-1].isspace()):
            self.post_message(FileWanted())
        elif event.key == "up" and not self.text:
            event.stop()
            event.prevent_default()
            self.screen.action_step(-1)  # type: ignore[attr-defined]

    def put(self, text: str) -> None:
        """Replace what is written, with the cursor behind it."""
        self.text = text
        self.move_cursor(self.document.end)
        self.focus()
