"""Whether a batch is one that a model can run: what computes checks nothing."""

import numpy as np

from localllm.batch import PAGE, Batch, Model
from localllm.errors import BadRequest


def check(batch: Batch, model: Model) -> None:
    """Raises BadRequest, saying what is wrong, for a batch that must not reach a device."""
    rows, wanted, sequences = len(batch.ids), batch.wanted, len(batch.starts)
    hidden = batch.hidden
    if not (0 < rows <= model.max_rows and len(wanted) <= model.max_wanted):
        raise BadRequest(f"A batch of {rows} rows, {len(wanted)} of them wanted, is too large.")
    if not (0 < sequences <= model.max_sequences and len(batch.begins) == sequences + 1):
        raise BadRequest(f"A batch of {sequences} sequences cannot be run.")
    counts = np.diff(batch.begins.astype(np.int64))
    if batch.begins[0] != 0 or batch.begins[-1] != rows or counts.min() < 1:
        raise BadRequest("The rows of a batch do not add up.")
    if batch.ids.min() < 0 or batch.ids.max() >= model.vocab:
        raise BadRequest(f"Token ids must be between 0 and {model.vocab - 1}.")
    if not (_ascending(wanted, rows) and _ascending(hidden, rows)):
        raise BadRequest("The wanted rows of a batch are not rows of it.")
    if len(hidden) and np.isin(hidden, wanted).any():
        raise BadRequest("A row of a batch gives its logits or its hidden row, not both.")
    _check_tables(batch, model, counts)


def _ascending(places: np.ndarray, rows: int) -> bool:
    """Whether these are rows of so many, each later than the one before."""
    if not len(places):
        return True
    return bool(places[0] >= 0 and places[-1] < rows and (np.diff(places) >= 1).all())


def _check_tables(batch: Batch, model: Model, counts: np.ndarray) -> None:
    if len(batch.tables) != len(counts):
        raise BadRequest("The page tables of a batch have the wrong shape.")
    last = batch.starts + counts - 1
    if batch.starts.min() < 0 or last.max() >= model.context:
        raise BadRequest(f"Position {last.max()} lies beyond a context of {model.context}.")
    pages = last // PAGE + 1
    if pages.max() > batch.tables.shape[1]:
        raise BadRequest("A sequence has fewer pages than its tokens need.")
    used = batch.tables[np.arange(batch.tables.shape[1]) < pages[:, None]]
    if used.min() < 0 or used.max() >= model.pages:
        raise BadRequest(f"Pages must be between 0 and {model.pages - 1}.")
