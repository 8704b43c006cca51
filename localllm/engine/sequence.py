"""One request while it runs: its tokens, its pages and how far it has come."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass

import numpy as np

from localllm.batch import PAGE
from localllm.engine.drafts import QUIET, Lookup
from localllm.engine.pooling import Pooling
from localllm.engine.sampler import Sampler
from localllm.request import Event, Request, Timings, Usage


@dataclass(frozen=True, slots=True)
class Ending:
    """How a sequence ended: "stop", "length", "cancelled" or "error"; on which end token."""

    reason: str
    error: Exception | None = None
    end_id: int | None = None


Deliver = Callable[[Event | Ending], None]


def pages_for(tokens: int) -> int:
    """How many pages hold this many tokens."""
    return -(-tokens // PAGE)


class Sequence:
    """Tokens 0 .. length - 1, of which the K and V of the first `done` are in `pages`.

    The last token of an answer is known before its K and V are computed, so a running answer has
    done == length - 1. `limit` is the length at which it ends; `serial` orders by arrival.
    """

    def __init__(
        self, request: Request, serial: int, sampler: Sampler, limit: int, deliver: Deliver
    ):
        self.request, self.serial, self.sampler = request, serial, sampler
        self.limit, self.deliver = limit, deliver
        self.ready: Callable[[], bool] = lambda: True  # whether the reader keeps up with logits
        self.prompt = self.length = len(request.ids)
        self._ids = np.empty(self.length + 64, np.int32)
        self._ids[: self.length] = request.ids
        self.done = self.reach = 0  # reach: the furthest that done has ever been
        self._pages: list[int] = []
        self._table: np.ndarray | None = None
        self.reported = request.logit_start  # rows of logits before this are not wanted any more
        self.pooling = Pooling(request.pooling, self.prompt) if request.pooling else None
        self.lookup = Lookup()
        self.drawable = sampler.plain  # whether the model can draw what is picked
        self.ending: Ending | None = None
        self.usage, self.timings = Usage(prompt_tokens=self.prompt), Timings()

    @property
    def ids(self) -> np.ndarray:
        """(length,) i32, prompt and answer."""
        return self._ids[: self.length]

    @property
    def left(self) -> int:
        """Tokens to compute before the next one can be picked."""
        return self.length - self.done

    @property
    def answering(self) -> bool:
        """Whether one more token is all that is to be computed before the next pick."""
        return self.length > self.prompt and self.left == 1

    @property
    def foreseeable(self) -> int:
        """Of an answer: how many tokens beyond the next one a step may compute."""
        calm = self.drawable and self.lookup.quiet >= QUIET
        return self.limit - self.length - 1 if calm else 0

    @property
    def unreported(self) -> bool:
        """Whether logits of the prompt are still to be delivered."""
        return self.request.logit_rows and self.reported < self.prompt

    @property
    def waits(self) -> bool:
        """Whether the reader of its prompt's logits is to catch up first."""
        return self.unreported and not self.ready()

    @property
    def reusable(self) -> int:
        """Tokens whose pages may come from the tree: not the last, none whose rows are wanted."""
        if not self.request.cache:
            return 0
        if self.pooling:
            return min(self.length - 1, self.pooling.next)
        return min(self.length - 1, self.reported if self.unreported else self.length)

    def picks(self, tokens: int) -> bool:
        """Whether a token is picked after the next `tokens` positions."""
        return tokens == self.left and self.length < self.limit

    def wanted(self, tokens: int) -> range:
        """Of the next `tokens` positions, those whose logits are wanted."""
        end = self.done + tokens
        if self.unreported:
            return range(max(self.reported, self.done), max(end, self.reported))
        return range(end - 1, end) if self.picks(tokens) else range(0)

    def hidden(self, tokens: int) -> range:
        """Of the next `tokens` positions, those whose hidden rows are wanted."""
        return self.pooling.wanted(self.done, self.done + tokens) if self.pooling else range(0)

    def append(self, id: int) -> None:
        if self.length == len(self._ids):
            self._ids = np.concatenate([self._ids, np.empty(self.length, np.int32)])
        self._ids[self.length] = id
        self.length += 1

    @property
    def pages(self) -> list[int]:
        return self._pages

    @pages.setter
    def pages(self, pages: Iterable[int]) -> None:
        self._pages, self._table = list(pages), None

    @property
    def table(self) -> np.ndarray:
        """(pages,) i32"""
        if self._table is None:
            self._table = np.array(self._pages, np.int32)
        return self._table
