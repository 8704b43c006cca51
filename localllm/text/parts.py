"""A model's text as it comes, told apart into answer, reasoning and tool calls."""

import re
from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import dataclass
from typing import NamedTuple

from localllm.text.calls import read_calls, read_cut

MAX_CALL = 1 << 20  # letters of a call; more is taken for text
_THOUGHTS = {  # where reasoning begins -> where it ends
    "<think>": "</think>",
    "[THINK]": "[/THINK]",
    "<|channel|>analysis<|message|>": "<|start|>assistant<|channel|>final<|message|>",
}
_PREFIXES = ("<|channel|>final<|message|>",)  # begins an answer, and is no part of it
_LIKE_CALL = re.compile(r'[\[{\s]*\{\s*"(name|type|function|parameters|arguments)"')
_ENOUGH = 64  # letters after which a call without marks of its own must look like one


class Piece(NamedTuple):
    """A bit of an answer. kind: "text", "thinking", or "call" (a new tool call's name), followed
    by "arguments" (that call's JSON)."""

    kind: str
    text: str


@dataclass(frozen=True)
class Dialect:
    """How a family marks tool calls. No `closing`: up to the next `opening`, or the end. `loose`:
    its models also write calls with no mark: an answer that is nothing but JSON, or JSON in a
    fence."""

    name: str
    opening: str
    closing: str = ""
    loose: bool = False


DIALECTS = (
    Dialect("hermes", "<tool_call>", "</tool_call>", loose=True),
    Dialect("mistral", "[TOOL_CALLS]"),
    Dialect("llama3", "<|python_tag|>", loose=True),
)
_FENCES = (("```json", "\n```"), ("```tool_call", "\n```"), ("<tools>", "</tools>"))


def dialect_of(template: str) -> Dialect | None:
    """The dialect of the model with this chat template, if it writes calls in one we know."""
    for dialect in DIALECTS:
        if dialect.opening in template:
            return dialect
    return DIALECTS[2] if '"parameters"' in template and "<|eot_id|>" in template else None


def opens_thinking(prompt: str) -> bool:
    """Whether a prompt ends inside of reasoning, so that the answer begins there."""
    return prompt.rstrip().endswith(tuple(_THOUGHTS))


