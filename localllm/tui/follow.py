"""Reads a reply on a thread of its own, so that its reader can look up now and then."""

import queue
import threading
from collections.abc import Iterable
from typing import Any

END = object()


class Follower:
    """Deltas of one reply, in order; after the last, END; an error of the reply is raised here."""

    def __init__(self, reply: Iterable[Any]):
        self._reply = reply
        self._queue: queue.SimpleQueue[Any] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._read, name="reply", daemon=True)
        self._thread.start()

    def take(self, seconds: float) -> Any:
        """The next delta, END, or None when nothing came for that long."""
        try:
            item = self._queue.get(timeout=seconds)
        except queue.Empty:
            return None
        if isinstance(item, BaseException):
            raise item
        return item

    def _read(self) -> None:
        try:
            for delta in self._reply:
                self._queue.put(delta)
            self._queue.put(END)
        except BaseException as error:  # whatever it was, the reader has to know
            self._queue.put(error)
