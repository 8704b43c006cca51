"""A model's text as it comes, told apart into answer, reasoning and tool calls."""

import re
from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import dataclass
from typing import NamedTuple

from localllm.text.calls import read_calls

MAX_CALL = 1 << 20  # letters of a call; more is taken for text
_THOUGHTS = {  # where reasoning begins -> where it ends
    "<think>": "</think>",
    "[THINK]": "[/THINK]",
    "<|channel|>analysis<|message|>": "<|start|>assistant<|channel|>final<|message|>",
}
_PREFIXES = ("<|channel|>final<|message|>",)  # begins an answer, and is no part of it
_BARE = re.compile(r'\{\s*"(name|type|function|parameters|arguments)"')
_BARE_ENOUGH = 64  # letters after which a bare call must look like one


class Piece(NamedTuple):
    """A bit of an answer. kind: "text", "thinking", or "call" (a new tool call's name), followed
    by "arguments" (that call's JSON)."""

    kind: str
    text: str


@dataclass(frozen=True)
class Dialect:
    """How a family marks tool calls. No `closing`: up to the next `opening`, or the end. `bare`: an
    answer that is nothing but a JSON object may be a call, too."""

    name: str
    opening: str
    closing: str = ""
    bare: bool = False


DIALECTS = (
    Dialect("hermes", "<tool_call>", "</tool_call>"),
    Dialect("mistral", "[TOOL_CALLS]"),
    Dialect("llama3", "<|python_tag|>", bare=True),
)


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
    functions that a bare object may call. A call that cannot be read comes out as the text it is.
    How the text is cut changes nothing but the cuts between pieces of one kind.
    """

    def __init__(
        self,
        dialect: Dialect | None = None,
        names: Collection[str] = (),
        thinking: bool = False,
    ):
        self._dialect, self._names = dialect, frozenset(names)
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

    def flush(self) -> list[Piece]:
        """The pieces that were held back, at the end of the answer."""
        pieces = list(self._run())
        held, self._held = self._held, ""
        if self._step == self._thinking:
            return pieces + _some("thinking", held.rstrip())
        if self._step in (self._call, self._bare):
            return pieces + self._read(held, self._step == self._bare)
        return pieces + ([] if self._fresh and self._dialect else _some("text", held))

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
        elif self._dialect and self._dialect.bare and text.startswith("{"):
            return self._enter(self._bare)
        return self._enter(self._text, fresh=False)

    def _thinking(self) -> Iterable[Piece] | None:
        if self._fresh:
            self._held = self._held.lstrip()
        thought, found, rest = self._held.partition(self._closing)
        if found:
            self._held = rest
            return [*_some("thinking", thought.rstrip()), *self._enter(self._text)]
        return self._release("thinking", self._closing, spaces=True)

    def _text(self) -> Iterable[Piece] | None:
        if self._fresh:
            self._held = self._held.lstrip()
        if self._dialect is None:
            return self._release("text", "", spaces=False)
        text, found, rest = self._held.partition(self._dialect.opening)
        if found:
            self._held = rest
            return [*_some("text", text.rstrip()), *self._enter(self._call)]
        return self._release("text", self._dialect.opening, spaces=True)

    def _call(self) -> Iterable[Piece] | None:
        assert self._dialect is not None
        end = self._dialect.closing or self._dialect.opening
        body, found, rest = self._held.partition(end)
        if found:
            self._held = rest
            pieces = self._read(body + (found if self._dialect.closing else ""), False)
            called = bool(pieces) and pieces[0].kind == "call"
            after = self._text if self._dialect.closing else self._call
            return [*pieces, *self._enter(after, fresh=called)]
        if len(self._held) > MAX_CALL:
            self._held, body = "", self._dialect.opening + self._held
            return [Piece("text", body), *self._enter(self._text, fresh=False)]
        return None

    def _bare(self) -> Iterable[Piece] | None:
        text = self._held.lstrip()
        unlike = len(text) > _BARE_ENOUGH and not _BARE.match(text)
        return self._enter(self._text, fresh=False) if unlike or len(text) > MAX_CALL else None

    def _enter(self, step: Callable[[], Iterable[Piece] | None], fresh: bool = True) -> list[Piece]:
        self._step, self._fresh = step, fresh
        return []

    def _release(self, kind: str, mark: str, spaces: bool) -> Iterable[Piece] | None:
        """All but what may begin `mark`, and the spaces before it."""
        held = next((n for n in range(len(mark) - 1, 0, -1) if self._held.endswith(mark[:n])), 0)
        certain = self._held[: len(self._held) - held]
        certain = certain.rstrip() if spaces else certain
        if not certain:
            return None
        self._held, self._fresh = self._held[len(certain) :], False
        return [Piece(kind, certain)]

    def _read(self, text: str, bare: bool) -> list[Piece]:
        assert self._dialect is not None
        closing = self._dialect.closing
        body = text[: -len(closing)] if closing and text.endswith(closing) else text
        calls = read_calls(body)
        if not calls or (bare and not all(call.name in self._names for call in calls)):
            return _some("text", text if bare else self._dialect.opening + text)
        return [
            Piece(*each)
            for call in calls
            for each in (("call", call.name), ("arguments", call.arguments))
        ]


def _some(kind: str, text: str) -> list[Piece]:
    return [Piece(kind, text)] if text else []
