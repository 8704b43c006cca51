"""Prompts as vectors: each goes through the engine once, and a pooled vector comes out."""

import time
from collections import deque
from collections.abc import Iterator, Sequence

import numpy as np

from localllm.engine.worker import Ticket, Worker
from localllm.errors import Busy, Cancelled, LocalLLMError
from localllm.reply import Delta, Deltas
from localllm.request import Request

AHEAD = 64  # requests that are in the engine at a time


class Embedding(Deltas):
    """Iterate for Deltas that tell progress, once and from one thread; `cancel` is for any.

    `vectors`, `usage`, `timings` and `finish_reason` wait for the end. dimensions: keep only so
    many of a vector's numbers. Raises PromptTooLong or BadRequest before anything is computed.
    """

    stop = None  # no text ends it

    def __init__(self, worker: Worker, requests: Sequence[Request], dimensions: int | None = None):
        for request in requests:
            worker.check(request)
        self._worker, self._waiting = worker, deque(requests)
        self._dimensions = dimensions
        self._running: deque[Ticket] = deque()
        self._done: list[Ticket] = []
        self._vectors: list[np.ndarray] = []
        self._cancelled = False
        self._total = sum(len(request.ids) for request in requests)
        self._began = self._ended = time.perf_counter()
        self._submit()
        super().__init__(self._read())

    def cancel(self) -> None:
        """Stop as soon as the current step is over; there are no vectors then."""
        self._cancelled |= bool(self._running)  # afterwards it is over
        for ticket in list(self._running):
            ticket.cancel()

    @property
    def vectors(self) -> np.ndarray:
        """(prompts, width or dimensions) f32, each of length 1, in the order of the prompts."""
        self._finish()
        if self._cancelled:
            raise Cancelled("The embedding was cancelled.")
        return np.stack([_unit(vector, self._dimensions) for vector in self._vectors])

    @property
    def finish_reason(self) -> str:
        self._finish()
        return "cancelled" if self._cancelled else "stop"

    @property
    def usage(self) -> dict[str, int]:
        """As Reply.usage, of all prompts together."""
        self._finish()
        keys = ("prompt_tokens", "cached_tokens", "completion_tokens")
        return {key: sum(ticket.usage[key] for ticket in self._done) for key in keys}

    @property
    def timings(self) -> dict[str, float]:
        """prompt_ms from the first prompt's submission to the last one's end; prompt_per_second."""
        seconds = max(self._ended - self._began, 1e-9)
        computed = self.usage["prompt_tokens"] - self.usage["cached_tokens"]
        return {"prompt_ms": 1000 * seconds, "prompt_per_second": computed / seconds}

    def _submit(self) -> None:
        """Keep the engine busy. Raises Busy when none of ours is in it and it takes none."""
        while self._waiting and len(self._running) < AHEAD and not self._cancelled:
            try:
                self._running.append(self._worker.submit(self._waiting[0]))
            except Busy:
                if not self._running:
                    raise
                return
            self._waiting.popleft()

    def _read(self) -> Iterator[Delta]:
        before = 0
        while self._running:
            ticket = self._running[0]
            for event in ticket:
                if event.vector is not None:
                    self._vectors.append(event.vector)
                if event.progress:
                    yield Delta(progress=(before + event.progress[0], self._total))
            before += len(ticket.request.ids)
            self._cancelled |= ticket.finish_reason == "cancelled"
            self._done.append(self._running.popleft())
            self._submit()
        self._ended = time.perf_counter()


def _unit(vector: np.ndarray, dimensions: int | None) -> np.ndarray:
    """The first numbers of a vector, scaled to length 1. Raises LocalLLMError for no numbers."""
    wide = vector[:dimensions].astype(np.float64)
    length = float(np.sqrt((wide**2).sum()))
    if not np.isfinite(length):
        raise LocalLLMError(
            "The model computed something that is not a number.",
            "The file may be damaged: try `localllm verify`.",
        )
    return (wide / (length or 1.0)).astype(np.float32)
