"""The models that are open: each once, however many ask for it, and closed when nobody does."""

import threading
from collections.abc import Callable
from typing import Any

from localllm.tui.doors import Progress


class Shelf:
    """`take` blocks while a model opens, so it belongs on a worker thread."""

    def __init__(self, open: Callable[[str, Progress], Any]):
        self._open = open
        self._lock = threading.Lock()
        self._llms: dict[str, Any] = {}
        self._users: dict[int, int] = {}

    def take(self, name: str, progress: Progress) -> Any:
        """The model of that name, opened if it is not; each take wants a `give`."""
        with self._lock:
            llm = self._llms.get(name)
            if llm is None:
                llm = self._llms[name] = self._open(name, progress)
            self._users[id(llm)] = self._users.get(id(llm), 0) + 1
            return llm

    def give(self, llm: Any) -> None:
        """Say that a model is no longer needed here."""
        if llm is None:
            return
        with self._lock:
            self._users[id(llm)] -= 1
            if self._users[id(llm)] == 0:
                self._llms = {name: each for name, each in self._llms.items() if each is not llm}
                llm.close()

    def close(self) -> None:
        with self._lock:
            for llm in self._llms.values():
                llm.close()
            self._llms.clear()
