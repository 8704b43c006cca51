"""How many requests run at a time, how many may wait, and who is turned away."""

import asyncio
from collections import deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from localllm.errors import Busy, Unavailable


class Gate:
    """First come, first served; lives on one event loop."""

    def __init__(self, running: int, waiting: int):
        self._most_running, self._most_waiting = running, waiting
        self._queue: deque[asyncio.Future[None]] = deque()
        self.running = 0
        self.closed = False

    @property
    def waiting(self) -> int:
        return len(self._queue)

    @asynccontextmanager
    async def place(self) -> AsyncIterator[None]:
        """Wait for a place and hold it.

        Raises Busy when the queue is full, Unavailable when the server is on its way out.
        """
        if self.closed:
            raise _closing()
        if self.running < self._most_running:
            self.running += 1
        else:
            await self._wait()
        try:
            yield
        finally:
            self._leave()

    def close(self) -> None:
        """Let nobody in any more, neither who comes nor who waits."""
        self.closed = True
        while self._queue:
            turn = self._queue.popleft()
            if not turn.done():
                turn.set_exception(_closing())

    async def _wait(self) -> None:
        """Until a place is handed over: it is never free in between, so nobody overtakes."""
        if self.waiting >= self._most_waiting:
            raise Busy(f"{self.running} requests run and {self.waiting} wait.", "Try again later.")
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._queue.append(turn)
        try:
            await turn
        except asyncio.CancelledError:
            if turn.done() and not turn.cancelled() and turn.exception() is None:
                self._leave()  # the place came in the same moment
            elif turn in self._queue:
                self._queue.remove(turn)
            raise

    def _leave(self) -> None:
        while self._queue:
            turn = self._queue.popleft()
            if not turn.done():
                return turn.set_result(None)
        self.running -= 1


def _closing() -> Unavailable:
    return Unavailable("The server is shutting down.")
