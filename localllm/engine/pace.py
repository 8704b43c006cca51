"""How many prompt tokens a step may compute, so that running answers hardly notice, and what a
guess costs."""

STRETCH = 2.5  # unless said otherwise: the worst of a hundred gaps is then under 4 times the usual
LEAST = 2  # prompt tokens a step always has room for
FIRST = 16  # beside answers, while it is not known how long they take
SURE = 256  # tokens of prompts alone after which an estimate counts as half known
AGAIN = 64  # steps with more than answers after which one without shows how long that takes now
CHEAPEST = 0.02  # of a step, what a guess adds at least: the measured step may have been slow
SOON = 0.02  # seconds a step should take at most that goes on by more than a token of each answer
LONGEST = 3.0  # seconds a step should take at most: newcomers and cancels wait for its end


class Pace:
    """Learns from the steps that were run.

    budget: tokens a step may have. stretch: a step with a part of a prompt may take this many
    times as long as one that only goes on with answers; 0 leaves it to the budget alone. The
    tokens of a prompt cost more the further it is, and in small parts more than in large ones: a
    cost beside answers is learned for itself, from the last steps.
    """

    def __init__(self, budget: int, stretch: float = STRETCH):
        self.budget, self.stretch = budget, stretch
        self.step: float | None = None  # seconds of a step without prompts
        self.alone: float | None = None  # seconds a token takes in a step of prompts only
        self.beside: float | None = None  # seconds that one adds to a step with answers
        self.guess = 0.25  # of a step without prompts, that a guess beside the answers adds
        self._mixed = 0  # steps with answers and more since the last one without

    def room(self, answers: int) -> int:
        """Prompt tokens for a step with this many answers; now and then none, to learn."""
        most = max(LEAST, self.budget - answers)
        if not self.stretch:
            return most
        if not answers:
            return most if self.alone is None else _tokens(LONGEST, self.alone, most)
        if self.step is None or self._mixed >= AGAIN:
            return 0
        if self.beside is None:
            return min(most, FIRST)
        return _tokens((self.stretch - 1) * self.step, self.beside, most)

    @property
    def cost(self) -> float | None:
        """What a guess adds to a step, as part of it; None where none should be made."""
        return None if self.step is None or self._mixed >= AGAIN else self.guess

    @property
    def ahead(self) -> int:
        """How many further tokens of each answer a step may compute."""
        return max(0, int(SOON / self.step) - 1) if self.step else 0

    def learn_guesses(self, guesses: int, seconds: float) -> None:
        """A step with answers and this many guesses took so long."""
        self._mixed += 1
        more = seconds / (self.step or seconds) - 1
        self.guess = _blend(self.guess, min(1.0, max(CHEAPEST, more / guesses)), 0.125)

    def learn(self, answers: int, tokens: int, seconds: float) -> None:
        """A step with this many answers and prompt tokens took so long."""
        self._mixed = self._mixed + 1 if tokens else 0
        if not tokens:
            self.step = _blend(self.step, seconds, 0.25)
        elif not answers:
            each = seconds / tokens
            better = self.alone is not None and each < self.alone  # then the last was disturbed
            self.alone = _blend(self.alone, each, 0.5 if better else tokens / (tokens + SURE))
        else:
            self._learn_beside(max(seconds - (self.step or 0.0), seconds / 10) / tokens)

    def _learn_beside(self, each: float) -> None:
        """One step is no proof: an estimate at most doubles or halves with it."""
        known = self.beside or each
        self.beside = _blend(known, min(2 * known, max(known / 2, each)), 0.25)


def _tokens(seconds: float, each: float, most: int) -> int:
    return max(LEAST, int(min(seconds / max(each, 1e-9), most)))


def _blend(old: float | None, new: float, weight: float) -> float:
    return new if old is None else old + weight * (new - old)
