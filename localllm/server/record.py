"""What is remembered of one request while it runs: for the log line, the metrics and /slots."""

import secrets
import time
from dataclasses import dataclass, field
from typing import Any


@dataclass
class Record:
    """Times are seconds of time.monotonic()."""

    method: str
    path: str
    id: str = field(default_factory=lambda: secrets.token_hex(8))
    began: float = field(default_factory=time.monotonic)
    client: str = ""
    model: str = ""
    status: int = 0
    stream: bool = False
    prompt_tokens: int = 0
    cached_tokens: int = 0
    completion_tokens: int = 0
    first: float | None = None  # when the first token came
    last: float | None = None
    finish: str = ""  # why the answer ended: stop, length, tool_calls, cancelled, error
    running: bool = False  # has its place in the engine
    prompt: Any = None  # what was asked and answered: only filled where the owner wants them
    answer: list[str] | None = None  # logged
    miss: dict[str, Any] | None = None  # where the prompt left what is cached

    @property
    def ttft(self) -> float | None:
        """Seconds from the request to its first token."""
        return None if self.first is None else self.first - self.began

    @property
    def speed(self) -> float | None:
        """Tokens per second after the first, of all of the request's answers together."""
        if self.first is None or self.last is None or self.last <= self.first:
            return None
        return (self.completion_tokens - 1) / (self.last - self.first)
