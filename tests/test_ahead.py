"""Several tokens of a step, each drawn by the model before: fewer steps, and the same answers."""

import dataclasses
import random

import numpy as np
import pytest
import tiny
from fake_model import Parrot, Run, finish, steady
from recorded import Part, batch_of

from localllm import models
from localllm.backends.cpu.model import CPUModel
from localllm.batch import PAGE, Batch
from localllm.engine.drafts import QUIET
from localllm.engine.engine import Engine
from localllm.engine.pace import SOON
from localllm.errors import BadRequest
from localllm.gguf import GGUF
from localllm.kernels.fields import SPAN
from localllm.request import Request
from localllm.sampling import Sampling
from localllm.wishes import BANNED, FIRST_BANNED, HEAT, TOP, WISH_FIELDS

pytestmark = pytest.mark.usefixtures("kept_kernels")
GREEDY = Sampling(temperature=0)
ROOM = 24  # positions between those that no call of a Drawing crosses


class Drawing(Parrot):
    """Draws the likeliest where just that is wished for; goes ahead, but not across ROOM."""

    def __init__(self, ahead: int = 7, **options):
        super().__init__(**options)
        self.draws, self.ahead = True, ahead
        self._drawn = np.zeros((1, 0), np.int64)

    def forward(self, batch: Batch) -> np.ndarray:
        width, drawn = len(batch.wanted), []
        passes = min(1 + batch.ahead, ROOM - int((batch.starts % ROOM).max()))
        assert not batch.ahead or len(batch.wishes) == width * (1 + batch.ahead)
        ends = batch.starts + np.diff(batch.begins) + batch.ahead
        assert ends.max() <= min(self.context, batch.tables.shape[1] * PAGE)
        for n in range(passes):
            logits = super().forward(batch)
            wishes = batch.wishes[n * width : (n + 1) * width]
            drawn.append([self._draw(*pair) for pair in zip(logits, wishes, strict=False)])
            if n + 1 < passes:
                ids = np.maximum(drawn[-1], 0).astype(np.int32)
                batch = dataclasses.replace(batch, ids=ids, starts=batch.starts + np.int32(1))
        self._drawn = np.array(drawn)
        return logits

    def _draw(self, row: np.ndarray, wish: np.ndarray) -> int:
        banned = wish[FIRST_BANNED:][: int(wish[BANNED])].astype(np.int64)
        row[banned] = -np.inf
        return int(row.argmax()) if wish[TOP] == 1 and np.isfinite(row).all() else -1

    def drawn(self) -> np.ndarray:
        return self._drawn


def ids(seed: int, count: int) -> list[int]:
    return [int(i) for i in np.random.default_rng(seed).integers(0, 32, count)]


def alone(request: Request, **options) -> Run:
    """What a request gets from a model that draws nothing."""
    run = Run(engine := Engine(Parrot(drafts=False, **options)), request)
    finish(engine, run)
    return run


def quick(model, seconds: float = SOON / 4, **options) -> Engine:
    """An engine whose every pass seems to take so long that there is time for four."""
    return Engine(model, clock=lambda: seconds * (1 + len(model.batches)), **options)


def test_it_saves_steps_and_changes_nothing():
    request = Request(ids(1, 40), GREEDY, max_tokens=400)
    run = Run(engine := quick(Drawing(drafts=False)), request)
    finish(engine, run)
    want = alone(request)
    assert run.ids == want.ids and run.sequence.usage == want.sequence.usage
    assert len(run.events) == len(want.events)
    assert 100 <= engine.counts.steps < 150


def test_a_step_stays_short():
    for seconds, most in ((SOON / 2, 2), (SOON, 1), (2 * SOON, 1)):
        model = Drawing(drafts=False)
        engine = quick(model, seconds)
        finish(engine, Run(engine, Request(ids(1, 9), GREEDY, max_tokens=60)))
        assert 1 + max(batch.ahead for batch in model.batches) == most


