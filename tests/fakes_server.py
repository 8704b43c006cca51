"""An LLM without a model, for the server: its answer is known, its speed is chosen by the test."""

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from localllm.cache.radix import Miss
from localllm.errors import BadRequest, NotFound, PromptTooLong, TooLarge
from localllm.request import Logprob
from localllm.sampling import Sampling
from localllm.server.lifetime import run
from localllm.server.pool import Known
from localllm.server.settings import Settings
from localllm.server.site import Site
from localllm.text.tokenizer import Part

VOCAB, BOS, EOS, PRE, SUF, MID = 261, 256, 257, 258, 259, 260
SPECIAL = {"<s>": BOS, "</s>": EOS, "<pre>": PRE, "<suf>": SUF, "<mid>": MID}


@dataclass(frozen=True)
class Delta:
    text: str = ""
    ids: tuple[int, ...] = ()
    logprobs: Any = None
    progress: tuple[int, int] | None = None


NAMES = {id: name for name, id in SPECIAL.items()}


class FakeTokenizer:
    """A byte is a token."""

    vocab_size, bos, eos, add_bos = VOCAB, BOS, EOS, True
    end_ids = frozenset({EOS})
    special_tokens = SPECIAL
    fim = {"pre": PRE, "suf": SUF, "mid": MID}

    def encode(self, text: str, special: bool = True, bos: bool = False) -> list[int]:
        return list(text.encode())

    def decode(self, ids: Sequence[int], special: bool = False) -> str:
        return b"".join(self.token_bytes(id, special) for id in ids).decode("utf-8", "replace")

    def token_bytes(self, id: int, special: bool = False) -> bytes:
        return bytes([id]) if id < 256 else NAMES[id].encode() if special and id in NAMES else b""


class FakeTemplate:
    source, supports_tools, supports_system = "{{ messages }} <tool_call>", True, True

    def render(
        self, messages: Any, tools: Any = None, add_generation_prompt: bool = True, **extra: Any
    ) -> list[Part]:
        parts = [Part(f"[{m['role']}]{m['content']}", False) for m in messages]
        parts += [Part(f"[tool]{tool['function']['name']}", True) for tool in tools or ()]
        parts += [Part(f"[{key}={value}]", True) for key, value in sorted(extra.items())]
        return parts + [Part("[assistant]", True)] * add_generation_prompt


class FakeReply:
    """One letter a step. Its end is decided by max_tokens, a stop, a mask or `cancel`."""

    def __init__(self, llm: "FakeLLM", ids: list[int], answer: str, asked: dict[str, Any]):
        self.llm, self.ids, self.asked = llm, ids, asked
        self.stop: str | None = None
        self._answer, self._made = answer, 0
        self._cancelled = threading.Event()
        self._reason = "stop"

    def __iter__(self) -> Iterator[Delta]:
        with self.llm.busy():
            yield from self._deltas()

    def _deltas(self) -> Iterator[Delta]:
        yield Delta(progress=(len(self.ids), len(self.ids)))
        limit, stops = self.asked["max_tokens"], self.asked["stop"]
        stops = (stops,) if isinstance(stops, str) else stops
        said, logprobs = "", self.asked["logprobs"]
        for id in self._ids():
            if self._cancelled.wait(self.llm.seconds) or self._cancelled.is_set():
                self._reason = "cancelled"
                return
            full = len(self.ids) + self._made >= self.llm.context
            if full or (limit is not None and self._made >= limit):
                self._reason = "length"
                return
            self._made += 1
            said += chr(id)
            if hit := next((stop for stop in stops if said.endswith(stop)), None):
                self.stop = hit
                return
            one = None if logprobs is None else [_logprob(id, logprobs)]
            yield Delta(chr(id), (id,), one)

    def _ids(self) -> Iterator[int]:
        """The answer's letters, or the lowest token that the mask allows."""
        mask = self.asked["mask"]
        if mask is None:
            yield from self._answer.encode()
            return
        while True:
            id = int(np.flatnonzero(mask.allowed())[0])
            mask.take(id)
            if id == EOS:
                return
            yield id

    def cancel(self) -> None:
        self._cancelled.set()
        self.llm.cancels += 1

    @property
    def finish_reason(self) -> str:
        return self._reason

    @property
    def usage(self) -> dict[str, int]:
        return {
            "prompt_tokens": len(self.ids), "cached_tokens": len(self.ids) // 2,
            "completion_tokens": self._made,
        }  # fmt: skip

    @property
    def timings(self) -> dict[str, float]:
        names = ("load_ms", "prompt_ms", "prompt_per_second", "predicted_ms")
        return dict.fromkeys((*names, "predicted_per_second", "ttft_ms"), 1.0)


def _logprob(id: int, top: int) -> Logprob:
    return Logprob(id, -0.5, tuple((97 + i, -1.0 - i) for i in range(top)))


@dataclass
class FakeModel:
    vocab: int = VOCAB
    width: int = 4
    architecture: str = "fake"
    parameters: int = 1000


class FakeEmbedding:
    """Of each text a vector that tells its length."""

    stop, finish_reason = None, "stop"

    def __init__(self, texts: Sequence[Any]):
        sizes = [len(text) for text in texts]
        self.vectors = np.array([[n, 1, 0, 0] for n in sizes], np.float32)
        self.usage = {"prompt_tokens": sum(sizes), "cached_tokens": 0, "completion_tokens": 0}

    def __iter__(self) -> Iterator[Delta]:
        yield Delta(progress=(1, 1))

    def cancel(self) -> None:
        pass


@dataclass
class FakeWorker:
    def explain(self, ids: list[int]) -> Miss:
        return Miss(len(ids) - 2, known=65, given=None)

    def stats(self) -> dict[str, float]:
        return {"running": 0, "queued": 0, "pages_free": 7, "preemptions": 3}


