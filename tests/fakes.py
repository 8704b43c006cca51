"""A model that answers from a script: a real LLM over a made-up tokenizer and worker."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from types import SimpleNamespace

import numpy as np

from localllm.errors import PromptTooLong
from localllm.llm import LLM
from localllm.request import Event, Logprob, Request, Timings, Usage
from localllm.text.tokenizer import Part

BOS, START, END = 256, 257, 258
SPECIAL = {"<bos>": BOS, "<start>": START, "<end>": END}
NAMES = {id: name for name, id in SPECIAL.items()}
VOCAB = 259


class Bytes:
    """A tokenizer whose ids are bytes, with three special tokens."""

    vocab_size, bos, eos, end_ids = VOCAB, BOS, END, frozenset({END})
    special_tokens, fim = SPECIAL, {}

    def __init__(self, add_bos: bool = False):
        self.add_bos = add_bos

    def encode(self, text: str, special: bool = True, bos: bool = False) -> list[int]:
        ids = [BOS] if bos else []
        while text:
            found = [name for name in SPECIAL if special and text.startswith(name)]
            head = found[0] if found else text[0]
            ids.extend([SPECIAL[head]] if found else head.encode())
            text = text[len(head) :]
        return ids

    def encode_parts(self, parts: Sequence[Part]) -> list[int]:
        return [id for part in parts for id in self.encode(part.text, special=part.trusted)]

    def token_bytes(self, id: int, special: bool = False) -> bytes:
        return bytes([id]) if id < 256 else NAMES[id].encode() if special else b""

    def decode(self, ids: Sequence[int], special: bool = False) -> str:
        return b"".join(self.token_bytes(id, special) for id in ids).decode("utf-8", "replace")


class Template:
    """Every message between <start> and <end>."""

    source, supports_tools, supports_system = "fake", False, True

    def render(self, messages, tools=None, add_generation_prompt=True, **extra) -> list[Part]:
        parts = []
        for message in messages:
            parts.append(Part("<start>" + message["role"] + " ", True))
            parts.append(Part(message["content"], False))
            parts.append(Part("<end>", True))
        return [*parts, Part("<start>", True)] if add_generation_prompt else parts


class Ticket:
    """Delivers the script's bytes, a token an event, until it is cancelled."""

    def __init__(self, request: Request, script: bytes, pace: int = 1):
        self.request, self.cancelled, self.pace = request, False, pace
        self.ids, self.finish_reason = list(script), ""
        self._usage = Usage(prompt_tokens=len(request.ids))
        self._times = Timings(submitted=1.0, admitted=1.0, prompted=1.5, first=1.5, ended=2.5)
        self._times.computed_tokens = len(request.ids)
        self.seed = 1 if request.sampling.seed is None else request.sampling.seed

    @property
    def usage(self) -> dict[str, int]:
        return self._usage.as_dict()

    @property
    def timings(self) -> dict[str, float]:
        return self._times.as_dict()

    def __iter__(self) -> Iterator[Event]:
        limit = len(self.ids) if self.request.max_tokens is None else self.request.max_tokens
        yield Event(progress=(len(self.request.ids), len(self.request.ids)))
        while self.ids and not self.cancelled and self._usage.completion_tokens < limit:
            ids = [self.ids.pop(0) for _ in range(min(self.pace, len(self.ids)))]
            self._usage.completion_tokens += len(ids)
            self._times.predicted_tokens += len(ids)
            wanted = self.request.logprobs is not None
            yield Event(ids, [Logprob(id, -0.5) for id in ids] if wanted else None)
        self.finish_reason = "cancelled" if self.cancelled else "length" if self.ids else "stop"

    def cancel(self) -> None:
        self.cancelled = True


class Worker:
    """Keeps what it was asked, and answers with the next of its scripts."""

    def __init__(self, *scripts: str, context: int = 4096, pace: int = 1):
        self.context = context
        self.scripts, self.requests, self.pace = list(scripts), [], pace
        self.closed = False

    def submit(self, request: Request, pace: float = 0.0) -> Ticket:
        if len(request.ids) >= self.context:
            raise PromptTooLong(len(request.ids), self.context)
        self.requests.append(request)
        if request.logit_rows:
            return self._logits(request)
        script = self.scripts.pop(0) if len(self.scripts) > 1 else self.scripts[0]
        return Ticket(request, script.encode(), self.pace)

    def _logits(self, request: Request) -> Iterator[Event]:
        """Rows that expect, very surely, the id after the one they stand at; three at a time."""
        rows = np.full((len(request.ids), VOCAB), -8.0, np.float32)
        rows[np.arange(len(rows)), (np.array(request.ids) + 1) % VOCAB] = 8.0
        for start in range(request.logit_start, len(rows), 3):
            yield Event(logits=rows[start : start + 3], start=start)

    def close(self) -> None:
        self.closed = True


def fake_llm(
    *scripts: str, add_bos: bool = False, template: bool = True, context: int = 4096, pace: int = 1
) -> LLM:
    """An LLM that answers with the scripts in turn, the last one for ever."""
    worker = Worker(*(scripts or ("Hello.",)), context=context, pace=pace)
    text = (Bytes(add_bos), Template() if template else None)
    model = SimpleNamespace(vocab=VOCAB, close=lambda: None)
    return LLM("fake", Path("fake.gguf"), {}, text, model, worker, load_ms=1.0)  # type: ignore
