"""The one thread that computes: engines take turns on it, step by step; others send it mail."""

import logging
import sys
import threading
from collections.abc import Callable
from concurrent.futures import Future, wait
from queue import SimpleQueue
from typing import Any

from localllm.engine.engine import Engine
from localllm.errors import Unavailable

log = logging.getLogger(__name__)

SWITCH = 0.001  # seconds
CHECK = 0.5  # seconds between looks whether the thread still lives


class Loop:
    """Runs until closed. Everything but `_run` and what it calls is for any thread.

    From then on, a thread that computes in Python gives way after 1 ms rather than Python's 5:
    the engine asks for the interpreter between two forward passes that may take 2 ms. Beside a
    thread that counts without end, steps of 2 ms gave 103 tokens/s instead of 10.
    """

    def __init__(self) -> None:
        self._engines: list[Engine] = []
        self._mail: SimpleQueue[Callable[[], None]] = SimpleQueue()
        self._open = True
        sys.setswitchinterval(min(sys.getswitchinterval(), SWITCH))
        self._thread = threading.Thread(target=self._run, name="localllm-engine", daemon=True)
        self._thread.start()

    @property
    def alive(self) -> bool:
        return self._open and self._thread.is_alive()

    @property
    def mail(self) -> int:
        """Letters that were not opened yet."""
        return self._mail.qsize()

    def post(self, letter: Callable[[], None]) -> None:
        """Have the thread call this between two steps."""
        self._mail.put(letter)

    def call(self, function: Callable[[], Any]) -> Any:
        """The same, and wait for what it returns or raises."""
        if threading.current_thread() is self._thread:
            return function()
        if not self.alive:
            raise Unavailable("The engine is closed.")
        future: Future[Any] = Future()

        def letter() -> None:
            try:
                future.set_result(function())
            except BaseException as error:
                future.set_exception(error)

        self.post(letter)
        while not future.done() and self._thread.is_alive():
            wait([future], timeout=CHECK)
        if not future.done():
            raise Unavailable("The engine was closed.")
        return future.result()

    def add(self, engine: Engine) -> None:
        self.call(lambda: self._engines.append(engine))

    def remove(self, engine: Engine) -> None:
        """Its requests end as cancelled."""
        self.call(lambda: self._dismiss(engine))

    def close(self) -> None:
        """End all requests, and wait for the thread to end."""
        if self.alive:
            self.call(self._stop)
        if threading.current_thread() is not self._thread:
            self._thread.join()

    # ---- the thread

    def _run(self) -> None:
        idle = True
        while self._open:
            while self._open and (idle or not self._mail.empty()):
                _open(self._mail.get())
                idle = False
            advanced = [self._step(engine) for engine in self._engines if engine.busy]
            idle = not any(advanced)
        while not self._mail.empty():  # letters that came with the last: their senders may wait
            _open(self._mail.get())

    def _step(self, engine: Engine) -> bool:
        try:
            return engine.step()
        except Exception as error:  # ours: no request may hang for it, and others may go on
            log.exception("a step of the engine failed")
            engine.fail(list(engine.scheduler.running) or list(engine.scheduler.queue), error)
            return True

    def _dismiss(self, engine: Engine) -> None:
        for sequence in [*engine.scheduler.running, *engine.scheduler.queue]:
            engine.cancel(sequence)
        self._engines.remove(engine)

    def _stop(self) -> None:
        for engine in list(self._engines):
            self._dismiss(engine)
        self._open = False


def _open(letter: Callable[[], None]) -> None:
    try:
        letter()
    except Exception:  # ours; the thread must outlive it
        log.exception("a message to the engine failed")
