"""The knobs a person may turn, read off the one declaration of Sampling; and values from text."""

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any

from localllm.errors import BadRequest
from localllm.sampling import Sampling, knob_names

WORDS = {"on": True, "true": True, "yes": True, "off": False, "false": False, "no": False}
TYPES: dict[Any, str] = {float: "number", int: "whole", int | None: "whole", bool: "switch"}


@dataclass(frozen=True)
class Knob:
    """One setting: what it does, its default and range; kind is number, whole or switch."""

    name: str
    help: str
    default: Any
    kind: str
    low: float | None = None
    high: float | None = None
    step: float | None = None


MAX_TOKENS = Knob(
    "max_tokens", "The longest answer, in tokens; auto: to its end.", None, "whole", 1
)


def knobs(defaults: Sampling | None = None) -> list[Knob]:
    """Every knob with one plain value, with a model's own defaults where it has some."""
    defaults = defaults or Sampling()
    found = [
        Knob(f.name, f.metadata["help"], getattr(defaults, f.name), TYPES[f.type], *_range(f))
        for f in fields(Sampling)
        if f.type in TYPES
    ]
    return [*found, MAX_TOKENS]


def _range(item: Any) -> tuple[Any, Any, Any]:
    return tuple(item.metadata[part] for part in ("low", "high", "step"))  # type: ignore[return-value]


def named(name: str) -> Knob:
    """The knob of that name or of another name it goes by; BadRequest when there is none."""
    every = {knob.name: knob for knob in knobs()}
    name = knob_names().get(name, name)
    if name not in every:
        raise BadRequest(f"There is no setting {name!r}.", f"There are {', '.join(every)}.")
    return every[name]


def parse(knob: Knob, text: str) -> Any:
    """The value that `text` writes, None for `auto`; BadRequest when out of kind or range."""
    text = text.strip()
    if text.lower() in ("", "auto", "default"):
        return None
    value = _value(knob, text)
    if knob.name == MAX_TOKENS.name:
        if value < 1:
            raise BadRequest("max_tokens must be 1 or more.")
    else:
        Sampling().changed({knob.name: value})
    return value


def _value(knob: Knob, text: str) -> Any:
    try:
        if knob.kind == "switch":
            return WORDS[text.lower()]
        return float(text) if knob.kind == "number" else int(text)
    except (ValueError, KeyError):
        wanted = {"switch": "on or off", "number": "a number", "whole": "a whole number"}
        raise BadRequest(f"{knob.name} must be {wanted[knob.kind]}, not {text!r}.") from None


def shown(value: Any) -> str:
    """A value as a person would type it."""
    words = {None: "auto", True: "on", False: "off"}
    return words[value] if value is None or isinstance(value, bool) else f"{value:g}"


def turned(values: Mapping[str, Any]) -> dict[str, Any]:
    """The knobs somebody turned, as options of LLM.chat."""
    return {name: value for name, value in values.items() if value is not None}
