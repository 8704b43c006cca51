"""Ctrl-C while an answer prints: the first is a wish, the second an exception."""

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any


@contextmanager
def wished() -> Iterator[threading.Event]:
    """An event that the first Ctrl-C sets, so that it cannot cut through a line of ours.

    The second raises KeyboardInterrupt. Only the main thread gets signals; elsewhere the event
    stays unset.
    """
    wish = threading.Event()

    def handle(number: int, frame: Any) -> None:
        if wish.is_set():
            raise KeyboardInterrupt
        wish.set()

    if threading.current_thread() is not threading.main_thread():
        yield wish
        return
    before = signal.signal(signal.SIGINT, handle)
    try:
        yield wish
    finally:
        signal.signal(signal.SIGINT, before)
