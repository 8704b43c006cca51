"""Ctrl-C while an answer comes: once stops the answer, twice leaves."""

import os
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

INTERRUPTED = 130


@contextmanager
def stopping(cancel: Callable[[], None]) -> Iterator[Callable[[], bool]]:
    """While inside, the first Ctrl-C calls `cancel` and the second ends the process.

    Yields a function that says whether there was one. A signal may come while this very thread
    holds a queue's lock, so `cancel` runs in a thread of its own.
    """
    pressed = threading.Event()

    def handle(*_: Any) -> None:
        if pressed.is_set():
            os._exit(INTERRUPTED)
        pressed.set()
        threading.Thread(target=cancel, daemon=True).start()

    if threading.current_thread() is not threading.main_thread():
        yield pressed.is_set  # only the main thread has signals
        return
    before = signal.signal(signal.SIGINT, handle)
    try:
        yield pressed.is_set
    finally:
        signal.signal(signal.SIGINT, before)
