"""How many prompt tokens a step may compute, so that running answers hardly notice."""

LEAST = 8  # prompt tokens a step always has room for
FIRST = 32  # and while it is not known how long they take
SURE = 256  # tokens after which an estimate counts as half known
LONGEST = 3.0  # seconds a step should take at most: newcomers and cancels wait for its end


class Pace:
    """Learns from the steps that were run.

    budget: tokens a step may have. stretch: a step with a part of a prompt may take this many
    times as long as one that only goes on with answers; 0 leaves it to the budget alone.
    """

    def __init__(self, budget: int, stretch: float = 3.0):
        self.budget, self.stretch = budget, stretch
        self.step: float | None = None  # seconds of a step without prompts
        self.token: float | None = None  # seconds a prompt token adds

    def room(self, answers: int) -> int:
        """Prompt tokens for a step with this many answers."""
        most = max(LEAST, self.budget - answers)
        if not self.stretch:
            return most
        if self.token is None:
            return min(most, FIRST) if answers else most
        if not answers:
            return max(LEAST, min(most, _steps(LONGEST, self.token)))
        spare = (self.stretch - 1) * (self.step or 0.0)
        return max(LEAST, min(most, _steps(spare, self.token)))

    def learn(self, answers: int, tokens: int, seconds: float) -> None:
        """A step with this many answers and prompt tokens took so long."""
        if not tokens:
            self.step = _blend(self.step, seconds, 0.25)
        else:
            more = max(seconds - (self.step or 0.0), seconds / 10) / tokens
            better = self.token is not None and more < self.token  # then the last was disturbed
            self.token = _blend(self.token, more, 0.5 if better else tokens / (tokens + SURE))


def _steps(seconds: float, token: float) -> int:
    return int(min(seconds / max(token, 1e-9), 2**31))


def _blend(old: float | None, new: float, weight: float) -> float:
    return new if old is None else old + weight * (new - old)
