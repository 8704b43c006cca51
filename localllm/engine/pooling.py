"""One vector for a whole prompt: the mean of its hidden rows, or the last of them."""

import numpy as np

KINDS = ("mean", "last")


class Pooling:
    """Takes a prompt's hidden rows as they come, each once; `next` is the position it waits for.

    Rows are added one by one in f64, so the same prompt gives the same bits in whatever pieces
    it was computed.
    """

    def __init__(self, kind: str, prompt: int):
        self.prompt = prompt
        self.next = self._first = prompt - 1 if kind == "last" else 0
        self._sum = np.float64(0)

    def wanted(self, begin: int, end: int) -> range:
        """Of the positions begin to end - 1, those whose hidden rows are still wanted."""
        return range(max(self.next, begin), max(self.next, end))

    def add(self, rows: np.ndarray) -> None:
        """(n, width) f32 of the next n positions."""
        for row in rows:
            self._sum = self._sum + row
        self.next += len(rows)

    def vector(self) -> np.ndarray:
        """(width,) f32, once all rows have come."""
        return (self._sum / (self.next - self._first)).astype(np.float32)
