"""Sampling: every knob of how the next token is chosen, declared once."""

from collections.abc import Mapping
from dataclasses import MISSING, dataclass, field, fields, replace
from typing import Any

from localllm.errors import BadRequest

FILTERS = ("penalties", "dry", "top_n_sigma", "top_k", "typ_p", "top_p", "min_p", "xtc")
ORDER = (*FILTERS, "temperature")
KNOWN = (*ORDER, "infill")  # what may be named
SPELLINGS = {"typical_p": "typ_p", "typical": "typ_p", "temp": "temperature"}
MANY = 2**31 - 1  # as far as a count may go
BIASES, BREAKERS = 4096, 64  # entries a request may have
UNIT, SCALE, SIGNED, COUNT = (0, 1, 0.01), (0, 100, 0.05), (-100, 100, 0.05), (-1, MANY, 1)


def knob(
    default: Any, span: tuple | None, help: str, *, neutral: Any = MISSING, also: str = ""
) -> Any:
    """A field with all that a command line, an HTTP API or a slider must know about it.

    span: the lowest and highest value allowed, and a slider's step; neutral: the value that
    changes nothing (the default unless given); also: other names it goes by.
    """
    low, high, step = span or (None, None, None)
    about = {"help": help, "low": low, "high": high, "step": step, "also": tuple(also.split())}
    about["neutral"] = default if neutral is MISSING else neutral
    if isinstance(default, dict):
        return field(default_factory=dict, metadata=about)
    return field(default=default, metadata=about)


@dataclass(frozen=True, slots=True, kw_only=True)
class Sampling:
    """How the next token is chosen: llama.cpp's names, defaults and neutral values.

    Raises BadRequest for a value out of range. `fields(Sampling)` has, in `metadata`, the help,
    low, high, step, neutral and also of each.
    """

    temperature: float = knob(
        0.8, SCALE, "Higher surprises more; 0 always takes the likeliest.", neutral=1.0, also="temp"
    )
    top_k: int = knob(40, COUNT, "Keep this many of the likeliest tokens; 0: all.", neutral=0)
    top_p: float = knob(
        0.95, UNIT, "Keep the likeliest tokens that reach this probability together.", neutral=1.0
    )
    min_p: float = knob(
        0.05, UNIT, "Drop tokens below this share of the likeliest's probability.", neutral=0.0
    )
    typical_p: float = knob(
        1.0,
        UNIT,
        "Keep the least surprising surprises up to this probability.",
        also="typ_p typical",
    )
    top_n_sigma: float = knob(
        -1.0, (-1, 1000, 0.1), "Keep logits this many deviations from the best; -1: all."
    )
    xtc_probability: float = knob(
        0.0, UNIT, "How often all likely tokens but the last are dropped."
    )
    xtc_threshold: float = knob(0.1, UNIT, "What is a likely token for xtc; above 0.5 is off.")
    dynatemp_range: float = knob(0.0, SCALE, "How far uncertainty may move the temperature.")
    dynatemp_exponent: float = knob(1.0, (0, 100, 0.1), "How uncertainty maps to temperature.")
    repeat_penalty: float = knob(
        1.0,
        (0.01, 100, 0.05),
        "Makes recent tokens less likely; 1 is off.",
        also="repetition_penalty",
    )
    repeat_last_n: int = knob(
        64,
        COUNT,
        "How many tokens back the penalties look; -1: all.",
        also="penalty_last_n repetition_context_size",
    )
    presence_penalty: float = knob(0.0, SIGNED, "Taken off the logit of tokens already there.")
    frequency_penalty: float = knob(0.0, SIGNED, "The same, once for each time it is there.")
    dry_multiplier: float = knob(0.0, SCALE, "How hard repeating a passage is punished; 0 is off.")
    dry_base: float = knob(1.75, SCALE, "How fast that grows with the passage's length.")
    dry_allowed_length: int = knob(2, (0, MANY, 1), "Passages shorter than this may be repeated.")
    dry_penalty_last_n: int = knob(-1, COUNT, "How many tokens back dry looks; -1: all.")
    dry_sequence_breakers: tuple[str, ...] = knob(
        ("\n", ":", '"', "*"), None, "Texts that end a passage."
    )
    mirostat: int = knob(
        0, (0, 2, 1), "1 or 2: hold the surprise at mirostat_tau instead of filtering."
    )
    mirostat_tau: float = knob(5.0, (0, 100, 0.1), "The surprise that mirostat aims for.")
    mirostat_eta: float = knob(0.1, UNIT, "How fast mirostat corrects itself.")
    adaptive_target: float = knob(
        -1.0, (-1, 1, 0.01), "Favour tokens of about this probability; below 0: off."
    )
    adaptive_decay: float = knob(
        0.9, (0, 0.99, 0.01), "How slowly the mean that adaptive_target holds forgets."
    )
    seed: int | None = knob(
        None, (-1, 2**64 - 1, 1), "The same seed, the same answer; -1: a new one."
    )
    min_tokens: int = knob(0, (0, MANY, 1), "The answer does not end before this many tokens.")
    ignore_eos: bool = knob(False, None, "Go on after the model's end of the answer.")
    logit_bias: Mapping[int, float] = knob(
        {}, None, "Token id -> added to its logit; -inf bans it."
    )
    samplers: tuple[str, ...] = knob(ORDER, None, "The samplers to use, in order.")

    def __post_init__(self) -> None:
        for item in fields(self):
            _check(item.name, getattr(self, item.name), item.type, item.metadata)
        set_ = object.__setattr__
        set_(self, "samplers", _sampler_names(self.samplers))
        set_(self, "dry_sequence_breakers", _breakers(self.dry_sequence_breakers))
        set_(self, "logit_bias", _biases(self.logit_bias))
        if self.seed == -1:
            set_(self, "seed", None)

    @property
    def greedy(self) -> bool:
        """Whether the likeliest token is always taken."""
        return self.temperature == 0 and not self.dynatemp_range

    def changed(self, values: Mapping[str, Any]) -> "Sampling":
        """A copy with some knobs set by name (or by another name they go by); None leaves one.

        Raises BadRequest for a name that is no knob.
        """
        names = knob_names()
        unknown = [name for name in values if name not in names]
        if unknown:
            known = ", ".join(f.name for f in fields(self))
            raise BadRequest(f"There is no sampling setting {unknown[0]!r}.", f"There are {known}.")
        return replace(self, **{names[k]: v for k, v in values.items() if v is not None})


