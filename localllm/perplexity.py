"""Perplexity of a text, by llama-perplexity's protocol: how surprised a model is by each token.

The text is cut into chunks of `ctx` tokens. The first half of a chunk only gives context; in the
second, each token's negative log-probability counts. A model that wants BOS gets it in place of
each chunk's first token. https://github.com/ggml-org/llama.cpp/tree/master/tools/perplexity
"""

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from localllm.errors import BadRequest
from localllm.llm import LLM


@dataclass(frozen=True)
class Perplexity:
    """exp(mean negative log-probability) over `tokens` tokens of `chunks` chunks."""

    perplexity: float
    tokens: int
    chunks: int


def measure(
    llm: LLM,
    text: str,
    ctx: int = 512,
    chunks: int | None = None,
    progress: Callable[[str, int, int], None] | None = None,
) -> Perplexity:
    """Perplexity of the text; `chunks` bounds how many of its chunks are taken.

    Raises BadRequest when there is not one whole chunk.
    """
    bos = llm.tokenizer.bos if llm.tokenizer.add_bos else None
    ids = llm.tokenize(text, special=False, bos=bos is not None)
    if ctx < 4 or ctx > llm.context:
        raise BadRequest(f"The chunk of {ctx} tokens must be from 4 to {llm.context}.")
    whole = len(ids) // ctx
    if not whole:
        raise BadRequest(
            f"The text has {len(ids)} tokens, and a chunk {ctx}.", "Take a longer text, or --ctx."
        )
    total, count = 0.0, 0
    taken = min(whole, chunks or whole)
    for number in range(taken):
        chunk = ids[number * ctx : (number + 1) * ctx]
        if bos is not None:
            chunk[0] = bos
        losses = chunk_losses(llm, chunk, start=ctx // 2)
        total, count = total + float(losses.sum()), count + len(losses)
        if progress:
            progress("perplexity", number + 1, taken)
    return Perplexity(math.exp(total / count), count, taken)


def chunk_losses(llm: LLM, ids: list[int], start: int) -> np.ndarray:
    """-log p of ids[start + 1:], each given all before it: (len(ids) - start - 1,) f64."""
    losses = []
    for position, rows in llm.logit_rows(ids, start):
        following = ids[position + 1 : position + 1 + len(rows)]
        if following:
            losses.append(negative_log_probability(rows[: len(following)], following))
    return np.concatenate(losses)


def negative_log_probability(logits: np.ndarray, ids: list[int]) -> np.ndarray:
    """(R, vocab) f32 and R ids -> (R,) f64, by a log-sum-exp that cannot overflow."""
    peak = logits.max(axis=1, keepdims=True)
    total = np.exp(logits - peak, dtype=np.float64).sum(axis=1)
    picked = logits[np.arange(len(ids)), ids].astype(np.float64)
    return np.log(total) + peak[:, 0] - picked
