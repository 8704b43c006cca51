"""What one step computes: some tokens of some sequences, laid out as a batch."""

from dataclasses import dataclass, field

import numpy as np

from localllm.batch import Batch
from localllm.engine.drafts import NONE
from localllm.engine.sequence import Sequence
from localllm.wishes import HEAT, WISH_FIELDS


@dataclass(slots=True, eq=False)
class Work:
    """The next `tokens` tokens of a sequence.

    wanted, hidden: the positions whose logits, and whose hidden rows, it wants. guess: what may
    come after the last token that is known; these are tokens to compute, too. ahead: tokens to
    compute beyond these, each drawn by the model a pass before.
    """

    sequence: Sequence
    tokens: int
    wanted: range
    hidden: range
    picks: bool
    guess: np.ndarray = field(default_factory=lambda: NONE)
    ahead: int = 0

    @classmethod
    def of(cls, sequence: Sequence, tokens: int) -> "Work":
        wanted, hidden = sequence.wanted(tokens), sequence.hidden(tokens)
        return cls(sequence, tokens, wanted, hidden, sequence.picks(tokens))

    @property
    def ids(self) -> np.ndarray:
        """(tokens,) i32"""
        known = self.sequence.ids[self.sequence.done :][: self.tokens]
        return np.concatenate([known, self.guess]) if len(self.guess) else known

    def bet(self, guess: np.ndarray) -> None:
        """Of an answer: compute these beside its next token, and want the logits of all."""
        self.guess, self.tokens = guess, 1 + len(guess)
        self.wanted = range(self.sequence.done, self.sequence.done + self.tokens)

    def keep(self, picked: int) -> None:
        """Those tokens count after which one was picked: of bets all that came true, and what
        was computed ahead."""
        self.tokens += picked - 1 - len(self.guess)


def batch(work: list[Work], draws: bool = False) -> Batch:
    """Flat arrays of what is to be computed; the order of the logits is that of the work.

    draws: whether the model draws tokens itself.
    """
    sequences = [item.sequence for item in work]
    begins = np.zeros(len(work) + 1, np.int32)
    np.cumsum([item.tokens for item in work], out=begins[1:])
    tables = np.zeros((len(work), max(len(s.pages) for s in sequences)), np.int32)
    for table, sequence in zip(tables, sequences, strict=True):
        table[: len(sequence.pages)] = sequence.table
    shifts = [begin - s.done for begin, s in zip(begins.tolist(), sequences, strict=False)]
    return Batch(
        ids=np.concatenate([item.ids for item in work]),
        begins=begins,
        starts=np.array([s.done for s in sequences], np.int32),
        tables=tables,
        wanted=_rows([item.wanted for item in work], shifts),
        hidden=_rows([item.hidden for item in work], shifts),
        wishes=_wishes(work if draws else []),
        ahead=work[0].ahead,
    )


def _wishes(work: list[Work]) -> np.ndarray:
    """How to draw from each row of logits, pass by pass; none where nobody wants it."""
    rows = sum(len(item.wanted) for item in work)
    wishes = np.zeros((rows * (1 + work[0].ahead) if work else 0, WISH_FIELDS), np.float32)
    wishes[:, HEAT], end, asked = 1, 0, False
    for item in work:
        end += len(item.wanted)
        at, apart = end - 1 - len(item.guess), rows if item.ahead else 1
        for n in range(1 + len(item.guess) + item.ahead if item.picks else 0):
            wish = item.sequence.sampler.wish(item.sequence.length + n)
            if wish is not None:
                wishes[at + n * apart], asked = wish, True
    return wishes if asked else wishes[:0]


def _rows(positions: list[range], shifts: list[int]) -> np.ndarray:
    """Positions of each sequence as rows of the batch."""
    pairs = zip(positions, shifts, strict=True)
    return np.array([position + shift for some, shift in pairs for position in some], np.int32)
