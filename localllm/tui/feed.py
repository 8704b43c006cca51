"""One answer on its way from the engine to the screen: written by a thread, read by the UI.

Fragments reach the disk first, and wait here merged until the screen has time for them.
"""

import threading
import time
from collections.abc import Callable
from typing import Any

from localllm.errors import LocalLLMError


class Feed:
    """`run` belongs to a worker thread; everything else may be called from any thread.

    ask() starts the reply; keep(text) puts a fragment where a crash cannot reach it; finish(feed)
    is called when nothing more will come. All three run on the worker thread.
    """

    def __init__(
        self,
        ask: Callable[[], Any],
        keep: Callable[[str], None] = lambda text: None,
        finish: Callable[["Feed"], None] = lambda feed: None,
    ):
        self._ask, self._keep, self._finish = ask, keep, finish
        self._lock = threading.Lock()
        self._parts: list[str] = []
        self._reply: Any = None
        self._cancelled = False
        self.tokens = 0
        self.progress: tuple[int, int] | None = None  # of the prompt, while it is read
        self.prompt = 0  # tokens of it, once they are known
        self.logprobs: list[Any] = []  # a request.Logprob for each token, when asked for
        self.stats: dict[str, Any] = {}
        self.error: LocalLLMError | None = None
        self.done = False
        self.started = time.monotonic()
        self.first = 0.0  # when the first token came

    def run(self) -> None:
        """Read the reply to its end; nothing is raised, `error` has it."""
        try:
            self._read()
        except Exception as error:  # a bug below us must not take the conversation down
            self.error = as_error(error)
        try:
            self._finish(self)
        except Exception as error:  # a full disk, or a history that was closed under us
            self.error = self.error or as_error(error)
        self.done = True

    def _read(self) -> None:
        reply = self._start()
        for delta in reply:
            self._add(delta)
        self.stats = {**reply.usage, **reply.timings, "finish_reason": reply.finish_reason}

    def _start(self) -> Any:
        reply = self._ask()
        with self._lock:
            self._reply = reply
            cancelled = self._cancelled
        if cancelled:
            reply.cancel()
        return reply

    def _add(self, delta: Any) -> None:
        if delta.text:
            self._keep(delta.text)
        with self._lock:
            if delta.progress:
                self.progress, self.prompt = delta.progress, delta.progress[1]
            if delta.ids or delta.text:
                self.first = self.first or time.monotonic()
                self.progress = None
            self.tokens += len(delta.ids) or bool(delta.text)
            self.logprobs.extend(delta.logprobs or ())
            self._parts.append(delta.text)

    @property
    def text(self) -> str:
        """All that has come so far."""
        with self._lock:
            return "".join(self._parts)

    def cancel(self) -> None:
        """Stop the answer, also before it has begun; what has come stays."""
        with self._lock:
            self._cancelled = True
            reply = self._reply
        if reply is not None:
            reply.cancel()

    @property
    def rate(self) -> float:
        """Tokens per second since the first."""
        elapsed = time.monotonic() - self.first if self.first else 0.0
        return (self.tokens - 1) / elapsed if elapsed > 0 and self.tokens > 1 else 0.0


def as_error(error: Exception) -> LocalLLMError:
    """Any error as one that can be shown."""
    if isinstance(error, LocalLLMError):
        return error
    return LocalLLMError(f"Something unexpected went wrong: {error!r}")
