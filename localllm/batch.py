"""What one forward pass reads: flat arrays, a row for each token."""

from dataclasses import dataclass, field
from typing import Protocol

import numpy as np

from localllm.wishes import WISH_FIELDS

PAGE = 16  # tokens a page of the KV cache holds
LOADING = "loading weights"  # the stage of opening a model in which its file is read


@dataclass(frozen=True, slots=True)
class Batch:
    """T tokens of S sequences, each sequence's rows together and in order of position.

    ids (T,) i32 · begins (S + 1,) i32: rows begins[s] to begins[s + 1] belong to sequence s ·
    starts (S,) i32: the position of the first of them · tables (S, P) i32: the page that holds
    positions PAGE * p and on of sequence s · wanted (W,) i32: the rows, ascending, whose logits
    are wanted · hidden (H,) i32: other rows, ascending, of which what the logits are made from is ·
    wishes (W or 0, WISH_FIELDS) f32: how to draw a token from each row of logits, for a model that
    draws (see `localllm.wishes`) · ahead: where every sequence has one row, which is wanted, how
    many passes may follow, each with the tokens drawn by the one before at the next positions;
    `wishes` then has the rows of these, too.
    """

    ids: np.ndarray
    begins: np.ndarray
    starts: np.ndarray
    tables: np.ndarray
    wanted: np.ndarray
    hidden: np.ndarray = field(default_factory=lambda: np.zeros(0, np.int32))
    wishes: np.ndarray = field(default_factory=lambda: np.zeros((0, WISH_FIELDS), np.float32))
    ahead: int = 0


class Model(Protocol):
    """The engine's view of a model: token ids in, logits out, pages of KV in between."""

    vocab: int  # token ids are 0 .. vocab - 1
    width: int  # of a hidden row
    pages: int  # pages of KV there are, ids 0 .. pages - 1
    context: int  # tokens a sequence may hold
    max_rows: int  # tokens a batch may hold
    max_wanted: int  # rows of logits a batch may want
    max_sequences: int  # sequences a batch may hold
    draws: bool  # whether it grants wishes
    ahead: int  # the most that a batch may ask for, where it draws
    drafts: bool  # whether a few rows of a sequence cost little more than one, to the same bits

    def forward(self, batch: Batch) -> np.ndarray:
        """(W, vocab) f32 of the last pass, a view that the next call overwrites."""
        ...

    def drawn(self) -> np.ndarray:
        """(passes, W) ids drawn as the batch that was run last wished, -1 where no draw was wanted
        or no token can come; valid as long. The logits of those that must not come are -inf then.
        Of the passes that it asked for, the model may leave out the last ones."""
        ...

    def hidden(self) -> np.ndarray:
        """(H, width) f32 of the batch that was run last, after the last norm; valid as long."""
        ...

    def close(self) -> None:
        """Give back threads and memory."""
        ...