@dataclass
class FakeLLM:
    """answer: a text, or a function from the prompt's ids to one."""

    name: str = "fake"
    answer: str | Callable[[list[int]], str] = "Hello, you!"
    seconds: float = 0.0  # a token
    context: int = 4096
    template: FakeTemplate | None = field(default_factory=FakeTemplate)
    tokenizer: FakeTokenizer = field(default_factory=FakeTokenizer)
    model: FakeModel = field(default_factory=FakeModel)
    worker: FakeWorker = field(default_factory=FakeWorker)
    metadata: dict[str, Any] = field(default_factory=lambda: {"fake.context_length": 8192})
    defaults: Sampling = field(default_factory=Sampling)
    running: int = 0
    most_running: int = 0
    cancels: int = 0
    closed: bool = False
    system: str | None = None
    asked: list[dict[str, Any]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._lock = threading.Lock()

    @contextmanager
    def busy(self) -> Iterator[None]:
        with self._lock:
            self.running += 1
            self.most_running = max(self.most_running, self.running)
        try:
            yield
        finally:
            with self._lock:
                self.running -= 1

    def tokenize(self, text: str, special: bool = True, bos: bool = False) -> list[int]:
        return self.tokenizer.encode(text)

    def detokenize(self, ids: Sequence[int], special: bool = False) -> str:
        return self.tokenizer.decode(ids, special)

    def prompt(self, messages: Any, tools: Any = None, **extra: Any) -> list[int]:
        assert self.template
        text = "".join(part.text for part in self.template.render(messages, tools, **extra))
        return [BOS, *self.tokenize(text)]

    def submit(
        self, ids: Sequence[int], *, max_tokens: int | None = None, stop: Any = (),
        logprobs: int | None = None, mask: Any = None, client: str = "", cache: bool = True,
        pace: float = 0.0, **knobs: Any,
    ) -> FakeReply:  # fmt: skip
        sampling = self.defaults.changed(knobs)
        if len(ids) >= self.context:
            raise PromptTooLong(len(ids), self.context)
        asked = {"max_tokens": max_tokens, "stop": stop, "logprobs": logprobs, "mask": mask}
        self.asked.append(asked | {"sampling": sampling, "cache": cache, "ids": list(ids)})
        answer = self.answer(list(ids)) if callable(self.answer) else self.answer
        return FakeReply(self, list(ids), answer, asked)

    def embedding(self, texts: Sequence[Any], **options: Any) -> FakeEmbedding:
        return FakeEmbedding(texts)

    def logit_rows(self, ids: Sequence[int], start: int = 0) -> Iterator[tuple[int, np.ndarray]]:
        yield 0, np.zeros((len(ids), VOCAB), np.float32)

    def close(self) -> None:
        self.closed = True


class FakeLibrary:
    """Models by name; `load_seconds` is how long opening takes, `broken` ones fail."""

    def __init__(self, *llms: FakeLLM, load_seconds: float = 0.0, room: int | None = None):
        self.llms = {llm.name: llm for llm in llms or (FakeLLM(),)}
        self.load_seconds, self.room, self.broken = load_seconds, room, set[str]()
        self.steps = 1
        self.opened: list[str] = []

    def names(self) -> dict[str, Known]:
        return {name: Known(name, 1000, 1700000000) for name in self.llms}

    def find(self, name: str) -> Known | None:
        return self.names().get(name)

    def open(self, name: str, progress: Callable[[str, int, int], None]) -> FakeLLM:
        for step in range(self.steps):
            progress("weights", step, self.steps)
            time.sleep(self.load_seconds)
        open_now = [llm for other in self.llms if (llm := self.llms[other]).name in self.opened]
        if name in self.broken:
            raise BadRequest(f"/home/secret/{name}.gguf is damaged")
        if name not in self.llms:
            raise NotFound(name)
        if self.room is not None and sum(not llm.closed for llm in open_now) >= self.room:
            raise TooLarge("no room")
        self.opened.append(name)
        self.llms[name].closed = False
        return self.llms[name]

    def bytes(self, name: str) -> int:
        return 100


class One:
    """A library of one open model, which the server may close only in name."""

    def __init__(self, llm: Any):
        self.llm = llm

    def names(self) -> dict[str, Known]:
        return {self.llm.name: Known(self.llm.name, 1, 1)}

    def find(self, name: str) -> Known | None:
        return self.names().get(name)

    def open(self, name: str, progress: Callable[[str, int, int], None]) -> Any:
        return self.llm

    def bytes(self, name: str) -> int:
        return 1


@contextmanager
def serving(library: Any = None, named: Sequence[str] = (), **settings: Any) -> Iterator[Site]:
    """A real server on a loopback port, on a thread of its own; gives its Site."""
    ready, sites, failures = threading.Event(), [], []

    def work() -> None:
        chosen = {"port": 0, "grace_seconds": 1.0} | settings
        try:
            run(
                Settings(**chosen),
                library or FakeLibrary(),
                named,
                lambda _: ready.set(),
                sites.append,
            )
        except BaseException as failure:
            failures.append(failure)
            ready.set()

    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    assert ready.wait(10)
    if failures:
        raise failures[0]
    try:
        yield sites[0]
    finally:
        sites[0].stop()
        thread.join(20)
        assert not thread.is_alive(), "the server did not end"
        if failures:
            raise failures[0]


def until(true: Callable[[], bool], seconds: float = 5.0) -> bool:
    """Does it become true in time?"""
    end = time.monotonic() + seconds
    while not true() and time.monotonic() < end:
        time.sleep(0.01)
    return true()
