"""The sampler for filling gaps: prefers to end, and takes tokens that begin alike as one.

Its rules are those of llama.cpp's sampler of that name, which is meant to follow top_k and top_p.
"""

from collections.abc import Callable, Iterable

import numpy as np

from localllm.engine.candidates import Candidates

MOST = 256  # candidates that are compared with each other
SURE = 0.2  # probability below which a token is not offered


def infill(c: Candidates, pieces: Callable[[int], bytes], ends: Iterable[int]) -> None:
    """Keep the ends where ending is likely, else the few tokens that are; one end if none is.

    pieces: a token's bytes. ends: the tokens that end an answer.
    """
    p = c.probabilities()
    known = np.array(sorted(ends), np.int64)
    ending = np.zeros(len(c), bool)
    ending[c.find(known)[0]] = True
    if 3 * p[ending].sum() * len(c) > p[~ending].sum():
        c.cut(np.flatnonzero(ending))
        return
    head = np.argsort(-p, kind="stable")
    head = np.concatenate([head[:MOST], head[MOST:][ending[head[MOST:]]]])
    p = _merged(p[head], [pieces(c.id(int(i))) for i in head])
    text = ~ending[head]
    kept = ~text | (p >= SURE)
    if not (kept & text).any():
        return _end(c, head[~text], known)
    least = p[kept].sum() / (1 + (kept & text).sum())
    c.cut(head[kept & (~text | (p >= least))])


def _merged(p: np.ndarray, texts: list[bytes]) -> np.ndarray:
    """Probabilities where of two tokens, one the other's beginning, the likelier has both's."""
    p, gone = p.astype(np.float64), np.zeros(len(p), bool)
    for i, begin in enumerate(texts):
        for j, text in enumerate(texts):
            if gone[i]:
                break
            if i == j or gone[j] or not begin or not text.startswith(begin):
                continue
            winner, loser = (j, i) if p[j] > p[i] else (i, j)
            p[winner] += p[loser]
            p[loser], gone[loser] = 0.0, True
    return p


def _end(c: Candidates, ending: np.ndarray, known: np.ndarray) -> None:
    """Nothing is left but to end: on an end token that is here, else on any."""
    if len(ending):
        c.cut(ending[:1])
    elif len(known):
        c.ids, c.logits, c.ordered = known[:1], np.zeros(1, np.float32), True
    else:
        c.top(1)
