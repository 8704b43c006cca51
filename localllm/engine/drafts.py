"""Guesses at an answer's next tokens, from what was said before: prompt lookup decoding.

Answers repeat their prompt and themselves: names, quotations, code that is changed in one place.
Where an answer's last tokens have stood before, what followed them then is computed in the same
pass as the next token; as far as the sampler picks just that, several tokens come of one step.
Each row's bits depend on its own tokens alone, so the answer is what it would be without
(Saxena 2023, "Prompt lookup decoding"; Leviathan et al. 2023, "Fast inference from transformers
via speculative decoding").
"""

from collections.abc import Sequence

import numpy as np

ROWS = 8  # of a step, guesses among them: what a pass takes at little more than the price of one
SUFFIX = 3  # tokens that must have stood together before
QUIET = 16  # tokens without one that came true, after which one can wait until a step is over
HOPE = 0.6  # of guesses that come true, before any did
WEIGHT = 0.125  # of a guess beside those before it
NONE = np.zeros(0, np.int32)


class Lookup:
    """What followed when one answer's last tokens came before, and how often that came again."""

    def __init__(self) -> None:
        self.rate = HOPE  # of late guesses that came true
        self.quiet = 0  # tokens since one last did
        self._next: dict[tuple[int, ...], int] = {}  # where what followed last stands
        self._seen, self._guess = SUFFIX, NONE

    def guess(self, ids: np.ndarray, most: int) -> np.ndarray:
        """(0 or `most`,) i32 that may follow ids (n,) i32: those of the call before, and more."""
        self._guess = ids[:0]
        words = ids[self._seen - SUFFIX :].tolist()
        suffixes = list(zip(words, words[1:], words[2:], strict=False))
        if not suffixes:
            return self._guess
        self._next.update(zip(suffixes[:-1], range(self._seen, len(ids)), strict=True))
        self._seen = len(ids)
        at = self._next.get(suffixes[-1])
        if at is not None:
            self._guess = np.resize(ids[at : at + most], most)
        return self._guess

    def learn(self, picked: Sequence[int]) -> None:
        """What came after the last guess, computed or not, up to the first that differs."""
        self.quiet += len(picked)
        for guessed, id in zip(self._guess.tolist(), picked, strict=False):
            self.rate += WEIGHT * ((guessed == id) - self.rate)
            self.quiet = 0 if guessed == id else self.quiet
        self._guess = NONE


def worth(rate: float, cost: float, most: int) -> int:
    """How many guesses, up to `most`, give the most tokens for the time.

    rate: of guesses that come true; cost: what one more adds to the time of a token.
    """
    best, count, tokens = 1.0, 0, 1.0
    for n in range(1, most + 1):
        tokens += rate**n
        if tokens > best * (1 + cost * n):
            best, count = tokens / (1 + cost * n), n
    return count
