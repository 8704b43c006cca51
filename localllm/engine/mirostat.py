"""Mirostat: keeps the surprise of an answer near a target by how many tokens it lets in.

Basu et al. 2021, "Mirostat: a neural text decoding algorithm that directly controls perplexity".
"""

from math import log, log2

import numpy as np

from localllm.engine.candidates import Candidates
from localllm.sampling import Sampling

LIKELIEST = 100  # tokens from which version 1 estimates how steep the distribution is


class Mirostat:
    """One answer's running limit on surprise, in bits."""

    def __init__(self, sampling: Sampling, vocab: int):
        self.version, self.vocab = sampling.mirostat, vocab
        self.target, self.rate = sampling.mirostat_tau, sampling.mirostat_eta
        self.limit = 2 * sampling.mirostat_tau

    def filter(self, c: Candidates) -> None:
        """Keep the tokens whose surprise is allowed, at least one."""
        if self.version == 1:
            c.top(min(self._count(c), len(c)))
        else:
            p = c.probabilities()
            keep = p >= 2.0**-self.limit
            if keep.any():
                c.cut(np.flatnonzero(keep))
            else:
                c.top(1)

    def learn(self, probability: float) -> None:
        """What was picked had this probability among those allowed."""
        self.limit -= self.rate * (-log2(probability) - self.target)

    def _count(self, c: Candidates) -> int:
        """Version 1: how many tokens of a Zipf distribution reach the limit."""
        head = Candidates(c.probabilities())
        head.top(min(LIKELIEST, len(c)))
        p = head.logits[head.logits > 0].astype(np.float64)
        if len(p) < 2:
            return 1
        ranks = np.arange(1, len(p))
        steps = np.log((ranks + 1) / ranks)
        slope = float(steps @ np.log(p[:-1] / p[1:]) / (steps @ steps))
        excess = slope - 1
        if slope <= 0:
            return self.vocab  # flat: every token is as good
        if abs(excess) < 1e-6:
            share = 1 / log(self.vocab)  # the limit of what follows
        else:
            share = excess / (1 - float(self.vocab) ** -excess)
        bits = (log2(share) + self.limit) / slope
        return int(max(1, min(self.vocab, 2.0 ** min(bits, 62.0))))
