"""What else a model might have said: an answer's tokens and the likeliest beside each."""

import math
from collections.abc import Callable, Sequence
from typing import Any, ClassVar

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Vertical
from textual.content import Content
from textual.screen import ModalScreen
from textual.widgets import Label, Static

from localllm.tui.terminal import cells, printable

BEFORE, AFTER = 60, 90  # tokens shown around the current one
BAR = 24  # cells of a bar for a probability of 1


class Tokens(ModalScreen[None]):
    """Left and Right walk along the tokens; the colour says how sure the model was.

    logprobs: for each token its id, logprob and top, as request.Logprob has them.
    """

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape,q", "dismiss(None)", "Close"),
        Binding("left", "walk(-1)", "Back", key_display="←"),
        Binding("right", "walk(1)", "On", key_display="→"),
        Binding("up", "unsure(-1)", "Unsure before", key_display="↑"),
        Binding("down", "unsure(1)", "Unsure after", key_display="↓"),
    ]

    def __init__(self, logprobs: Sequence[Any], text_of: Callable[[int], str]):
        super().__init__()
        self._logprobs = list(logprobs)
        self._texts = [printable(text_of(each.id)) for each in self._logprobs]
        self._text_of = text_of
        self.at = 0

    def compose(self) -> ComposeResult:
        with Vertical(classes="dialog wide"):
            yield Static(id="tokens")
            yield Static(id="alternatives")
            hint = "←→ token by token · ↑↓ to where the model was unsure · Esc closes"
            yield Label(hint, classes="hint")

    def on_mount(self) -> None:
        self._show()

    def action_walk(self, step: int) -> None:
        self.at = max(0, min(len(self._logprobs) - 1, self.at + step))
        self._show()

    def action_unsure(self, step: int) -> None:
        """To the next token that had less than even odds."""
        at = self.at + step
        while 0 <= at < len(self._logprobs):
            if self._logprobs[at].logprob < math.log(0.5):
                self.at = at
                return self._show()
            at += step

    def _show(self) -> None:
        parts = []
        for number in range(max(0, self.at - BEFORE), min(len(self._texts), self.at + AFTER)):
            sure = _style(self._logprobs[number].logprob)
            text = self._texts[number].replace("\n", "⏎\n") or "∅"
            parts.append((text, "reverse bold" if number == self.at else sure))
        self.query_one("#tokens", Static).update(Content.assemble(*parts))
        self.query_one("#alternatives", Static).update(self._table())

    def _table(self) -> Content:
        each = self._logprobs[self.at]
        rows = dict(each.top)
        rows.setdefault(each.id, each.logprob)
        texts = {id: repr(self._text_of(id)) for id in rows}
        wide = max(map(cells, texts.values()))
        lines: list[tuple[str, str]] = []
        for id, logprob in sorted(rows.items(), key=lambda row: -row[1]):
            share = math.exp(min(0.0, logprob))
            mark = "▸" if id == each.id else " "
            text = texts[id] + " " * (wide - cells(texts[id]))
            lines.append((f"{mark} {share:7.2%}  {text}  ", "bold" if id == each.id else ""))
            lines.append(("█" * round(BAR * share) + "\n", "$primary"))
        return Content.assemble(*lines)


def _style(logprob: float) -> str:
    """The colour of a token that had this log probability."""
    for least, style in ((0.9, "$text-success"), (0.5, ""), (0.1, "$text-warning")):
        if logprob >= math.log(least):
            return style
    return "$text-error"