class Parts:
    """Push text, get pieces. What it cannot tell yet is held back; `flush` gives the rest.

    Reasoning is only looked for at the beginning, calls only with a `dialect`; `names` are the
    functions that a call without the dialect's mark may be of. A call that cannot be read comes
    out as the text it is.
    How the text is cut changes nothing but the cuts between pieces of one kind.
    """

    def __init__(
        self,
        dialect: Dialect | None = None,
        names: Collection[str] = (),
        thinking: bool = False,
    ):
        self._dialect, self._names = dialect, frozenset(names)
        own = [(dialect.opening, dialect.closing)] if dialect else []
        self._marks = dict(own + [*_FENCES] * bool(dialect and dialect.loose))
        self._mark = ""  # that opened the present call; none for an answer that is nothing else
        self._before = ""  # the spaces before that mark
        self._closing = next(iter(_THOUGHTS.values()))
        self._held = ""
        self._step: Callable[[], Iterable[Piece] | None] = (
            self._thinking if thinking else self._start
        )
        self._fresh = True  # nothing of the present kind has come yet: leading spaces are dropped

    def push(self, text: str) -> list[Piece]:
        """The pieces that are certain now."""
        self._held += text
        return list(self._run())

    def flush(self, cut: bool = False) -> list[Piece]:
        """The pieces that were held back, at the end of the answer; cut: it ends too early, so that
        the arguments of its last call may be half of a JSON object, or lack."""
        pieces = list(self._run())
        held, self._held = self._held, ""
        if self._step == self._thinking:
            return pieces + _some("thinking", held.rstrip())
        if self._step == self._call:
            return pieces + self._read(held, cut)
        return pieces + _some("text", held.lstrip() if self._fresh and self._dialect else held)

    def _run(self) -> Iterator[Piece]:
        while (pieces := self._step()) is not None:
            yield from pieces

    # Each step returns its pieces when it moved on, None when it needs more text.

    def _start(self) -> Iterable[Piece] | None:
        text = self._held.lstrip()
        marks = (*_THOUGHTS, *_PREFIXES)
        found = next((mark for mark in marks if text.startswith(mark)), None)
        if found is None and any(mark.startswith(text) for mark in marks):
            return None
        if found in _THOUGHTS:
            self._closing, self._held = _THOUGHTS[found], text[len(found) :]
            return self._enter(self._thinking)
        if found:
            self._held = text[len(found) :]
        return self._enter(self._open, fresh=False)

    def _open(self) -> Iterable[Piece] | None:
        """Whether all that follows may be a call."""
        if self._dialect is None or not self._dialect.loose:
            return self._enter(self._text, self._fresh)
        text = self._held.lstrip()
        if text.startswith("{"):
            self._before = self._mark = ""
            return self._enter(self._call)
        return self._enter(self._text, self._fresh) if text else None

    def _thinking(self) -> Iterable[Piece] | None:
        if self._fresh:
            self._held = self._held.lstrip()
        thought, found, rest = self._held.partition(self._closing)
        if found:
            self._held = rest
            return [*_some("thinking", thought.rstrip()), *self._enter(self._open)]
        return self._release("thinking", self._closing, spaces=True)

    def _text(self) -> Iterable[Piece] | None:
        if self._fresh:
            self._held = self._held.lstrip()
        places = {self._held.find(mark): mark for mark in self._marks if mark in self._held}
        if places:
            at = min(places)
            self._mark = places[at]
            text, self._held = self._held[:at], self._held[at + len(self._mark) :]
            certain = text.rstrip()
            self._before = text[len(certain) :]
            return [*_some("text", certain), *self._enter(self._call)]
        return self._release("text", *self._marks, spaces=bool(self._marks))

    def _call(self) -> Iterable[Piece] | None:
        closing = self._marks.get(self._mark, "")
        body, found, rest = self._held.partition(closing or self._mark or "\0")
        start = body.lstrip()
        unlike = self._loose and len(start) > _ENOUGH and not _LIKE_CALL.match(start)
        if unlike or len(body) > MAX_CALL:
            shown = self._before + self._mark
            return [*_some("text", shown), *self._enter(self._text, fresh=False)]
        if not found:
            return None
        self._held = rest
        pieces = self._read(body + found if closing else body)
        called, self._before = bool(pieces) and pieces[0].kind == "call", ""
        return [*pieces, *self._enter(self._text if closing else self._call, fresh=called)]

    def _enter(self, step: Callable[[], Iterable[Piece] | None], fresh: bool = True) -> list[Piece]:
        self._step, self._fresh = step, fresh
        return []

    def _release(self, kind: str, *marks: str, spaces: bool) -> Iterable[Piece] | None:
        """All but what may begin a mark, and the spaces before it."""
        held = max((_begun(self._held, mark) for mark in marks), default=0)
        certain = self._held[: len(self._held) - held]
        certain = certain.rstrip() if spaces else certain
        if not certain:
            return None
        self._held, self._fresh = self._held[len(certain) :], False
        return [Piece(kind, certain)]

    @property
    def _loose(self) -> bool:
        """Whether the present call has no mark of the dialect's own."""
        return self._dialect is not None and self._mark != self._dialect.opening

    def _read(self, text: str, cut: bool = False) -> list[Piece]:
        closing = self._marks.get(self._mark, "").strip()
        body = text.rstrip().removesuffix(closing) if closing else text
        calls, known = read_calls(body), not self._loose
        if cut and not calls:
            calls, known = read_cut(body), False
        if not calls or not (known or all(call.name in self._names for call in calls)):
            return _some("text", self._before + self._mark + text)
        return [
            piece
            for call in calls
            for piece in (Piece("call", call.name), *_some("arguments", call.arguments))
        ]


def _begun(text: str, mark: str) -> int:
    """How many letters at the end of a text may be the beginning of a mark."""
    return next((n for n in range(len(mark) - 1, 0, -1) if text.endswith(mark[:n])), 0)


def _some(kind: str, text: str) -> list[Piece]:
    return [Piece(kind, text)] if text else []
