"""Whether a batch is one that a model can run: what computes checks nothing."""

from itertools import pairwise

import numpy as np

from localllm.batch import PAGE, Batch, Model
from localllm.errors import BadRequest
from localllm.wishes import BANNED, FIRST_BANNED, HEAT, MOST, MOST_BANNED, TOP, WISH_FIELDS


def check(batch: Batch, model: Model) -> None:
    """Raises BadRequest, saying what is wrong, for a batch that must not reach a device."""
    rows, wanted, sequences = len(batch.ids), batch.wanted, len(batch.starts)
    if not (0 < rows <= model.max_rows and len(wanted) <= model.max_wanted):
        raise BadRequest(f"A batch of {rows} rows, {len(wanted)} of them wanted, is too large.")
    if not (0 < sequences <= model.max_sequences and len(batch.begins) == sequences + 1):
        raise BadRequest(f"A batch of {sequences} sequences cannot be run.")
    begins = batch.begins.tolist()  # few numbers: lists are quicker than arrays
    counts = [end - begin for begin, end in pairwise(begins)]
    if begins[0] != 0 or begins[-1] != rows or min(counts) < 1:
        raise BadRequest("The rows of a batch do not add up.")
    if not _within(batch.ids, model.vocab):
        raise BadRequest(f"Token ids must be between 0 and {model.vocab - 1}.")
    if not (_ascending(wanted, rows) and _ascending(batch.hidden, rows)):
        raise BadRequest("The wanted rows of a batch are not rows of it.")
    if len(batch.hidden) and np.isin(batch.hidden, wanted).any():
        raise BadRequest("A row of a batch gives its logits or its hidden row, not both.")
    _check_tables(batch, model, counts)
    if batch.ahead and not (
        0 < batch.ahead <= model.ahead and len(batch.wishes) and rows == sequences == len(wanted)
    ):
        raise BadRequest("A batch of these rows cannot go ahead.")
    if len(batch.wishes):
        _check_wishes(batch, model)


def _within(numbers: np.ndarray, end: int) -> bool:
    """Whether all of at least one number are from 0 to end - 1."""
    return bool(numbers.min() >= 0 and numbers.max() < end)


def _ascending(places: np.ndarray, rows: int) -> bool:
    """Whether these are rows of so many, each later than the one before."""
    if not len(places):
        return True
    return bool(places[0] >= 0 and places[-1] < rows and (places[1:] > places[:-1]).all())


def _check_wishes(batch: Batch, model: Model) -> None:
    wishes, rows = batch.wishes, (1 + batch.ahead) * len(batch.wanted)
    if not model.draws or rows > model.max_rows or wishes.shape != (rows, WISH_FIELDS):
        raise BadRequest("The wishes of a batch do not fit its logits.")
    tops, banned, ids = wishes[:, TOP], wishes[:, BANNED], wishes[:, FIRST_BANNED:]
    known = _within(tops, min(MOST, model.vocab) + 1) and _within(banned, MOST_BANNED + 1)
    if not (known and _within(ids, model.vocab) and (wishes[:, HEAT] > 0).all()):
        raise BadRequest("A wish of a batch cannot be granted.")


def _check_tables(batch: Batch, model: Model, counts: list[int]) -> None:
    if len(batch.tables) != len(counts):
        raise BadRequest("The page tables of a batch have the wrong shape.")
    starts, width = batch.starts.tolist(), batch.tables.shape[1]
    last = [start + count + batch.ahead - 1 for start, count in zip(starts, counts, strict=True)]
    if min(starts) < 0 or max(last) >= model.context:
        raise BadRequest(f"Position {max(last)} lies beyond a context of {model.context}.")
    if max(last) // PAGE >= width:
        raise BadRequest("A sequence has fewer pages than its tokens need.")
    if _within(batch.tables, model.pages):
        return
    pages = np.array(last) // PAGE + 1  # what lies behind those that are needed may be anything
    if not _within(batch.tables[np.arange(width) < pages[:, None]], model.pages):
        raise BadRequest(f"Pages must be between 0 and {model.pages - 1}.")
