"""The models that are open: each once, however many ask for it, and closed when nobody does."""

import threading
from collections.abc import Callable
from typing import Any

from localllm.errors import Cancelled
from localllm.tui.doors import Progress


class Shelf:
    """`take` blocks while a model opens, so it belongs on a worker thread."""

    def __init__(self, open: Callable[[str, Progress], Any]):
        self._open = open
        self._lock = threading.Lock()
        self._llms: dict[str, Any] = {}
        self._users: dict[int, int] = {}
        self._closing = False

    def take(self, name: str, progress: Progress) -> Any:
        """The model of that name, opened if it is not; each take wants a `give`."""
        with self._lock:
            llm = self._llms.get(name)
            if llm is None:
                llm = self._llms[name] = self._open(name, self._until_closed(progress))
            self._users[id(llm)] = self._users.get(id(llm), 0) + 1
            return llm

    def give(self, llm: Any) -> None:
        """Say that a model is no longer needed here."""
        if llm is None:
            return
        with self._lock:
            if id(llm) not in self._users or llm not in self._llms.values():
                return  # closed already
            self._users[id(llm)] -= 1
            if self._users[id(llm)] == 0:
                self._llms = {name: each for name, each in self._llms.items() if each is not llm}
                llm.close()

    def forget(self, llm: Any) -> None:
        """Open the model anew when it is taken next: this one's server has gone."""
        with self._lock:
            self._llms = {name: each for name, each in self._llms.items() if each is not llm}

    def _until_closed(self, progress: Progress) -> Progress:
        """The progress, which ends the opening of a model that nobody waits for any more."""

        def report(stage: str, done: int, total: int) -> None:
            if self._closing:
                raise Cancelled("The chat was closed.")
            progress(stage, done, total)

        return report

    def close(self, patience: float) -> bool:
        """Close every model; False when one was still opening after `patience` seconds."""
        self._closing = True
        if not self._lock.acquire(timeout=patience):
            return False
        for llm in self._llms.values():
            llm.close()
        self._llms.clear()
        self._lock.release()
        return True
