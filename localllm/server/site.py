"""What all routes of one server share: settings, models, the gate, the numbers."""

import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any

from localllm.server.gate import Gate
from localllm.server.metrics import ENGINE, Metrics
from localllm.server.note import Note
from localllm.server.pool import Pool
from localllm.server.record import Record
from localllm.server.settings import Settings

THREADS = 8  # for templates, tokenizing and everything else that is work but not waiting


@dataclass(eq=False)
class Site:
    """note: what `serve` writes down about itself. stop: asks the server to end."""

    settings: Settings
    pool: Pool
    gate: Gate
    note: Note
    stop: Callable[[], None] = lambda: None
    openapi: dict[str, Any] = field(default_factory=dict)
    records: dict[str, Record] = field(default_factory=dict)  # requests under way
    started: float = field(default_factory=time.time)

    def __post_init__(self) -> None:
        self.metrics = Metrics(self._gauges)
        self.threads = ThreadPoolExecutor(THREADS, thread_name_prefix="localllm-http")

    def _gauges(self) -> Iterator[tuple[str, str, dict[str, str], float]]:
        yield "requests_running", "Requests that hold a place.", {}, self.gate.running
        yield "requests_waiting", "Requests that wait for a place.", {}, self.gate.waiting
        for entry in list(self.pool.entries.values()):
            model = {"model": entry.name}
            yield "model_loaded", "1 when ready, 0 while loading.", model, entry.state == "ready"
            for name, value in numbers(entry.llm).items():
                if name in ENGINE:
                    yield *ENGINE[name], model, value


def numbers(llm: Any) -> dict[str, float]:
    """The engine's own numbers; none while its model loads."""
    return {} if llm is None else dict(llm.worker.stats())
