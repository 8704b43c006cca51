"""The keyboard while an answer prints: Ctrl-C is a wish, and nothing typed is echoed into it."""

import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

try:
    import termios
except ImportError:  # Windows, where the console does not echo while nobody reads
    termios = None  # type: ignore[assignment]


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


@contextmanager
def unechoed() -> Iterator[None]:
    """Keep typed keys, ^C among them, off the screen; they stay in the queue for the prompt."""
    if termios is None or not sys.stdin.isatty():
        yield
        return
    before = termios.tcgetattr(sys.stdin)
    changed = [*before]
    changed[3] &= ~termios.ECHO
    termios.tcsetattr(sys.stdin, termios.TCSADRAIN, changed)
    try:
        yield
    finally:
        termios.tcsetattr(sys.stdin, termios.TCSADRAIN, before)
