"""The sampling panel, made from the one declaration of the knobs."""

from collections.abc import Mapping
from typing import Any, ClassVar

from textual import on
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Horizontal, Vertical, VerticalScroll
from textual.events import DescendantFocus
from textual.widgets import Input, Label, Switch

from localllm.errors import BadRequest
from localllm.sampling import Sampling
from localllm.tui import knobs
from localllm.tui.events import Turned
from localllm.tui.knobs import Knob


class Dial(Input):
    """A number; Up and Down go by the knob's step, empty means the model's default."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("up", "step(1)", "More"),
        Binding("down", "step(-1)", "Less"),
    ]

    def __init__(self, knob: Knob, value: Any):
        shown = "" if value is None else knobs.shown(value)
        super().__init__(shown, placeholder=knobs.shown(knob.default), compact=True)
        self.knob = knob

    def action_step(self, direction: int) -> None:
        step = self.knob.step or 1
        try:
            value = knobs.parse(self.knob, self.value)
        except BadRequest:
            value = None
        value = (self.knob.default or 0) if value is None else value
        value = round(value + direction * step, 6)
        low, high = self.knob.low, self.knob.high
        value = max(value, low) if low is not None else value
        value = min(value, high) if high is not None else value
        self.value = knobs.shown(value)


class Panel(Vertical):
    """A line for each knob; what the user changes is sent as Turned."""

    BINDINGS: ClassVar[list[BindingType]] = [Binding("ctrl+l", "defaults", "All defaults")]

    def compose(self) -> ComposeResult:
        yield Label("Sampling  [dim]empty: the model's default[/dim]", classes="title")
        yield VerticalScroll(id="dials", can_focus=False)
        yield Label("", id="help", markup=False)

    async def fill(self, defaults: Sampling | None, turned: Mapping[str, Any]) -> None:
        """Show every knob as a model has it by default, and as the user turned it."""
        with self.app.batch_update():
            dials = self.query_one("#dials")
            await dials.remove_children()
            rows = [self._row(knob, turned.get(knob.name)) for knob in knobs.knobs(defaults)]
            await dials.mount_all(rows)

    def _row(self, knob: Knob, value: Any) -> Horizontal:
        if knob.kind == "switch":
            switch = Switch(bool(knob.default if value is None else value), name=knob.name)
            row = Horizontal(Label(knob.name), switch, classes="knob")
        else:
            row = Horizontal(Label(knob.name), Dial(knob, value), classes="knob")
        row.set_class(value is not None, "turned")
        return row

    @on(Input.Changed)
    def dial(self, event: Input.Changed) -> None:
        event.stop()
        dial = event.input
        assert isinstance(dial, Dial) and dial.parent is not None
        try:
            value = knobs.parse(dial.knob, event.value)
        except BadRequest as error:
            dial.add_class("wrong")
            self._help(error.message)
            return
        dial.remove_class("wrong")
        self._help(dial.knob.help)
        dial.parent.set_class(value is not None, "turned")
        self.post_message(Turned(dial.knob.name, value))

    @on(Switch.Changed)
    def switch(self, event: Switch.Changed) -> None:
        event.stop()
        self.post_message(Turned(event.switch.name or "", event.value))

    def on_descendant_focus(self, event: DescendantFocus) -> None:
        name = event.widget.knob.name if isinstance(event.widget, Dial) else event.widget.name
        self._help(knobs.named(name).help if name else "")

    def _help(self, text: str) -> None:
        self.query_one("#help", Label).update(text)

    def action_defaults(self) -> None:
        for dial in self.query(Dial):
            dial.value = ""
