"""A model whose logits are a formula of the tokens in its pages: a wrong page is a wrong answer."""

import hashlib
import time
from itertools import count, pairwise

import numpy as np

from localllm.batch import PAGE, Batch
from localllm.engine.engine import Engine
from localllm.engine.sequence import Ending
from localllm.request import Event, Request


class FakeModel:
    """Keeps token ids where a model keeps K and V; the next token depends on all before it."""

    def __init__(
        self, pages=64, vocab=32, context=4096, rows=64, wanted=64, sequences=64, drafts=False
    ):
        self.pages, self.vocab, self.context = pages, vocab, context
        self.max_rows, self.max_wanted, self.max_sequences = rows, wanted, sequences
        self.draws, self.drafts, self.ahead = False, drafts, 0
        self.width, self._hidden = 4, np.zeros((0, 4), np.float32)
        self.pool = np.full((pages, PAGE), -1, np.int64)
        self.batches: list[Batch] = []
        self.seconds = 0.0  # what a step takes
        self.error: Exception | None = None  # what the next step raises

    def forward(self, batch: Batch) -> np.ndarray:
        error, self.error = self.error, None
        if error:
            raise error
        time.sleep(self.seconds)
        self._check(batch)
        self.batches.append(batch)
        rows = np.empty((len(batch.wanted), self.vocab), np.float32)
        owner = np.searchsorted(batch.begins, np.arange(len(batch.ids)), side="right") - 1
        positions = np.arange(len(batch.ids)) - batch.begins[owner] + batch.starts[owner]
        pages = batch.tables[owner, positions // PAGE]
        self.pool[pages, positions % PAGE] = batch.ids

        def read(row: int) -> np.ndarray:
            return self.pool[batch.tables[owner[row]]].reshape(-1)[: positions[row] + 1]

        for out, row in zip(rows, batch.wanted, strict=True):
            out[:] = self.logits(read(row))
        some = [self.hidden_row(read(row)) for row in batch.hidden]
        self._hidden = np.array(some, np.float32).reshape(-1, self.width)
        return rows

    def hidden(self) -> np.ndarray:
        return self._hidden

    def hidden_row(self, ids: np.ndarray) -> np.ndarray:
        """(width,) f32 of the last of ids (n,)."""
        return self.logits(ids)[: self.width] / 3

    def logits(self, ids: np.ndarray) -> np.ndarray:
        """(vocab,) f32, what a model that reads all of ids (n,) says."""
        digest = hashlib.shake_128(np.asarray(ids, np.int64).tobytes()).digest(2 * self.vocab)
        return np.frombuffer(digest, np.uint16).astype(np.float32) / 8192 - 4

    def close(self) -> None:
        pass

    def _check(self, batch: Batch) -> None:
        """What a real model relies on."""
        sequences, lengths = len(batch.starts), np.diff(batch.begins)
        assert 0 < len(batch.ids) <= self.max_rows and sequences <= self.max_sequences
        assert len(batch.wanted) <= self.max_wanted
        assert batch.begins[0] == 0 and batch.begins[-1] == len(batch.ids) and lengths.min() > 0
        assert batch.tables.shape[0] == sequences
        assert all(a.dtype == np.int32 for a in (batch.ids, batch.begins, batch.starts))
        assert batch.tables.dtype == np.int32 and batch.wanted.dtype == np.int32
        assert all(a < b for a, b in pairwise(batch.wanted))
        assert all(a < b for a, b in pairwise(batch.hidden)) and batch.hidden.dtype == np.int32
        assert not set(batch.hidden.tolist()) & set(batch.wanted.tolist())
        assert batch.tables.min() >= 0 and batch.tables.max() < self.pages
        ends = batch.starts + lengths
        assert ends.max() <= min(self.context, batch.tables.shape[1] * PAGE)


class Parrot(FakeModel):
    """Mostly says what followed its last two tokens before, and then may be guessed at."""

    def __init__(self, drafts=True, **sizes):
        super().__init__(drafts=drafts, **sizes)

    def logits(self, ids: np.ndarray) -> np.ndarray:
        row = super().logits(ids)
        return row if row.argmax() < self.vocab // 16 else super().logits(ids[-2:])


class Run:
    """One request in an engine without a thread: what it brought forth."""

    def __init__(self, engine: Engine, request: Request):
        self.events: list[Event] = []
        self.ending: Ending | None = None
        self.sequence = engine.sequence(request, self._take)
        engine.add(self.sequence)

    def _take(self, item: Event | Ending) -> None:
        assert self.ending is None, "something came after the end"
        if isinstance(item, Ending):
            self.ending = item
        else:
            self.events.append(item)

    @property
    def ids(self) -> list[int]:
        return [id for event in self.events for id in event.ids]

    @property
    def vector(self) -> np.ndarray:
        (vector,) = [event.vector for event in self.events if event.vector is not None]
        return vector

    @property
    def logits(self) -> np.ndarray:
        parts = [event for event in self.events if event.logits is not None]
        starts = np.cumsum([parts[0].start, *(len(event.logits) for event in parts)])
        assert [event.start for event in parts] == list(starts[:-1])
        return np.concatenate([event.logits for event in parts])


def steady(model: FakeModel, seconds: float = 0.01, **options) -> Engine:
    """An engine whose every step seems to take as long: from one look at the clock to the next."""
    ticks = count(1)
    return Engine(model, clock=lambda: seconds * next(ticks), **options)


def finish(engine: Engine, *runs: Run, steps: int = 10_000) -> None:
    """Step, with the books checked after each, until these runs have ended."""
    while not all(run.ending for run in runs):
        assert engine.step(), "nothing to do, and not all have ended"
        engine.scheduler.pages.check()
        steps -= 1
        assert steps > 0, "this takes too long"


def answer(request: Request, **model) -> list[int]:
    """What a request gets alone."""
    engine = Engine(FakeModel(**model))
    run = Run(engine, request)
    finish(engine, run)
    return run.ids
