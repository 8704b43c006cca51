"""What one step computes: some tokens of some sequences, laid out as a batch."""

from dataclasses import dataclass

import numpy as np

from localllm.batch import Batch
from localllm.engine.sequence import Sequence


@dataclass(slots=True, eq=False)
class Work:
    """The next `tokens` tokens of a sequence. `wanted`: the positions whose logits it wants."""

    sequence: Sequence
    tokens: int
    wanted: range
    picks: bool

    @classmethod
    def of(cls, sequence: Sequence, tokens: int) -> "Work":
        return cls(sequence, tokens, sequence.wanted(tokens), sequence.picks(tokens))


def batch(work: list[Work]) -> Batch:
    """Flat arrays of what is to be computed; the order of the logits is that of the work."""
    sequences = [item.sequence for item in work]
    begins = np.zeros(len(work) + 1, np.int32)
    np.cumsum([item.tokens for item in work], out=begins[1:])
    tables = np.zeros((len(work), max(len(s.pages) for s in sequences)), np.int32)
    for table, sequence in zip(tables, sequences, strict=True):
        table[: len(sequence.pages)] = sequence.table
    ids = [item.sequence.ids[item.sequence.done :][: item.tokens] for item in work]
    rows = [
        position - item.sequence.done + begin
        for item, begin in zip(work, begins.tolist(), strict=False)
        for position in item.wanted
    ]
    return Batch(
        ids=np.concatenate(ids),
        begins=begins,
        starts=np.array([s.done for s in sequences], np.int32),
        tables=tables,
        wanted=np.array(rows, np.int32),
    )