def test_none_where_the_model_draws_nothing_or_a_prompt_goes_on():
    for model in (Parrot(drafts=False), Drawing(ahead=0, drafts=False)):
        finish(engine := quick(model), Run(engine, Request(ids(1, 9), GREEDY, max_tokens=60)))
        assert engine.counts.steps == 60
    model = Drawing(drafts=False, pages=300)
    engine = quick(model, budget=8)
    first = Run(engine, Request(ids(1, 9), GREEDY, max_tokens=400))
    finish(engine, Run(engine, Request(ids(2, 9), GREEDY, max_tokens=10)))
    finish(engine, first, Run(engine, Request(ids(3, 500), GREEDY, max_tokens=1)))
    assert all(not batch.ahead or len(batch.ids) == len(batch.starts) for batch in model.batches)


def test_where_guesses_come_true_none_has_to_wait():
    model = Drawing()
    run = Run(engine := quick(model), Request(ids(1, 40), GREEDY, max_tokens=600))
    while run.ending is None:
        engine.step()
        assert not model.batches[-1].ahead or run.sequence.lookup.quiet >= QUIET
    assert engine.counts.accepted_tokens > 100 and any(batch.ahead for batch in model.batches)


@pytest.mark.parametrize("drafts", [False, True])
def test_ends_and_limits_hold_in_the_middle_of_a_step(drafts):
    free = alone(Request(ids(1, 40), GREEDY, max_tokens=300)).ids
    for length in range(60, 100):
        run = Run(
            engine := quick(Drawing(drafts=drafts)),
            Request(ids(1, 40), GREEDY, max_tokens=length),
        )
        finish(engine, run)
        assert (run.ids, run.ending.reason) == (free[:length], "length")
    for end in set(free):
        request = Request(ids(1, 40), GREEDY, max_tokens=300, end_ids=frozenset([end]))
        run = Run(engine := quick(Drawing(drafts=drafts)), request)
        finish(engine, run)
        assert run.ids == free[: free.index(end)] and run.ending.end_id == end
        assert run.sequence.usage.completion_tokens == len(run.ids) + 1
        engine.scheduler.pages.check()


def test_what_cannot_be_drawn_is_picked_step_by_step():
    request = Request(ids(1, 40), Sampling(seed=4), max_tokens=60)
    run = Run(engine := quick(Drawing(drafts=False)), request)
    finish(engine, run)
    assert run.ids == alone(request).ids
    assert 60 < engine.counts.steps <= 62


def test_no_number_fails_after_the_same_token():
    class Breaks(Drawing):
        def logits(self, ids: np.ndarray) -> np.ndarray:
            return super().logits(ids) if len(ids) < 90 else np.full(32, np.nan, np.float32)

    request = Request(ids(1, 40), GREEDY, max_tokens=300)
    for ahead in (0, 7):
        run = Run(engine := quick(Breaks(ahead, drafts=False)), request)
        finish(engine, run)
        assert len(run.ids) == 50 and run.ending.error is not None


@pytest.mark.parametrize("seed", range(12))
def test_whatever_happens_every_answer_is_the_one_it_gets_alone(seed):
    """Random arrivals, cancels, guesses, and a pool so small that it evicts and preempts."""
    rng = random.Random(seed)
    sizes = {"pages": 20, "rows": 32, "wanted": 8}
    model = Drawing(drafts=seed % 3 == 0, sequences=6, **sizes)
    engine = quick(model, stretch=3.0 * (seed % 2))
    stems = [ids(100 + n, rng.randrange(1, 120)) for n in range(3)]
    runs: list[Run] = []
    while len(runs) < 30 or engine.busy:
        if len(runs) < 30 and rng.random() < 0.1:
            prompt = rng.choice(stems)[: rng.randrange(1, 120)] + ids(rng.randrange(5), 9)
            sampling = Sampling(
                seed=rng.randrange(9), temperature=rng.choice([0, 0, 0, 0, 0.3]),
                min_tokens=rng.randrange(9),
            )  # fmt: skip
            request = Request(prompt, sampling, max_tokens=rng.randrange(150),
                              end_ids=frozenset(rng.choice([(), (rng.randrange(32),)])),
                              logit_rows=rng.random() < 0.1, cache=rng.random() < 0.9,
                              logprobs=rng.choice([None, None, None, 1]))  # fmt: skip
            runs.append(Run(engine, request))
        if runs and rng.random() < 0.02:
            engine.cancel(rng.choice(runs).sequence)
        engine.step()
        engine.scheduler.pages.check()
    stats = engine.stats()
    assert stats["pages_used"] == stats["running"] == stats["queued"] == 0
    assert any(batch.ahead for batch in model.batches)
    for run in runs:
        want = alone(run.sequence.request, **sizes)
        assert run.ids == want.ids[: len(run.ids)]
        assert run.ending.reason == "cancelled" or run.ids == want.ids


