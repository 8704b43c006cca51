"""Several replies, each read by a thread of its own, as one asynchronous stream of deltas."""

import asyncio
import itertools
import threading
from collections import deque
from collections.abc import AsyncGenerator, Callable, Sequence
from concurrent.futures import Executor
from typing import Any, NamedTuple, Protocol

from localllm.errors import Unavailable

# Seconds. A chunk costs server and `openai` client about 1 ms of processor time together, of which
# two cores that are computing have none to spare: quick tokens are read and go out together.
PACE = 0.05  # from one look of a reply's thread to the next
SPACING = 0.016  # at least, from one chunk to the next, whoever read them


class Reply(Protocol):
    """What the server wants of a reply; iterating gives deltas, the rest is known after that."""

    def __iter__(self) -> Any: ...

    def cancel(self) -> None: ...

    @property
    def usage(self) -> dict[str, int]: ...

    @property
    def timings(self) -> dict[str, float]: ...

    @property
    def finish_reason(self) -> str: ...

    @property
    def stop(self) -> str | None: ...


class Item(NamedTuple):
    """A delta of a reply, or its end: the error that ended it, or None."""

    reply: int
    value: Any
    ended: bool = False


Batch = list[tuple[int, Any]]  # (which reply, its next delta)


async def start(executor: Executor, ask: Callable[[], list[Reply]]) -> list[Reply]:
    """Run `ask` in a thread. A caller who goes away meanwhile cancels the replies it gets."""
    future = asyncio.get_running_loop().run_in_executor(executor, ask)
    try:
        return await asyncio.shield(future)
    except asyncio.CancelledError:
        future.add_done_callback(_abandon)
        raise


def _abandon(future: "asyncio.Future[list[Reply]]") -> None:
    if not future.cancelled() and future.exception() is None:
        for reply in future.result():
            reply.cancel()


class Pump:
    """The deltas of some replies, in the order in which they come.

    `seconds` is how long all of it may take, `predict_seconds` how long after the first token.
    Past either, replies are cancelled and `late` is true.
    """

    def __init__(
        self, replies: Sequence[Reply], seconds: float, predict_seconds: float | None = None
    ):
        self.replies = replies
        self.late = False
        self._loop = asyncio.get_running_loop()
        self._items: deque[Item] = deque()
        self._arrived = asyncio.Event()
        self._awake = True  # whoever empties `_items` will look again without being told
        self._next_at = 0.0
        self._deadline = self._loop.time() + seconds
        self._predict_seconds = predict_seconds

    async def batches(self, ping: float) -> AsyncGenerator[Batch, None]:
        """What has come since the last time; an empty list after `ping` seconds of silence.

        Raises what a reply raised. Leaving the generator cancels what still runs.
        """
        for index, reply in enumerate(self.replies):
            name = f"localllm-reply-{index}"
            threading.Thread(target=self._read, args=(index, reply), name=name, daemon=True).start()
        open_replies = len(self.replies)
        try:
            while open_replies:
                items = await self._next(ping)
                for item in items:
                    if item.ended and item.value is not None:
                        raise item.value
                open_replies -= sum(item.ended for item in items)
                batch = [(item.reply, item.value) for item in items if not item.ended]
                self._start_predicting(batch)
                if batch or open_replies:
                    yield batch
        finally:
            self.cancel()

    def cancel(self) -> None:
        for reply in self.replies:
            reply.cancel()

    async def _next(self, ping: float) -> list[Item]:
        """All that has come, at least one item unless it stays silent."""
        left = self._deadline - self._loop.time()
        if left <= 0 and not self.late:
            self.late = True
            self.cancel()
        if not self._items:
            await self._wait(ping if self.late else min(ping, left))
        if (early := self._next_at - self._loop.time()) > 0:
            await asyncio.sleep(early)
        self._next_at = self._loop.time() + SPACING
        return [self._items.popleft() for _ in range(len(self._items))]

    async def _wait(self, seconds: float) -> None:
        """Until an item comes, or it has been silent for so long."""
        self._arrived.clear()
        self._awake = False  # from here on, `_put` calls
        if self._items:  # it came just before
            self._awake = True
            return
        timer = self._loop.call_later(seconds, self._arrived.set)
        try:
            await self._arrived.wait()
        finally:
            timer.cancel()
            self._awake = True

    def _start_predicting(self, batch: Batch) -> None:
        if self._predict_seconds is not None and any(delta.ids for _, delta in batch):
            self._deadline = min(self._deadline, self._loop.time() + self._predict_seconds)
            self._predict_seconds = None

    def _read(self, index: int, reply: Reply) -> None:
        """The thread of one reply."""
        end: BaseException | None = None
        try:
            for delta in reply:
                self._put(Item(index, delta))
        except BaseException as error:
            end = Unavailable("The server is gone.") if self._loop.is_closed() else error
        try:
            self._put(Item(index, end, ended=True))
        except RuntimeError:
            reply.cancel()  # the loop has closed: nobody listens any more

    def _put(self, item: Item) -> None:
        self._items.append(item)
        if not self._awake:
            self._awake = True
            self._loop.call_soon_threadsafe(self._arrived.set)


def by_reply(batch: Batch) -> list[tuple[int, list[Any]]]:
    """Neighbouring deltas of one reply together."""
    groups = itertools.groupby(batch, key=lambda one: one[0])
    return [(index, [delta for _, delta in group]) for index, group in groups]


def merged(batch: Batch) -> Batch:
    """The same as one delta."""
    return [(index, _one(deltas)) for index, deltas in by_reply(batch)]


def _one(deltas: list[Any]) -> Any:
    """Text, ids and log-probabilities of all; progress as the last one has it."""
    if len(deltas) == 1:
        return deltas[0]
    logprobs = [one for delta in deltas for one in delta.logprobs or ()]
    progress = [delta.progress for delta in deltas if delta.progress]
    return type(deltas[0])(
        text="".join(delta.text for delta in deltas),
        ids=tuple(id for delta in deltas for id in delta.ids),
        logprobs=logprobs or None,
        progress=progress[-1] if progress else None,
    )