def knob_names() -> dict[str, str]:
    """Every name a knob goes by -> the field's name."""
    return {name: f.name for f in fields(Sampling) for name in (f.name, *f.metadata["also"])}


NEUTRAL = {f.name: f.metadata["neutral"] for f in fields(Sampling)}


def _check(name: str, value: Any, kind: Any, about: Mapping[str, Any]) -> None:
    if kind is bool and not isinstance(value, bool):
        raise BadRequest(f"{name} is {value!r}; it must be true or false.")
    low, high = about["low"], about["high"]
    if low is None or (value is None and kind == int | None):
        return
    number = (int, float) if kind is float else int
    if isinstance(value, bool) or not isinstance(value, number):
        wanted = "a number" if kind is float else "a whole number"
        raise BadRequest(f"{name} is {value!r}; it must be {wanted}.")
    if not low <= value <= high:  # also false for nan
        raise BadRequest(f"{name} is {value}; it must be from {low} to {high}.")


def _sampler_names(names: Any) -> tuple[str, ...]:
    if isinstance(names, str):
        names = [part for part in names.split(";") if part]
    if not isinstance(names, (list, tuple)) or not all(isinstance(n, str) for n in names):
        raise BadRequest("samplers must be a list of names, or names with ';' between.")
    names = tuple(SPELLINGS.get(name, name) for name in names)
    unknown = [name for name in names if name not in KNOWN]
    if unknown:
        raise BadRequest(f"There is no sampler {unknown[0]!r}.", f"There are {', '.join(KNOWN)}.")
    if len(set(names)) < len(names):
        raise BadRequest("A sampler is named twice in samplers.")
    return names


def _breakers(texts: Any) -> tuple[str, ...]:
    if not isinstance(texts, (list, tuple)) or not all(isinstance(t, str) and t for t in texts):
        raise BadRequest("dry_sequence_breakers must be a list of texts.")
    if len(texts) > BREAKERS or any(len(t) > BREAKERS for t in texts):
        raise BadRequest(
            f"dry_sequence_breakers may hold {BREAKERS} texts of {BREAKERS} characters."
        )
    return tuple(texts)


def _biases(biases: Any) -> dict[int, float]:
    if not isinstance(biases, Mapping) or len(biases) > BIASES:
        raise BadRequest(f"logit_bias must map at most {BIASES} token ids to numbers.")
    for id, bias in biases.items():
        if isinstance(id, bool) or not isinstance(id, int) or id < 0:
            raise BadRequest(f"logit_bias has {id!r} where a token id should be.")
        if isinstance(bias, bool) or not isinstance(bias, (int, float)) or bias != bias:
            raise BadRequest(f"logit_bias of token {id} is {bias!r}; it must be a number.")
    return {id: float(bias) for id, bias in biases.items()}
