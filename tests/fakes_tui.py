"""An LLM with the face of the real one, whose answers a test decides."""

import threading
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any


@dataclass
class FakeDelta:
    """What streams out: text, the ids it came from, and now and then how far the prompt is."""

    text: str = ""
    ids: tuple[int, ...] = ()
    logprobs: Any = None
    progress: tuple[int, int] | None = None


class FakeReply:
    """Streams the given pieces; an exception among them is raised, a float waits that long."""

    def __init__(self, pieces: Sequence[Any], prompt_tokens: int = 12, cached: int = 0):
        self._pieces, self._stop = pieces, threading.Event()
        self._prompt, self._cached, self._made = prompt_tokens, cached, 0
        self.text, self.finish_reason = "", None
        self.started = time.perf_counter()

    def cancel(self) -> None:
        self._stop.set()

    @property
    def usage(self) -> dict[str, int]:
        return {
            "prompt_tokens": self._prompt,
            "cached_tokens": self._cached,
            "completion_tokens": self._made,
        }

    @property
    def timings(self) -> dict[str, float]:
        return {"ttft_ms": 210.0, "predicted_per_second": 42.0, "prompt_per_second": 500.0}

    def __iter__(self) -> Iterator[FakeDelta]:
        for piece in self._pieces:
            if self._stop.is_set():
                break
            if isinstance(piece, BaseException):
                raise piece
            if isinstance(piece, float):
                self._stop.wait(piece)
            elif isinstance(piece, FakeDelta):
                yield self._count(piece)
            else:
                yield self._count(FakeDelta(piece, (self._made + 1,)))
        self.finish_reason = "cancelled" if self._stop.is_set() else "stop"

    def _count(self, delta: FakeDelta) -> FakeDelta:
        self._made += len(delta.ids)
        self.text += delta.text
        return delta


@dataclass
class FakeLLM:
    """Answers with the next of `answers`, or by naming what it was asked."""

    name: str = "fake"
    answers: list[Sequence[Any]] = field(default_factory=list)
    context: int = 4096
    asked: list[tuple[list[dict], dict]] = field(default_factory=list)
    replies: list[FakeReply] = field(default_factory=list)
    closed: bool = False
    path: str = "/models/fake.gguf"
    system: str | None = None
    server: str | None = None
    template: Any = field(default_factory=lambda: SimpleNamespace(source="{{ messages }}"))
    defaults: Any = None

    def chat(self, messages: list[dict], **options: Any) -> FakeReply:
        self.asked.append(([dict(m) for m in messages], options))
        pieces = self.answers.pop(0) if self.answers else self._echo(messages)
        reply = FakeReply(pieces, prompt_tokens=sum(len(m["content"].split()) for m in messages))
        self.replies.append(reply)
        return reply

    def _echo(self, messages: list[dict]) -> list[str]:
        return [word + " " for word in f"You said: {messages[-1]['content']}".split(" ")]

    def tokenize(self, text: str, special: bool = True, bos: bool = False) -> list[int]:
        return list(range(len(text.split())))

    def detokenize(self, ids: Sequence[int], special: bool = False) -> str:
        return " ".join(f"t{i}" for i in ids)

    def close(self) -> None:
        self.closed = True

    def __enter__(self) -> "FakeLLM":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
