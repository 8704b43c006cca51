"""Picks the next token of one answer: bans and biases, the chain of filters, one draw."""

from collections.abc import Callable
from math import inf, isfinite, log

import numpy as np

from localllm.engine.adaptive import Adaptive
from localllm.engine.candidates import Candidates
from localllm.engine.filters import ACTIVE, FILTERS, Moment
from localllm.engine.mirostat import Mirostat
from localllm.errors import BadRequest, LocalLLMError
from localllm.request import Logprob, Request
from localllm.sampling import Sampling
from localllm.wishes import (
    BANNED,
    FIRST_BANNED,
    HEAT,
    LEAST,
    MOST,
    MOST_BANNED,
    NOTHING,
    NUMBER,
    SHARE,
    TOP,
    WISH_FIELDS,
)

BITS = 2**64 - 1
PICK, CHANCE = 0, 1  # the random numbers a token has
DRAWN: dict[str, tuple[int, Callable[[Sampling], float]]] = {
    # the filters that a model knows itself, in its order -> the field of its wish, and its value
    "top_k": (TOP, lambda s: s.top_k),
    "top_p": (SHARE, lambda s: s.top_p),
    "min_p": (LEAST, lambda s: log(s.min_p)),
    "temperature": (HEAT, lambda s: max(s.temperature, 1e-4)),
}


def draw(seed: int, position: int, stream: int = PICK) -> float:
    """0 <= number < 1 that depends on nothing else: no state, so no order of events matters.

    SplitMix64 (Steele, Lea, Flood 2014) entered at a place of its own.
    """
    return (_mix(_mix(seed) + (2 * position + stream + 1) * 0x9E3779B97F4A7C15) >> 11) * 2.0**-53


def _mix(z: int) -> int:
    z &= BITS
    z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & BITS
    z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & BITS
    return z ^ (z >> 31)


