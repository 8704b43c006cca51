"""Runs many requests through one model, step by step."""

import secrets
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from itertools import count

import numpy as np

from localllm.batch import PAGE, Batch, Model
from localllm.cache.radix import Miss
from localllm.engine.pace import STRETCH, Pace
from localllm.engine.pooling import KINDS
from localllm.engine.sampler import Sampler
from localllm.engine.scheduler import Scheduler
from localllm.engine.sequence import Deliver, Ending, Sequence
from localllm.engine.work import Work, batch
from localllm.errors import BadRequest, LocalLLMError, PromptTooLong
from localllm.request import Event, Logprob, Request


@dataclass(slots=True)
class Counts:
    """What has happened so far."""

    steps: int = 0
    prompt_tokens: int = 0  # of requests that began to run
    hit_tokens: int = 0  # of these, found in the tree
    completion_tokens: int = 0
    draft_tokens: int = 0  # guesses that were computed
    accepted_tokens: int = 0  # of these, those that came true
    finished: int = 0
    cancellations: int = 0
    failures: int = 0


class Engine:
    """Knows token ids and pages. `check` and `sequence` are for any thread; the rest is for one.

    budget: tokens a step may compute, None for what the model takes. stretch: see Pace. drafts:
    whether to guess at next tokens (see `drafts`), where the model takes them well.
    """

    def __init__(
        self,
        model: Model,
        *,
        budget: int | None = None,
        stretch: float = STRETCH,
        drafts: bool = True,
        clock: Callable[[], float] = time.perf_counter,
    ):
        self.model, self.clock = model, clock
        self.drafts = drafts and model.drafts
        self.pace = Pace(min(budget or model.max_rows, model.max_rows), stretch)
        self.scheduler = Scheduler(
            model.pages, model.max_sequences, model.max_rows, model.max_wanted
        )
        self.counts = Counts()
        self.context = min(model.context, model.pages * PAGE)
        self._serials = count()

    @property
    def busy(self) -> bool:
        return bool(self.scheduler.running or self.scheduler.queue)

    def step(self) -> bool:
        """Advance everybody by one step; False when there was nothing to do."""
        cost = self.pace.cost if self.drafts else None
        ahead = min(self.pace.ahead, self.model.ahead) if self.model.draws else 0
        work = self.scheduler.plan(self.pace.room(self.scheduler.answers), cost, ahead)
        if not work:
            return False
        what = batch(work, self.model.draws)
        logits = self._run(work, what)
        if logits is not None:
            self._pool(work)
            drawn = self.model.drawn().T.tolist() if len(what.wishes) else [[-1]] * len(logits)
            picks = [self._pick(*rows) for rows in _rows_of(work, logits, drawn)]
            self.scheduler.settle(work)
            for item, events in zip(work, picks, strict=True):
                self._settle(item, events)
        return True

    # ---- coming and going

    def check(self, request: Request) -> None:
        """Raises PromptTooLong or BadRequest for what could never be answered."""
        ids = np.asarray(request.ids)
        if not len(ids):
            raise BadRequest("The prompt is empty.")
        if ids.ndim != 1 or ids.dtype.kind not in "iu":
            raise BadRequest("The prompt must be a list of token ids.")
        if ids.min() < 0 or ids.max() >= self.model.vocab:
            raise BadRequest(f"Token ids must be from 0 to {self.model.vocab - 1}.")
        if request.max_tokens is not None and request.max_tokens < 0:
            raise BadRequest(f"max_tokens is {request.max_tokens}; it must not be negative.")
        if len(ids) > self.context or (request.max_tokens != 0 and len(ids) == self.context):
            raise PromptTooLong(len(ids), self.context)
        if not 0 <= request.logit_start <= len(ids):
            raise BadRequest(f"logit_start must be from 0 to {len(ids)}.")
        if request.pooling and (request.pooling not in KINDS or request.max_tokens != 0):
            raise BadRequest("pooling is 'mean' or 'last', and goes with max_tokens=0.")
        if request.logprobs is not None and not 0 <= request.logprobs <= self.model.vocab:
            raise BadRequest("logprobs must be from 0 to the size of the vocabulary.")

    def sequence(self, request: Request, deliver: Deliver) -> Sequence:
        """A request made ready to run; `deliver` gets its Events, then one Ending."""
        self.check(request)
        seed = request.sampling.seed
        sampler = Sampler(request, self.model.vocab, secrets.randbits(53) if seed is None else seed)
        most = self.context if request.max_tokens is None else request.max_tokens
        limit = min(self.context, len(request.ids) + most)
        return Sequence(request, next(self._serials), sampler, limit, deliver)

    def add(self, sequence: Sequence) -> None:
        self.scheduler.queue.add(sequence)

    def cancel(self, sequence: Sequence) -> None:
        """End it now, wherever it is; nothing happens when it has ended."""
        if sequence.ending is None:
            self.counts.cancellations += 1
            self._end(sequence, Ending("cancelled"))

    def fail(self, sequences: list[Sequence], error: Exception) -> None:
        """End these with an error."""
        for sequence in sequences:
            if sequence.ending is None:
                self.counts.failures += 1
                self._end(sequence, Ending("error", error))

    def explain(self, ids: list[int], cache_key: str = "") -> Miss:
        """Where a prompt first differs from the most similar one that is cached."""
        return self.scheduler.tree.explain(cache_key, np.array(ids, np.int32))

    def stats(self) -> dict[str, int]:
        """Gauges and counters for metrics; reads single numbers, so any thread may."""
        scheduler, pages = self.scheduler, self.scheduler.pages
        return {
            "running": len(scheduler.running),
            "queued": len(scheduler.queue),
            "pages": pages.total,
            "pages_used": pages.used,
            "pages_cached": pages.cached,
            "pages_free": pages.free,
            "preemptions": scheduler.preemptions,
            "evictions": scheduler.tree.evictions,
            **asdict(self.counts),
        }

    # ---- the verbs of a step

    def _run(self, work: list[Work], batch: Batch) -> np.ndarray | None:
        start = self.clock()
        for item in work:
            if not item.sequence.timings.admitted:
                item.sequence.timings.admitted = start
                self.counts.prompt_tokens += item.sequence.prompt
        try:
            logits = self.model.forward(batch)
        except Exception as error:
            self.fail([item.sequence for item in work], error)
            return None
        self.counts.steps += 1
        answers = sum(item.sequence.answering for item in work)
        guesses = sum(len(item.guess) for item in work)
        if guesses:
            self.pace.learn_guesses(guesses, self.clock() - start)
        else:
            tokens = sum(item.tokens for item in work) - answers
            passes = len(self.model.drawn()) if batch.ahead else 1
            self.pace.learn(answers, tokens, (self.clock() - start) / passes)
        return logits

    def _pool(self, work: list[Work]) -> None:
        """Give hidden rows to those that asked for them."""
        pooling = [item for item in work if item.hidden]
        rows, begin = self.model.hidden() if pooling else np.zeros(0), 0
        for item in pooling:
            assert item.sequence.pooling is not None
            item.sequence.pooling.add(rows[begin : begin + len(item.hidden)])
            begin += len(item.hidden)

    def _pick(self, item: Work, rows: np.ndarray, drawn: list[list[int]]) -> list[Event]:
        """What comes of an item's logits: copies of them, where asked for, and an event for each
        token, when it is time for one; nothing where that failed.

        drawn: the ids that the model drew from each row, pass by pass, or -1.
        """
        sequence, event = item.sequence, Event()
        if sequence.unreported and len(rows):
            event.logits, event.start = rows.copy(), item.wanted.start
        if not item.picks:
            return [event]
        last = slice(-1 - len(item.guess), None)
        picked = self._picks(item, rows[last], [id for ids in drawn[last] for id in ids])
        item.keep(len(picked))
        sequence.lookup.learn([id for id, _ in picked])
        if len(item.guess):
            self._count_guesses(sequence, len(item.guess), max(0, len(picked) - 1))
        events = [event, *(Event() for _ in picked[1:])]
        for event, (id, logprob) in zip(events, picked, strict=False):
            event.ids = [id]
            event.logprobs = None if logprob is None else [logprob]
        return events[: len(picked)]

    def _count_guesses(self, sequence: Sequence, computed: int, right: int) -> None:
        sequence.timings.draft_n += computed
        sequence.timings.draft_n_accepted += right
        self.counts.draft_tokens += computed
        self.counts.accepted_tokens += right

    def _picks(
        self, item: Work, rows: np.ndarray, drawn: list[int]
    ) -> list[tuple[int, Logprob | None]]:
        """The next token, and one more for each guess that came true, or what was drawn ahead;
        none where that failed."""
        sequence, guess = item.sequence, item.guess.tolist()
        picked: list[tuple[int, Logprob | None]] = []
        for n, id in enumerate(drawn):
            logprob = None
            if id < 0 and item.ahead:  # its logits are gone
                sequence.drawable = False
                break
            if id < 0:
                try:
                    past = np.concatenate([sequence.ids, item.guess[:n]]) if n else sequence.ids
                    id, logprob = sequence.sampler.pick(rows[n], past)
                except Exception as error:
                    if not picked:  # else its turn comes with the next step
                        self.fail([sequence], error)
                    break
            picked.append((id, logprob))
            wrong = n < len(guess) and id != guess[n]
            if wrong or id in sequence.request.end_ids:
                break
        return picked

    def _settle(self, item: Work, events: list[Event]) -> None:
        """Tell the reader; end what is at its end."""
        sequence = item.sequence
        for event in events:
            if event.logits is not None:
                sequence.reported = event.start + len(event.logits)
            if not sequence.timings.prompted:
                event.progress = (sequence.done, sequence.prompt)
                if sequence.done >= sequence.prompt:
                    self._prompted(sequence)
            ending = self._append(sequence, event) if item.picks else None
            if ending is None and sequence.done >= sequence.limit:
                ending = Ending("length")
                event.vector = sequence.pooling.vector() if sequence.pooling else None
            if event.ids or event.progress or event.logits is not None:
                sequence.deliver(event)
            if ending:
                self.counts.finished += 1
                self._end(sequence, ending)

    def _prompted(self, sequence: Sequence) -> None:
        timings, cached = sequence.timings, sequence.usage.cached_tokens
        timings.prompted, timings.computed_tokens = self.clock(), sequence.prompt - cached
        self.counts.hit_tokens += cached

    def _append(self, sequence: Sequence, event: Event) -> Ending | None:
        id = event.ids[0]
        now = self.clock()
        sequence.timings.first = sequence.timings.first or now
        sequence.timings.ended = now
        sequence.timings.predicted_tokens += 1
        sequence.usage.completion_tokens += 1
        self.counts.completion_tokens += 1
        if id in sequence.request.end_ids:
            event.ids, event.logprobs = [], None
            return Ending("stop", end_id=id)
        sequence.append(id)
        return Ending("length") if sequence.length >= sequence.limit else None

    def _end(self, sequence: Sequence, ending: Ending) -> None:
        sequence.ending = ending
        self.scheduler.end(sequence)
        sequence.deliver(ending)


def _rows_of(
    work: list[Work], logits: np.ndarray, drawn: list[list[int]]
) -> Iterator[tuple[Work, np.ndarray, list[list[int]]]]:
    """Each piece of work with its rows of logits, and what was drawn from them."""
    begin = 0
    for item in work:
        end = begin + len(item.wanted)
        yield item, logits[begin:end], drawn[begin:end]
        begin = end


def as_user_error(error: Exception) -> LocalLLMError:
    """The error itself when it is meant for users, else one that says what happened."""
    if isinstance(error, LocalLLMError):
        return error
    wrapped = LocalLLMError(f"The engine failed: {type(error).__name__}: {error}")
    wrapped.__cause__ = error
    return wrapped
