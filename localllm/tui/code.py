"""Markdown as answers need it: code blocks with a copy button, links that ask nobody to open."""

from textual import on
from textual.app import ComposeResult
from textual.containers import Horizontal
from textual.events import Click
from textual.widgets import Label, Markdown, Static
from textual.widgets.markdown import MarkdownFence

from localllm.tui.events import CopyWanted


class CopyButton(Label):
    """Copies the code block it stands on."""

    def __init__(self) -> None:
        super().__init__("copy", classes="copy")

    def on_click(self, event: Click) -> None:
        event.stop()
        fence = next((a for a in self.ancestors if isinstance(a, Fence)), None)
        if fence is not None:
            self.post_message(CopyWanted(fence.code, "the code"))


class Fence(MarkdownFence):
    """A code block under a line with its language and the button."""

    def compose(self) -> ComposeResult:
        with Horizontal(classes="bar"):
            yield Static(self.lexer or "code", markup=False)
            yield CopyButton()
        yield from super().compose()


class Answer(Markdown):
    """The Markdown of one message; a link is copied: over ssh there is no browser to open it."""

    BLOCKS = {**Markdown.BLOCKS, "fence": Fence, "code_block": Fence}

    def __init__(self, classes: str | None = None):
        super().__init__(classes=classes, open_links=False)

    @on(Markdown.LinkClicked)
    def copy_link(self, event: Markdown.LinkClicked) -> None:
        event.stop()
        self.post_message(CopyWanted(event.href, "the link"))