class Sampler:
    """What one request's sampling settings mean for a row of logits."""

    def __init__(self, request: Request, vocab: int, seed: int):
        s = self.sampling = request.sampling
        self.seed = seed
        self._request, self._vocab, self._mask = request, vocab, request.mask
        names = ("temperature",) if s.mirostat else s.samplers
        self._chain = [FILTERS[name] for name in names if ACTIVE[name](s)]
        if s.greedy and "infill" not in names:
            edits = () if s.mirostat else ("penalties", "dry")
            self._chain = [FILTERS[n] for n in names if n in edits and ACTIVE[n](s)]
        self._mirostat = Mirostat(s, vocab) if s.mirostat and not s.greedy else None
        adapts = s.adaptive_target >= 0 and not s.mirostat and not s.greedy
        self._adaptive = Adaptive(s) if adapts else None
        self._ends = np.array([id for id in request.end_ids if 0 <= id < vocab], np.int64)
        self._row = self._wish() if self._is_plain() else None
        self._biased = np.array(list(s.logit_bias), np.int64)
        self._biases = np.array(list(s.logit_bias.values()), np.float32)
        if len(self._biased) and self._biased.max() >= vocab:
            raise BadRequest(
                f"logit_bias names token {self._biased.max()}, and the model has {vocab} tokens."
            )

    def _is_plain(self) -> bool:
        """Whether the likeliest are cut and cooled, and no more."""
        s, names = self.sampling, [filter.__name__ for filter in self._chain]
        asked = self._request
        if asked.mask is not None or asked.logit_rows or asked.logprobs is not None:
            return False
        if s.logit_bias or self._mirostat or self._adaptive or len(self._ends) > MOST_BANNED:
            return False
        if s.greedy:
            return not names
        cuts = [name for name in DRAWN if name in names]
        return names[:1] == ["top_k"] and names == cuts and s.top_k <= MOST and not s.dynatemp_range

    def _wish(self) -> np.ndarray:
        row = np.zeros(WISH_FIELDS, np.float32)
        row[list(NOTHING)] = list(NOTHING.values())
        row[TOP] = 1  # of the greedy, who have no filters
        row[FIRST_BANNED : FIRST_BANNED + len(self._ends)] = self._ends
        for filter in self._chain:
            field, value = DRAWN[filter.__name__]
            row[field] = value(self.sampling)
        row[TOP] = min(row[TOP], self._vocab)
        return row

    @property
    def plain(self) -> bool:
        """Whether a model that draws can do it."""
        return self._row is not None

    def wish(self, length: int) -> np.ndarray | None:
        """What a model that draws is told (see `localllm.wishes`) of the token after `length`;
        overwritten by the next. None where the settings need `pick`."""
        if self._row is not None:
            self._row[NUMBER] = draw(self.seed, length)
            self._row[BANNED] = len(self._ends) if self._holds_off_ends(length) else 0
        return self._row

    def _holds_off_ends(self, length: int) -> bool:
        s = self.sampling
        return s.ignore_eos or length - len(self._request.ids) < s.min_tokens

    def pick(self, row: np.ndarray, past: np.ndarray) -> tuple[int, Logprob | None]:
        """The next token after past (n,) i32, from row (vocab,) f32, which it may overwrite.

        Raises LocalLLMError when the model computed no numbers, or nothing is allowed.
        """
        report = self._request.logprobs
        raw = None if report is None else row.copy()
        row = row if row.flags.writeable else row.copy()
        self._forbid(row, len(past))
        id = self._choose(row, past)
        if self._mask is not None:
            self._mask.take(id)
        return id, None if raw is None else logprob(raw, id, report or 0)

    def _forbid(self, row: np.ndarray, length: int) -> None:
        """Biases, and what must not come now."""
        if len(self._biased):
            row[self._biased] += self._biases
        if self._holds_off_ends(length):
            row[self._ends] = -inf
        allowed = self._mask.allowed() if self._mask is not None else None
        if allowed is not None:
            np.copyto(row, -inf, where=~_booleans(allowed, len(row)))

    def _choose(self, row: np.ndarray, past: np.ndarray) -> int:
        chance = draw(self.seed, len(past), CHANCE)
        asked = self._request
        at = Moment(self.sampling, past, chance, asked.breakers, asked.pieces, self._ends)
        candidates = Candidates(row)
        best = row.max()
        if not isfinite(best):
            raise _no_choice(best)
        for filter in self._chain:
            filter(candidates, at)
        if self.sampling.greedy:
            return candidates.id(int(candidates.logits.argmax()))
        if self._mirostat:
            self._mirostat.filter(candidates)
        if self._adaptive:
            self._adaptive.filter(candidates)
        return self._draw(candidates, draw(self.seed, len(past)))

    def _draw(self, candidates: Candidates, number: float) -> int:
        p = candidates.probabilities()
        sums = np.cumsum(p, dtype=np.float64)
        index = int(np.searchsorted(sums, number * sums[-1], side="right"))
        if index == len(p):  # rounded up
            index = int(np.flatnonzero(p)[-1])
        if self._mirostat:
            self._mirostat.learn(float(p[index]))
        if self._adaptive:
            self._adaptive.learn(index)
        return candidates.id(index)


def logprob(row: np.ndarray, id: int, top: int) -> Logprob:
    """The log-probability of a token in a row of logits, and the likeliest of the row."""
    best = row.max()
    total = float(best) + log(float(np.exp(row - best).sum()))
    candidates = Candidates(row)
    likeliest: list[tuple[int, float]] = []
    if top:
        candidates.top(min(top, len(row)))
        assert candidates.ids is not None
        likeliest = [
            (int(i), float(x) - total)
            for i, x in zip(candidates.ids, candidates.logits, strict=True)
        ]
    return Logprob(id, float(row[id]) - total, tuple(likeliest))


def _booleans(allowed: np.ndarray, vocab: int) -> np.ndarray:
    """(vocab,) bool of a mask that is that already, or packed bits."""
    if allowed.dtype == np.bool_ and len(allowed) >= vocab:
        return allowed[:vocab]
    bits = np.unpackbits(np.ascontiguousarray(allowed).view(np.uint8), bitorder="little")
    return bits[:vocab].astype(np.bool_)


def _no_choice(best: float) -> LocalLLMError:
    if best == -inf:
        return LocalLLMError("No token is allowed to come next: a bias or a grammar bans them all.")
    return LocalLLMError(
        "The model computed something that is not a number.",
        "The file may be damaged: try `localllm verify`.",
    )
