"""The filters of a sampler chain, each a function that edits or drops candidates.

Their meaning follows llama.cpp's src/llama-sampler.cpp, so that settings carry over.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import inf, log

import numpy as np

from localllm.engine import infill as fill
from localllm.engine.candidates import Candidates
from localllm.sampling import Sampling

TRIES = (256, 4096)  # top_p orders this many of a large vocabulary before it orders all


@dataclass(slots=True)
class Moment:
    """What a filter may know besides the logits: it all follows from the request itself."""

    sampling: Sampling
    past: np.ndarray  # (n,) i32, prompt and answer so far
    chance: float  # random, 0 <= chance < 1
    breakers: Sequence[tuple[int, ...]] = ()
    pieces: Callable[[int], bytes] | None = None
    ends: Sequence[int] | np.ndarray = ()


def penalties(c: Candidates, at: Moment) -> None:
    """Make tokens of the last repeat_last_n less likely."""
    s = at.sampling
    ids, counts = np.unique(_last(at.past, s.repeat_last_n), return_counts=True)
    spots, which = c.find(ids)
    logits = c.logits[spots]
    logits = np.where(logits <= 0, logits * s.repeat_penalty, logits / s.repeat_penalty)
    c.logits[spots] = logits - counts[which] * s.frequency_penalty - s.presence_penalty
    c.ordered = False


def dry(c: Candidates, at: Moment) -> None:
    """Punish tokens that would lengthen a passage that stands there already."""
    s = at.sampling
    longest = s.dry_allowed_length
    if s.dry_base > 1.000001:
        longest += int(88.7228391 / log(s.dry_base))  # beyond which f32 overflows
    past = _last(at.past, s.dry_penalty_last_n)
    reach = min(longest, _unbroken(past, at.breakers))
    lengths = _repeats(past, reach) if reach >= s.dry_allowed_length else {}
    single = {breaker[0] for breaker in at.breakers if len(breaker) == 1}
    hits = {
        id: s.dry_multiplier * s.dry_base ** (length - s.dry_allowed_length)
        for id, length in sorted(lengths.items())
        if length >= s.dry_allowed_length and id not in single
    }
    spots, which = c.find(np.array(list(hits), np.int64))
    c.logits[spots] -= np.array(list(hits.values()), np.float32)[which]
    c.ordered = False


def top_n_sigma(c: Candidates, at: Moment) -> None:
    """Keep logits within n standard deviations of the best."""
    finite = c.logits if c.logits.min() > -inf else c.logits[c.logits > -inf]
    floor = finite.max() - at.sampling.top_n_sigma * finite.std(dtype=np.float64)
    c.cut(np.flatnonzero(c.logits >= floor))


def top_k(c: Candidates, at: Moment) -> None:
    c.top(at.sampling.top_k)


def typ_p(c: Candidates, at: Moment) -> None:
    """Keep those whose surprise is nearest to the expected one, up to a probability.

    Meister et al. 2023, "Locally Typical Sampling".
    """
    c.order()
    p = c.probabilities()
    with np.errstate(divide="ignore", invalid="ignore"):
        surprise = -np.log(p)
        odd = np.abs(surprise - np.where(p > 0, p * surprise, 0).sum())
    nearest = np.argsort(odd, kind="stable")
    kept = (
        int(
            np.searchsorted(
                np.cumsum(p[nearest], dtype=np.float64), at.sampling.typical_p, side="right"
            )
        )
        + 1
    )
    c.cut(np.sort(nearest[:kept]))


def top_p(c: Candidates, at: Moment) -> None:
    """Keep the fewest likeliest tokens that together reach a probability."""
    share, p = at.sampling.top_p, c.probabilities()
    if not c.ordered:
        order = _head(c.logits, p, share)
        c.cut(order)
        c.ordered, p = True, p[order]
    c.cut(slice(int(np.searchsorted(np.cumsum(p, dtype=np.float64), share)) + 1))


def min_p(c: Candidates, at: Moment) -> None:
    """Drop tokens less likely than a share of the likeliest."""
    best = c.logits[0] if c.ordered else c.logits.max()
    keep = c.logits >= best + np.float32(log(at.sampling.min_p))
    c.cut(slice(int(keep.sum())) if c.ordered else np.flatnonzero(keep))


def xtc(c: Candidates, at: Moment) -> None:
    """Now and then drop all likely tokens but the least likely of them."""
    if at.chance > at.sampling.xtc_probability or len(c) < 2:
        return
    c.order()
    likely = int((c.probabilities() >= at.sampling.xtc_threshold).sum())
    if likely > 1:
        c.cut(slice(likely - 1, None))


def temperature(c: Candidates, at: Moment) -> None:
    """Divide the logits; with dynatemp_range by more the less certain the model is."""
    s, heat = at.sampling, at.sampling.temperature
    if s.dynatemp_range and len(c) > 1:
        p = c.probabilities()
        p = p[p > 0]
        certainty = float(-(p * np.log(p)).sum()) / log(len(c))
        low, high = max(0.0, heat - s.dynatemp_range), heat + s.dynatemp_range
        heat = low + (high - low) * max(0.0, certainty) ** s.dynatemp_exponent
    if heat <= 0:
        c.top(1)
    else:
        c.logits = c.logits / np.float32(max(heat, 1e-4))


def infill(c: Candidates, at: Moment) -> None:
    """For filling gaps: end where that is likely, else only what is."""
    if at.pieces is not None:
        fill.infill(c, at.pieces, at.ends)


FILTERS: dict[str, Callable[[Candidates, Moment], None]] = {
    f.__name__: f
    for f in (penalties, dry, top_n_sigma, top_k, typ_p, top_p, min_p, xtc, temperature, infill)
}

ACTIVE: dict[str, Callable[[Sampling], bool]] = {
    "penalties": lambda s: bool(
        s.repeat_last_n and (s.repeat_penalty != 1 or s.presence_penalty or s.frequency_penalty)
    ),
    "dry": lambda s: s.dry_multiplier > 0 and s.dry_base >= 1 and s.dry_penalty_last_n != 0,
    "top_n_sigma": lambda s: s.top_n_sigma > 0,
    "top_k": lambda s: s.top_k > 0,
    "typ_p": lambda s: s.typical_p < 1,
    "top_p": lambda s: s.top_p < 1,
    "min_p": lambda s: s.min_p > 0,
    "xtc": lambda s: s.xtc_probability > 0 and s.xtc_threshold <= 0.5,
    "infill": lambda s: True,  # off by not being named
    "temperature": lambda s: s.temperature != 1 or s.dynatemp_range > 0,
}


def _head(logits: np.ndarray, p: np.ndarray, share: float) -> np.ndarray:
    """Positions, likeliest first, of at least the tokens that together reach a share."""
    for tries in TRIES:
        if tries < len(logits):
            head = Candidates(logits)
            head.top(tries)
            assert head.ids is not None
            if p[head.ids].sum() >= share:
                return head.ids
    return np.argsort(-logits, kind="stable")


def _last(past: np.ndarray, count: int) -> np.ndarray:
    return past if count < 0 else past[max(0, len(past) - count) :]


def _unbroken(past: np.ndarray, breakers: Sequence[tuple[int, ...]]) -> int:
    """How many of the last tokens come after the last breaker."""
    ends = [0]
    for breaker in breakers:
        n = len(breaker)
        hits = np.ones(max(0, len(past) - n + 1), bool)
        for offset, id in enumerate(breaker):
            hits &= past[offset : offset + len(hits)] == id
        if hits.any():
            ends.append(int(np.flatnonzero(hits)[-1]) + n)
    return len(past) - max(ends)


def _repeats(past: np.ndarray, reach: int) -> dict[int, int]:
    """Token -> how many tokens before it agree with the end of past, where it stood before.

    At most `reach`. Only places that still agree are looked at again, so that this costs as many
    passes as the longest passage has tokens, over fewer and fewer places.
    """
    lengths: dict[int, int] = {}
    places = np.arange(len(past) - 1)  # where a passage may end that also ends past
    length = 0
    while len(places) and length < reach:
        places = places[places >= length]
        places = places[past[places - length] == past[len(past) - 1 - length]]
        length += 1
        lengths.update((int(id), length) for id in past[places + 1])
    return lengths