# ---- the CPU backend ----------------------------------------------------------------------------


@pytest.fixture(params=["f16", "q8_0"])
def model(request, tmp_path):
    with GGUF.open(tiny.write(tmp_path / "m.gguf", text=False, layers=2)) as file:
        model = models.load(
            file,
            device="cpu",
            threads=2,
            context=300,
            pages=400,
            max_rows=64,
            kv_type=request.param,
        )
        yield model
        model.close()


@pytest.mark.parametrize("chats", [1, 3, 20])
def test_a_real_model_says_the_same(model, chats):
    """Through spans that are worked out apart (1, 3) and not (20), across several of them."""
    asked = [
        Request(
            ids(n, 5 + 7 * n),
            GREEDY if n % 2 else Sampling(seed=n, top_k=5),
            max_tokens=280 - 7 * n,
            end_ids=frozenset([9]) if n % 3 == 2 else frozenset(),
        )
        for n in range(chats)
    ]
    answers, steps = [], []
    ways = ((False, 0, False), (True, 0, False), (True, 7, False), (True, 7, True))
    for draws, ahead, drafts in ways:
        model.draws, model.ahead = draws, ahead
        engine = steady(model, SOON / 8, drafts=drafts)
        runs = [Run(engine, request) for request in asked]
        finish(engine, *runs)
        answers.append([run.ids for run in runs])
        steps.append(engine.counts.steps)
    assert answers[0] == answers[1] == answers[2] == answers[3]
    assert steps[0] == steps[1] > 2 * steps[2]


def wishes(rows: int) -> np.ndarray:
    made = np.zeros((rows, WISH_FIELDS), np.float32)
    made[:, [TOP, HEAT]] = 1
    return made


def two(start: int, ahead: int, **fields) -> Batch:
    """A row of each of two sequences with pages up to position 159."""
    batch = batch_of(Part([1], [0], start), Part([2], [0], 3))
    tables = np.arange(20, dtype=np.int32).reshape(2, 10)
    fields = {"tables": tables, "wishes": wishes(2 * (1 + ahead)), "ahead": ahead, **fields}
    return dataclasses.replace(batch, **fields)


def test_a_call_ends_where_another_span_begins(model):
    for start, passes in ((0, 8), (SPAN - 8, 8), (SPAN - 3, 3), (SPAN - 1, 1), (SPAN, 8)):
        model.forward(two(start, 7))
        assert model.drawn().shape == (passes, 2)
        assert model.drawn().min() >= 0


def test_what_no_batch_may_be(model):
    assert isinstance(model, CPUModel)
    three = batch_of(Part([1, 2], np.arange(10)), Part([3], np.arange(10, 20)))
    for bad in (
        two(0, -1), two(0, 8), two(0, 3, wishes=wishes(2)), two(0, 3, wishes=wishes(0)),
        two(0, 3, wanted=np.array([1], np.int32), wishes=wishes(4)), two(155, 5), two(298, 2),
        dataclasses.replace(three, ahead=1, wishes=wishes(2 * len(three.wanted))),
    ):  # fmt: skip
        with pytest.raises(BadRequest):
            model.forward(bad)
    crowd = batch_of(*[Part([1], np.arange(n, n + 1), 0) for n in range(40)])
    with pytest.raises(BadRequest):  # more draws than there is room for
        model.forward(dataclasses.replace(crowd, ahead=1, wishes=wishes(80)))
    model.forward(two(155, 4))
