"""The prompt in front of an answer, as /v1/completions' `echo` has it, with its probabilities."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from localllm.request import Logprob


@dataclass(frozen=True)
class Echo:
    """A prompt's text, and of each of its tokens the id and (but for the first) Logprob."""

    text: str = ""
    ids: tuple[int, ...] = ()
    logprobs: tuple[Logprob | None, ...] = ()

    @classmethod
    def of(cls, llm: Any, ids: Sequence[int], top: int | None, text: str | None) -> "Echo":
        """top: so many of the likeliest beside each token; None for no probabilities at all.

        Computes the prompt once more where they are wanted: the engine keeps none.
        """
        said = llm.detokenize(ids) if text is None else text
        if top is None:
            return cls(said)
        logprobs: list[Logprob | None] = [None]
        for start, rows in llm.logit_rows(ids) if len(ids) > 1 else ():
            following = ids[start + 1 : start + 1 + len(rows)]
            logprobs += [_logprob(row, id, top) for row, id in zip(rows, following, strict=False)]
        return cls(said, tuple(ids), tuple(logprobs))


def _logprob(row: np.ndarray, id: int, top: int) -> Logprob:
    """row (vocab,) f32 logits: what was likely where `id` stands."""
    wide = row.astype(np.float64)
    best = wide.max()
    total = best + np.log(np.exp(wide - best).sum())
    order = np.argpartition(-wide, top)[:top] if top else ()
    likeliest = sorted(((int(i), float(wide[i] - total)) for i in order), key=lambda p: -p[1])
    return Logprob(int(id), float(wide[id] - total), tuple(likeliest))
