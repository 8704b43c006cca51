"""The tokens that may come next: all of the vocabulary, then fewer."""

import numpy as np

BLOCKS = 64  # a threshold for the k best comes from maxima over this many strided parts


class Candidates:
    """Tokens and their logits (n,) f32. ids (n,) is None while it is the whole vocabulary.

    `ordered`: likeliest first, of equals the lower id first.
    """

    __slots__ = ("ids", "logits", "ordered")

    def __init__(self, logits: np.ndarray):
        self.ids: np.ndarray | None = None
        self.logits = logits
        self.ordered = False

    def __len__(self) -> int:
        return len(self.logits)

    def id(self, index: int) -> int:
        return int(index if self.ids is None else self.ids[index])

    def cut(self, keep: np.ndarray | slice) -> None:
        """Keep these positions; a slice only when ordered."""
        if self.ids is None:
            self.ids = np.arange(len(self.logits))[keep] if isinstance(keep, slice) else keep
        else:
            self.ids = self.ids[keep]
        self.logits = self.logits[keep]

    def top(self, k: int) -> None:
        """Keep the k likeliest, ordered."""
        if not self.ordered:
            if k < len(self):
                self.cut(np.flatnonzero(self.logits >= _threshold(self.logits, k)))
            self.order()
        if k < len(self):
            self.cut(slice(k))

    def order(self) -> None:
        if not self.ordered:
            self.cut(np.argsort(-self.logits, kind="stable"))
            self.ordered = True

    def probabilities(self) -> np.ndarray:
        """(n,) f32 that sum to 1."""
        best = self.logits[0] if self.ordered else self.logits.max()
        powers = np.exp(self.logits - best)
        return powers / powers.sum()

    def find(self, ids: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Of ids (ascending): the positions of those that are here, and which of ids they are."""
        if self.ids is None:
            return ids, np.arange(len(ids))
        spots = np.flatnonzero(np.isin(self.ids, ids))
        return spots, np.searchsorted(ids, self.ids[spots])


def _threshold(logits: np.ndarray, k: int) -> np.float32:
    """A value that at least k logits reach, and not many more: one pass instead of a selection.

    The k-th largest of the maxima of disjoint parts has k parts at or above it.
    """
    parts = len(logits) // min(BLOCKS, max(1, len(logits) // (4 * k)))
    rows = len(logits) // parts
    maxima = logits[: rows * parts].reshape(rows, parts).max(axis=0)
    return np.partition(maxima, parts - k)[parts - k]
