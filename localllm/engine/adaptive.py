"""Adaptive-p: favours tokens whose probability lies near a target, and holds the mean there.

The transformation and its constants are those of llama.cpp's sampler of that name.
"""

import numpy as np

from localllm.engine.candidates import Candidates
from localllm.sampling import Sampling

WIDTH = 0.3  # of the region around the target that is favoured
PEAK = 5.0  # the logit of a token on the target
SHARPNESS = 10.0  # how fast logits fall off beside it


class Adaptive:
    """One answer's running mean of the probabilities that its tokens had."""

    def __init__(self, sampling: Sampling):
        self.target, self.decay = sampling.adaptive_target, sampling.adaptive_decay
        self.weight = 1 / (1 - self.decay)  # as if it had been on target for ever
        self.sum = self.target * self.weight
        self._probabilities = np.zeros(0, np.float32)  # before the last transformation

    @property
    def aim(self) -> float:
        """The probability to look for now: beyond the target by what the mean falls short of it."""
        return min(1.0, max(0.0, 2 * self.target - self.sum / self.weight))

    def filter(self, c: Candidates) -> None:
        """Give every token the logit of its distance from the aim."""
        p = self._probabilities = c.probabilities()
        distance = np.abs(p - np.float32(self.aim)) / np.float32(WIDTH)
        logits = PEAK - SHARPNESS * distance**2 / (1 + distance)
        c.logits = np.where(c.logits > -np.inf, logits, -np.inf).astype(np.float32)
        c.ordered = False

    def learn(self, index: int) -> None:
        """This one of the candidates was picked."""
        self.sum = float(self._probabilities[index]) + self.decay * self.sum
        self.weight = 1 + self.decay * self.weight
