"""The input line: several lines by three quotes, completion of commands, a history of its own."""

import os
from collections.abc import Callable, Iterable
from contextlib import suppress
from pathlib import Path
from typing import Any

from prompt_toolkit import PromptSession
from prompt_toolkit.completion import CompleteEvent, Completer, Completion, PathCompleter
from prompt_toolkit.document import Document
from prompt_toolkit.history import FileHistory, History, InMemoryHistory
from prompt_toolkit.input import Input
from prompt_toolkit.key_binding import KeyBindings, KeyPressEvent
from prompt_toolkit.output import Output

from localllm.tui import knobs
from localllm.tui.commands import COMMANDS, VIEWS, Desk

QUOTES = '"""'
LARGEST = 1 << 20  # bytes of history kept


def is_open(text: str) -> bool:
    """Is a message of several lines still being written?"""
    return text.count(QUOTES) % 2 == 1


def message(text: str) -> str:
    """What was written, without the quotes around several lines."""
    text = text.strip()
    if text.startswith(QUOTES) and text.endswith(QUOTES) and len(text) >= 2 * len(QUOTES):
        return text[len(QUOTES) : -len(QUOTES)].strip("\n")
    return text


class Commands(Completer):
    """Completes commands and what follows them."""

    def __init__(self, desk: Desk):
        self._desk = desk
        self._paths = PathCompleter(expanduser=True)

    def get_completions(self, document: Document, event: CompleteEvent) -> Iterable[Completion]:
        line = document.text_before_cursor
        if not line.startswith("/") or "\n" in line:
            return
        name, space, rest = line.partition(" ")
        if not space:
            for command in COMMANDS:
                if command.name.startswith(name):
                    meta = f"{command.takes}  {command.help}".strip()
                    yield Completion(command.name, -len(name), display_meta=meta)
        elif name in ("/file", "/save", "/load"):
            yield from self._paths.get_completions(Document(rest, len(rest)), event)
        else:
            for word in self._words(name):
                if word.startswith(rest):
                    yield Completion(word, -len(rest))

    def _words(self, name: str) -> list[str]:
        if name == "/model":
            return self._desk.models()
        if name == "/set":
            return [*(knob.name for knob in knobs.knobs()), *self._desk.switches]
        return {"/show": [*VIEWS], "/copy": ["code"], "/system": ["-"]}.get(name, [])


class Switched(History):
    """A history that keeps nothing while it is switched off."""

    def __init__(self, inner: History, is_on: Callable[[], bool]):
        super().__init__()
        self._inner, self._is_on = inner, is_on

    def load_history_strings(self) -> Iterable[str]:
        return self._inner.load_history_strings()

    def store_string(self, string: str) -> None:
        if self._is_on():
            with suppress(OSError):  # the disk is full: this chat has its lines in memory
                self._inner.store_string(string)


def open_history(path: Path | None, is_on: Callable[[], bool]) -> History:
    """The lines of earlier chats, in a file that only the user can read; None: this chat's only."""
    if path is None:
        return InMemoryHistory()
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        if not path.exists():
            os.close(os.open(path, os.O_CREAT | os.O_RDWR, 0o600))
        elif path.stat().st_size > LARGEST:
            recent = path.read_bytes()[-LARGEST // 2 :]
            path.write_bytes(recent[recent.find(b"\n\n#") + 1 :])
    except OSError:  # a home that may not be written
        return InMemoryHistory()
    return Switched(FileHistory(str(path)), is_on)


def line_keys() -> KeyBindings:
    """Enter sends, but breaks the line inside three quotes; Alt-Enter always breaks it."""
    keys = KeyBindings()

    @keys.add("enter")
    def _(event: KeyPressEvent) -> None:
        buffer = event.current_buffer
        if is_open(buffer.text):
            buffer.insert_text("\n")
        else:
            buffer.validate_and_handle()

    @keys.add("escape", "enter")
    def _(event: KeyPressEvent) -> None:
        event.current_buffer.insert_text("\n")

    return keys


def prompt_session(
    desk: Desk,
    history: Path | None,
    toolbar: Callable[[], Any] | None,
    input: Input | None = None,
    output: Output | None = None,
) -> "PromptSession[str]":
    """The line editor of one chat."""
    return PromptSession(
        message=">>> ",
        prompt_continuation="... ",
        multiline=True,
        key_bindings=line_keys(),
        completer=Commands(desk),
        complete_while_typing=True,
        history=open_history(history, lambda: desk.switches["history"]),
        bottom_toolbar=toolbar,
        input=input,
        output=output,
    )
