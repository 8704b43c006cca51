"""Who runs next: admission by free pages, prompts in chunks beside answers, preemption."""

from bisect import insort
from collections.abc import Iterator

from localllm.batch import PAGE
from localllm.cache.pages import Pages
from localllm.cache.radix import Radix
from localllm.engine.drafts import ROWS, worth
from localllm.engine.queue import Queue
from localllm.engine.sequence import Sequence, pages_for
from localllm.engine.work import Work


class Scheduler:
    """Sequences wait or run; those that run hold pages.

    Why this never deadlocks: no sequence is longer than the pool; the oldest that runs may take
    the pages of all others, so it goes on and ends; then the next one is the oldest.
    """

    def __init__(self, pages: int, places: int, rows: int, logits: int):
        """places: sequences that may run; rows and logits: what a batch may hold of each."""
        self.pages = Pages(pages)
        self.tree = Radix(self.pages)
        self.queue = Queue()
        self.running: list[Sequence] = []  # oldest first
        self.preemptions = 0
        self._places, self._rows, self._logits = max(1, min(places, logits, rows)), rows, logits

    def plan(self, room: int, cost: float | None = None, ahead: int = 0) -> list[Work]:
        """What to compute now: a token of each answer, and up to `room` tokens of prompts.

        At least a token of these where no answer goes on. cost: of a guess, as part of a step;
        none are made where it is None, or beside prompts. ahead: tokens that answers may go on by
        in the same step, where nothing else is in it.
        """
        self._admit()
        answers = self._answers()
        prompts = self._prompts(answers, room if answers else max(1, room))
        if cost is not None and not prompts:
            self._bet(answers, cost)
        if not prompts and not any(len(item.guess) for item in answers):
            self._go_ahead(answers, ahead)
        return answers + prompts

    def settle(self, work: list[Work]) -> None:
        """What was planned has been computed; what others may want of it goes to the tree."""
        for item in work:
            sequence, answering = item.sequence, item.sequence.answering
            if sequence.ending:
                continue
            sequence.done += item.tokens
            sequence.reach = max(sequence.reach, sequence.done)
            self.queue.charge(sequence, item.tokens)
            if not answering:
                self._publish(sequence)

    def end(self, sequence: Sequence) -> None:
        """A sequence, waiting or running, is over; its pages stay in the tree while they may."""
        if sequence in self.running:
            self.running.remove(sequence)
            self._give_back(sequence)
        else:
            self.queue.remove(sequence)
        self.queue.left(sequence.request.client, self.running)

    @property
    def answers(self) -> int:
        """Running sequences whose prompt is done."""
        return sum(sequence.answering for sequence in self.running)

    # ---- who may run

    def _admit(self) -> None:
        while len(self.running) < self._places and (next := self.queue.next(self.running)):
            self._catch_up(next)
            if self.running and not self._fits(next):
                self._give_back(next)
                return
            self.queue.remove(next)
            insort(self.running, next, key=lambda sequence: sequence.serial)

    def _fits(self, newcomer: Sequence) -> bool:
        """Whether its prompt, those under way, and a page more for everyone can be had."""
        prompts = sum(_missing(sequence) for sequence in [*self.running, newcomer])
        return self.pages.available >= prompts + len(self.running) + 1

    def _preempt(self, sequence: Sequence) -> None:
        """Back into the queue; what it has computed waits in the tree."""
        self.running.remove(sequence)
        self._give_back(sequence)
        self.queue.add(sequence, first=True)
        self.preemptions += 1

    # ---- what they compute

    def _answers(self) -> list[Work]:
        work = []
        for sequence in [s for s in self.running if s.answering]:
            if sequence in self.running and self._grow(sequence, 1, by_force=True):
                work.append(Work.of(sequence, 1))
        return work

    def _bet(self, answers: list[Work], cost: float) -> None:
        """Add guesses to answers, as many as are worth it and there are rows and pages for.

        A step that takes longer does so for every answer.
        """
        room = min(ROWS, self._rows, self._logits) - len(answers)
        for n, item in enumerate(answers):
            sequence, most = item.sequence, room // (len(answers) - n)
            most = min(most, sequence.limit - sequence.length - 1)
            if most > 0 and not sequence.unreported:
                guess = sequence.lookup.guess(sequence.ids, most)
                count = worth(sequence.lookup.rate, cost * len(answers), len(guess))
                tokens = self._grow(sequence, 1 + count, by_force=False)
                item.bet(guess[: tokens - 1])
                room -= tokens - 1

    def _go_ahead(self, answers: list[Work], most: int) -> None:
        """Have answers compute up to `most` further tokens, all of them as many."""
        for item in answers:
            most = min(most, item.sequence.foreseeable, self._rows // len(answers) - 1)
        for item in answers if most > 0 else []:
            most = self._grow(item.sequence, 1 + most, by_force=False) - 1
        for item in answers:
            item.ahead = most

    def _prompts(self, answers: list[Work], room: int) -> list[Work]:
        pending = self._pending()
        rows = max(0, min(room, self._rows - len(answers)))
        logits = max(0, self._logits - len(answers))
        work: list[Work] = []
        for sequence, tokens in _shares(pending, rows, logits):
            if sequence in self.running:
                tokens = self._grow(sequence, tokens, by_force=not answers and not work)
                if tokens:
                    work.append(Work.of(sequence, tokens))
        return work

    def _pending(self) -> list[Sequence]:
        """Those with more than an answer's next token to compute: the oldest, then first the
        client that has had least and the shortest, so that a short one waits for no long one.

        Of several that come to the same page only one computes it; the others find it in the
        tree in a later step.
        """
        pending = [s for s in self.running if s.left and not s.answering and not s.waits]
        pending[1:] = sorted(pending[1:], key=lambda s: (self.queue.rank(s)[0], s.left, s.serial))
        pages: dict[object, Sequence] = {}
        for sequence in pending:
            self._catch_up(sequence)
            _count_hit(sequence)
            pages.setdefault(self._next_page(sequence), sequence)
        return list(pages.values())

    def _next_page(self, sequence: Sequence) -> tuple[str, bytes] | int:
        """Names the page that a sequence computes next by all that its content depends on."""
        end = (sequence.done // PAGE + 1) * PAGE
        if end > sequence.reusable:
            return sequence.serial  # nobody else's
        return sequence.request.cache_key, sequence.ids[:end].tobytes()

    # ---- pages

    def _catch_up(self, sequence: Sequence) -> None:
        """Take from the tree what it knows beyond what the sequence has."""
        if sequence.reusable <= sequence.done:
            return
        known = self.tree.match(sequence.request.cache_key, sequence.ids[: sequence.reusable])
        found = len(known) * PAGE
        if found > sequence.done:
            self.pages.share(known)
            self.pages.drop(sequence.pages)
            sequence.pages, sequence.done = known, found

    def _grow(self, sequence: Sequence, tokens: int, by_force: bool) -> int:
        """Pages for the next tokens, by force from the youngest; returns for how many it got."""
        missing = pages_for(sequence.done + tokens) - len(sequence.pages)
        while by_force and self.pages.available < missing:
            victim = self._victim(sequence)
            self._preempt(victim)
            if victim is sequence:
                return 0
        missing = max(0, min(missing, self.pages.available))
        self.tree.evict(missing - self.pages.free)
        if missing:
            sequence.pages = sequence.pages + [self.pages.take() for _ in range(missing)]
        return min(tokens, len(sequence.pages) * PAGE - sequence.done)

    def _victim(self, needy: Sequence) -> Sequence:
        """The youngest; before it those that wait for their reader, and so compute nothing."""
        idle = [s for s in self.running if s is not needy and s.waits]
        return idle[-1] if idle else self.running[-1]

    def _publish(self, sequence: Sequence) -> None:
        """Give the tree all whole pages."""
        if sequence.request.cache:
            whole = sequence.done // PAGE
            pages, ids = sequence.pages, sequence.ids[: whole * PAGE]
            kept = self.tree.insert(sequence.request.cache_key, ids, pages[:whole])
            sequence.pages = kept + pages[whole:]

    def _give_back(self, sequence: Sequence) -> None:
        self._publish(sequence)
        self.pages.drop(sequence.pages)
        sequence.pages, sequence.done = [], 0


def _count_hit(sequence: Sequence) -> None:
    """Of the prompt, what it got without computing it and has not counted before."""
    found = min(sequence.done, sequence.prompt)
    if found > sequence.reach:
        sequence.usage.cached_tokens += found - sequence.reach
        sequence.reach = found


def _missing(sequence: Sequence) -> int:
    """Pages that a sequence lacks for the tokens it has."""
    return max(0, pages_for(sequence.length) - len(sequence.pages))


def _shares(pending: list[Sequence], rows: int, logits: int) -> Iterator[tuple[Sequence, int]]:
    """How many tokens each computes: half of the rows are the first's, so that it never starves,
    and what the others leave of theirs."""
    shares, most = [], rows // 2
    for sequence in pending[1:]:
        tokens = min(most, _within(sequence, max(0, logits - 1)))
        shares.append((sequence, tokens))
        most, rows, logits = most - tokens, rows - tokens, logits - len(sequence.wanted(tokens))
    for sequence in pending[:1]:
        yield sequence, min(rows, _within(sequence, logits))
    yield from shares


def _within(sequence: Sequence, logits: int) -> int:
    """The most tokens a sequence may compute so that it wants no more than `logits` rows."""
    if sequence.unreported:
        return min(sequence.left, max(0, sequence.reported - sequence.done) + logits)
    if sequence.pooling:
        return sequence.left
    return sequence.left if logits else sequence.left - 1
