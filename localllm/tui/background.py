"""Work that may take long, on daemon threads: quitting never waits for it."""

import threading
import time
from collections.abc import Callable
from contextlib import suppress

from textual.message import Message
from textual.message_pump import MessagePump

OFTEN = 0.1  # seconds between two reports of progress


def begin(work: Callable[[], object], name: str) -> threading.Thread:
    """Start a function on a thread of its own."""
    thread = threading.Thread(target=work, name=name, daemon=True)
    thread.start()
    return thread


def post(to: MessagePump, message: Message) -> None:
    """Send a message from such a thread; when the receiver has gone, nobody wants it any more."""
    with suppress(RuntimeError):  # the event loop is closed
        to.post_message(message)


def seldom(report: Callable[[str, int, int], None]) -> Callable[[str, int, int], None]:
    """The report of progress (stage, done, total), but not so often that it floods the screen."""
    then, before = 0.0, ""

    def maybe(stage: str, done: int, total: int) -> None:
        nonlocal then, before
        now = time.monotonic()
        if now - then >= OFTEN or stage != before:
            then, before = now, stage
            report(stage, done, total)

    return maybe
