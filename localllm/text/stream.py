"""Bytes of tokens to text that can be shown: whole characters, and nothing of a stop string."""

import codecs
from collections.abc import Sequence

from localllm.errors import BadRequest

MAX_STOPS = 32
MAX_STOP = 1024  # characters


class TextStream:
    """Takes bytes as they come, gives text back as soon as it is certain to belong to the answer.

    It holds back half a character, and whatever may be the beginning of a stop string. Where a stop
    string is complete the text ends before it, `stopped` names it, and nothing more comes. Of
    several, the one counts that is complete first. How the bytes are cut changes nothing.
    """

    def __init__(self, stops: Sequence[str] = ()):
        if len(stops) > MAX_STOPS or any(not 0 < len(stop) <= MAX_STOP for stop in stops):
            raise BadRequest(
                f"Up to {MAX_STOPS} stop strings may be given, each of 1 to {MAX_STOP} characters."
            )
        self.stopped: str | None = None
        self._stops = sorted(set(stops), key=len, reverse=True)
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._held = ""

    def push(self, data: bytes) -> str:
        """The text that is certain now."""
        return self._take(self._decoder.decode(data))

    def flush(self) -> str:
        """What was held back, at the end; half a character becomes U+FFFD."""
        text = self._take(self._decoder.decode(b"", True))
        held, self._held = self._held, ""
        return text + held

    def _take(self, text: str) -> str:
        if self.stopped is not None:
            return ""
        text = self._held + text
        found = [(at + len(stop), at, stop) for stop in self._stops if (at := text.find(stop)) >= 0]
        if found:
            _, at, self.stopped = min(found)
            self._held = ""
            return text[:at]
        certain = len(text) - max((_overlap(text, stop) for stop in self._stops), default=0)
        self._held = text[certain:]
        return text[:certain]


def _overlap(text: str, stop: str) -> int:
    """How many letters at the end of the text begin the stop string."""
    for n in range(min(len(text), len(stop) - 1), 0, -1):
        if text.endswith(stop[:n]):
            return n
    return 0
