"""Several replies, each read by a thread of its own, as one asynchronous stream of deltas."""

import asyncio
import threading
from collections.abc import AsyncGenerator, Callable, Sequence
from concurrent.futures import Executor
from typing import Any, Protocol

from localllm.errors import Unavailable


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


End = BaseException | None  # how a reply's iteration ended
NOTHING = (-1, None, False)  # wakes up who waits for the next item
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
        self._queue: asyncio.Queue[tuple[int, Any, bool]] = asyncio.Queue()
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
                batch: Batch = []
                for index, item, ended in await self._next(ping):
                    if not ended:
                        batch.append((index, item))
                        continue
                    open_replies -= 1
                    if item is not None:
                        raise item
                self._start_predicting(batch)
                if batch or open_replies:
                    yield batch
        finally:
            self.cancel()

    def cancel(self) -> None:
        for reply in self.replies:
            reply.cancel()

    async def _next(self, ping: float) -> list[tuple[int, Any, bool]]:
        """All that is in the queue, at least one unless it stays silent."""
        left = self._deadline - self._loop.time()
        if left <= 0 and not self.late:
            self.late = True
            self.cancel()
        wait = ping if self.late else min(ping, left)
        timer = self._loop.call_later(wait, self._queue.put_nowait, NOTHING)
        try:
            items = [await self._queue.get()]
        finally:
            timer.cancel()
        while not self._queue.empty():
            items.append(self._queue.get_nowait())
        return [item for item in items if item is not NOTHING]

    def _start_predicting(self, batch: Batch) -> None:
        if batch and self._predict_seconds is not None:
            self._deadline = min(self._deadline, self._loop.time() + self._predict_seconds)
            self._predict_seconds = None

    def _read(self, index: int, reply: Reply) -> None:
        """The thread of one reply."""
        end: End = None
        try:
            for delta in reply:
                self._put(index, delta, False)
        except RuntimeError as error:
            end = error if not self._loop.is_closed() else Unavailable("The server is gone.")
        except BaseException as error:
            end = error
        try:
            self._put(index, end, True)
        except RuntimeError:
            reply.cancel()  # the loop has closed: nobody listens any more

    def _put(self, index: int, item: Any, ended: bool) -> None:
        self._loop.call_soon_threadsafe(self._queue.put_nowait, (index, item, ended))
