"""The face of an engine for all other threads: submit, cancel, and read what comes."""

import time
from collections.abc import Callable, Iterator
from queue import Empty, SimpleQueue
from typing import Any, TypeVar

from localllm.batch import Model
from localllm.engine.engine import Engine, as_user_error
from localllm.engine.loop import Loop
from localllm.engine.pace import STRETCH
from localllm.engine.sequence import Ending, Sequence
from localllm.errors import Busy, Unavailable
from localllm.request import Event, Request

T = TypeVar("T")
WAITING = 1024  # requests that may wait for a place
EACH = 30  # tokens a second that a reader with a pace still gets one by one
UNREAD = 4  # events with logits that a reader may be behind
CHECK = 0.5  # seconds between looks whether the engine still lives; lets Ctrl-C in on Windows


class Ticket:
    """A request on its way. Iterate, in one thread, for Events; `cancel` is for any thread.

    The iteration ends when the answer does, or raises what went wrong. `usage` and `timings` are
    up to date at any time and final after it; `finish_reason` is None until then, and
    "stop", "length" or "cancelled" from then on. A ticket that nobody holds any more is cancelled.

    pace: seconds from one look for Events to the next, while tokens come faster than a reader
    could see. All that came meanwhile is one Event, so that nobody wakes for each token.
    """

    def __init__(self, request: Request, engine: Engine, loop: Loop, pace: float = 0.0):
        self.request = request
        self._pace = pace
        self._look = self._looked = 0.0  # when to look again, and when that was last done
        self._held: Event | Ending | None = None  # came with the last look, to be given next
        self._engine, self._loop = engine, loop
        self._ending: Ending | None = None
        self._submitted = False
        self._events: SimpleQueue[Event | Ending] = SimpleQueue()
        events = self._events  # all that the engine holds: the ticket itself is its reader's
        self._sequence = engine.sequence(request, events.put)
        self._sequence.timings.submitted = time.perf_counter()
        if request.logit_rows:
            self._sequence.ready = lambda: events.qsize() < UNREAD

    @property
    def seed(self) -> int:
        """The seed that would give this answer again."""
        return self._sequence.sampler.seed

    @property
    def usage(self) -> dict[str, int]:
        """prompt_tokens; cached_tokens, those of them found in the tree; completion_tokens."""
        return self._sequence.usage.as_dict()

    @property
    def timings(self) -> dict[str, float]:
        """What `Timings.as_dict` has."""
        return self._sequence.timings.as_dict()

    @property
    def finish_reason(self) -> str | None:
        return self._ending.reason if self._ending else None

    @property
    def end_id(self) -> int | None:
        """The end token that ended the answer."""
        return self._ending.end_id if self._ending else None

    def cancel(self) -> None:
        """End it as soon as the step that is running is over."""
        engine, sequence = self._engine, self._sequence
        self._loop.post(lambda: engine.cancel(sequence))

    def __del__(self) -> None:
        if self._ending is None and self._submitted:
            self.cancel()

    def __iter__(self) -> Iterator[Event]:
        return self

    def __next__(self) -> Event:
        if self._ending is not None:
            raise StopIteration
        item = self._together() if self._pace else self._next()
        if isinstance(item, Event):
            if item.logits is not None:
                self._loop.post(_nothing)  # the engine may wait for us to catch up
            return item
        self._ending = item
        if item.error is not None:
            raise as_user_error(item.error)
        raise StopIteration

    def _together(self) -> Event | Ending:
        """What has come since the last look, as far as it makes one Event."""
        time.sleep(max(0.0, self._look - time.perf_counter()))
        item, self._held = self._held or self._next(), None
        while isinstance(item, Event) and self._held is None and not self._events.empty():
            more = self._events.get()
            if isinstance(more, Event) and item.takes(more):
                item.take(more)
            else:
                self._held = more
        now, tokens = time.perf_counter(), len(item.ids) if isinstance(item, Event) else 0
        quick = tokens > EACH * (now - self._looked)
        self._look = now + self._pace if quick and self._held is None else 0.0
        self._looked = now if tokens else self._looked
        return item

    def _next(self) -> Event | Ending:
        while True:
            try:
                return self._events.get(timeout=CHECK)
            except Empty:
                if not self._loop.alive and self._events.empty():
                    raise Unavailable("The engine was closed before the answer ended.") from None


class Worker:
    """An engine for `model` on a thread of its own, or on a Loop that several models share.

    max_queue: requests that may wait; budget, stretch, drafts: see Engine. The model
    stays the caller's, to be closed after this.
    """

    def __init__(
        self,
        model: Model,
        *,
        loop: Loop | None = None,
        max_queue: int = WAITING,
        budget: int | None = None,
        stretch: float = STRETCH,
        drafts: bool = True,
    ):
        self._engine = Engine(model, budget=budget, stretch=stretch, drafts=drafts)
        self._max_queue = max_queue
        self._shared = loop is not None
        self._loop = loop or Loop()
        self._loop.add(self._engine)
        self._open = True

    @property
    def context(self) -> int:
        """Tokens that prompt and answer may have together."""
        return self._engine.context

    def check(self, request: Request) -> None:
        """Raises at once what submit would raise, other than Busy."""
        self._engine.check(request)

    def submit(self, request: Request, pace: float = 0.0) -> Ticket:
        """Raises PromptTooLong, BadRequest, Busy or Unavailable at once. pace: see Ticket."""
        if not (self._open and self._loop.alive):
            raise Unavailable("The engine is closed.")
        if len(self._engine.scheduler.queue) + self._loop.mail >= self._max_queue:
            raise Busy(f"{self._max_queue} requests are waiting already.", "Try again in a moment.")
        ticket = Ticket(request, self._engine, self._loop, pace)
        sequence = ticket._sequence
        self._loop.post(lambda: self._admit(sequence))
        ticket._submitted = True
        return ticket

    def call(self, function: Callable[[Engine], T]) -> T:
        """Run function(engine) between two steps, on the engine's thread; its result."""
        result: Any = self._loop.call(lambda: function(self._engine))
        return result

    def explain(self, ids: list[int], cache_key: str = "") -> Any:
        """A Miss: where a prompt first differs from the most similar one in the cache."""
        return self.call(lambda engine: engine.explain(ids, cache_key))

    def stats(self) -> dict[str, int]:
        """Numbers for metrics, from any thread, without waiting for the engine."""
        return self._engine.stats()

    def close(self) -> None:
        """Cancel what runs and waits, and wait for the thread to end."""
        if not self._open:
            return
        self._open = False
        if self._shared:
            self._loop.remove(self._engine)
        else:
            self._loop.close()

    def __enter__(self) -> "Worker":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _admit(self, sequence: Sequence) -> None:
        self._engine.add(sequence)
        if not self._open:  # closed since
            self._engine.cancel(sequence)


def _nothing() -> None:
    """A letter that only wakes the thread."""
