"""The engine: each request gets the answer it would get alone, whatever else happens."""

import random
from itertools import count

import numpy as np
import pytest
from fake_model import FakeModel, Run, answer, finish

from localllm.batch import PAGE
from localllm.engine.engine import Engine
from localllm.engine.sequence import Ending
from localllm.errors import BadRequest, LocalLLMError, PromptTooLong
from localllm.request import Request
from localllm.sampling import Sampling

GREEDY = Sampling(temperature=0)


def ids(seed: int, count: int) -> list[int]:
    return [int(i) for i in np.random.default_rng(seed).integers(0, 32, count)]


def test_greedy_follows_the_model():
    model = FakeModel()
    run = Run(engine := Engine(model), Request(ids(1, 40), GREEDY, max_tokens=20))
    finish(engine, run)
    text = ids(1, 40)
    for _ in range(20):
        text.append(int(model.logits(text).argmax()))
    assert run.ids == text[40:]
    assert run.ending.reason == "length"
    assert run.sequence.usage.as_dict() == {
        "prompt_tokens": 40,
        "cached_tokens": 0,
        "completion_tokens": 20,
    }


def test_an_end_token_stops_and_is_not_delivered():
    free = answer(Request(ids(1, 5), GREEDY, max_tokens=9))
    end = next(id for id in free if free.index(id) > 2)
    run = Run(engine := Engine(FakeModel()), Request(ids(1, 5), GREEDY, end_ids=frozenset([end])))
    finish(engine, run)
    assert run.ids == free[: free.index(end)]
    assert (run.ending.reason, run.ending.end_id) == ("stop", end)
    assert run.sequence.usage.completion_tokens == len(run.ids) + 1


def test_the_context_ends_an_answer():
    run = Run(engine := Engine(FakeModel(context=48)), Request(ids(1, 40), GREEDY))
    finish(engine, run)
    assert (len(run.ids), run.ending.reason) == (8, "length")


def test_no_tokens_only_fill_the_cache():
    engine = Engine(FakeModel())
    first = Run(engine, Request(ids(1, 40), max_tokens=0))
    finish(engine, first)
    assert (first.ids, first.ending.reason) == ([], "length")
    second = Run(engine, Request(ids(1, 40), max_tokens=1))
    finish(engine, second)
    assert second.sequence.usage.cached_tokens == 32


@pytest.mark.parametrize("budget", [1, 7, 16, 64])
def test_chunks_change_nothing(budget):
    request = Request(ids(2, 100), Sampling(seed=5), max_tokens=20)
    run = Run(engine := Engine(FakeModel(), budget=budget), request)
    finish(engine, run)
    assert run.ids == answer(request)


def test_the_second_turn_pays_for_what_is_new():
    engine = Engine(FakeModel())
    first = Run(engine, Request(ids(3, 50), GREEDY, max_tokens=30))
    finish(engine, first)
    longer = ids(3, 50) + first.ids + ids(4, 10)
    second = Run(engine, Request(longer, GREEDY, max_tokens=5))
    finish(engine, second)
    assert second.sequence.usage.cached_tokens == (50 + 30 - 1) // PAGE * PAGE
    assert second.ids == answer(Request(longer, GREEDY, max_tokens=5))


def test_n_answers_compute_their_prompt_once():
    model = FakeModel(rows=64, pages=200)
    engine = Engine(model)
    runs = [Run(engine, Request(ids(5, 700), Sampling(seed=n), max_tokens=8)) for n in range(6)]
    finish(engine, *runs)
    computed = sum(len(batch.ids) for batch in model.batches)
    assert computed < 700 + 6 * (PAGE + 8)
    assert len({tuple(run.ids) for run in runs}) > 1
    for n, run in enumerate(runs):
        assert run.ids == answer(Request(ids(5, 700), Sampling(seed=n), max_tokens=8), pages=200)
    assert [run.sequence.usage.cached_tokens for run in runs] == [0] + [43 * PAGE] * 5


def test_a_key_or_no_cache_keeps_prompts_apart():
    engine = Engine(FakeModel())
    for request, cached in [
        (Request(ids(1, 40), max_tokens=1, cache=False), 0),
        (Request(ids(1, 40), max_tokens=1), 0),
        (Request(ids(1, 40), max_tokens=1, cache_key="adapter"), 0),
        (Request(ids(1, 40), max_tokens=1, cache=False), 0),
        (Request(ids(1, 40), max_tokens=1), 32),
    ]:
        run = Run(engine, request)
        finish(engine, run)
        assert run.sequence.usage.cached_tokens == cached


def test_rows_of_logits_are_those_of_the_model():
    model = FakeModel(wanted=8)
    engine = Engine(model)
    prompt = ids(6, 50)
    finish(engine, Run(engine, Request(prompt, max_tokens=1)))
    for start in (0, 20, 49):
        run = Run(engine, Request(prompt, max_tokens=0, logit_rows=True, logit_start=start))
        finish(engine, run)
        expected = [model.logits(prompt[: n + 1]) for n in range(start, 50)]
        assert np.array_equal(run.logits, expected)
        assert run.sequence.usage.cached_tokens == start // PAGE * PAGE
        assert run.ids == []


def test_logits_wait_for_a_reader_that_is_behind():
    engine = Engine(FakeModel(wanted=8))
    run = Run(engine, Request(ids(6, 50), max_tokens=0, logit_rows=True))
    run.sequence.ready = lambda: len(run.events) < 2
    other = Run(engine, Request(ids(7, 20), GREEDY, max_tokens=5))
    finish(engine, other)
    assert len(run.events) == 2 and not engine.step() and engine.busy
    run.sequence.ready = lambda: True
    finish(engine, run)
    assert len(run.logits) == 50


def test_a_reader_that_is_behind_holds_up_no_answer():
    """Once its prompt's logits are delivered; nor is its answer's next token planned and lost."""
    first = Request(ids(8, 20), GREEDY, max_tokens=40, logit_rows=True)
    second = Request(ids(9, 28), GREEDY, max_tokens=40)
    engine = Engine(FakeModel(pages=6))
    runs = [Run(engine, request) for request in (first, second)]
    while not runs[0].sequence.answering:
        engine.step()
    runs[0].sequence.ready = lambda: False
    finish(engine, *runs)
    assert engine.scheduler.preemptions
    assert [run.ids for run in runs] == [answer(first), answer(second)]
    assert all(run.ending == Ending("length") for run in runs)


def test_log_probabilities_come_with_the_tokens():
    model = FakeModel()
    run = Run(engine := Engine(model), Request(ids(1, 9), GREEDY, max_tokens=3, logprobs=2))
    finish(engine, run)
    row = model.logits(ids(1, 9)).astype(np.float64)
    expected = row - np.log(np.exp(row).sum())
    first = run.events[0].logprobs[0]
    assert first.id == run.ids[0] and first.logprob == pytest.approx(expected.max(), abs=1e-5)
    assert [id for id, _ in first.top] == list(np.argsort(-row)[:2])


def test_progress_is_told_for_every_chunk():
    run = Run(engine := Engine(FakeModel(), budget=16), Request(ids(1, 40), max_tokens=2))
    finish(engine, run)
    told = [event.progress for event in run.events]
    assert told == [(16, 40), (32, 40), (40, 40), None]


@pytest.mark.parametrize(
    "request_, error",
    [
        (Request([]), BadRequest),
        (Request([1, 32]), BadRequest),
        (Request([-1]), BadRequest),
        (Request([1], max_tokens=-1), BadRequest),
        (Request([1], logit_start=2), BadRequest),
        (Request([1], logprobs=33), BadRequest),
        (Request([1], pooling="mean"), BadRequest),
        (Request([1], pooling="most", max_tokens=0), BadRequest),
        (Request([1], Sampling(logit_bias={32: 1.0})), BadRequest),
        (Request([1] * 65), PromptTooLong),
        (Request([1] * 64), PromptTooLong),
    ],
)
def test_what_can_never_be_answered_is_refused_at_once(request_, error):
    engine = Engine(FakeModel(context=64))
    with pytest.raises(error):
        engine.sequence(request_, print)
    assert not engine.busy


def test_the_pool_is_a_limit_too_and_both_numbers_are_named():
    engine = Engine(FakeModel(pages=3, context=4096))
    with pytest.raises(PromptTooLong, match="100 tokens.* 48") as refused:
        engine.sequence(Request([1] * 100), print)
    assert (refused.value.prompt_tokens, refused.value.context) == (100, 48)


def test_a_failing_step_ends_its_requests_and_nothing_else():
    model = FakeModel()
    engine = Engine(model)
    lost = Run(engine, Request(ids(1, 40), GREEDY, max_tokens=5))
    engine.step()
    model.error = MemoryError("no more")
    engine.step()
    assert isinstance(lost.ending.error, MemoryError)
    engine.scheduler.pages.check()
    run = Run(engine, Request(ids(2, 40), GREEDY, max_tokens=5))
    finish(engine, run)
    assert run.ids == answer(Request(ids(2, 40), GREEDY, max_tokens=5))
    assert engine.stats()["failures"] == 1


def test_a_failing_pick_ends_only_its_own_request():
    class Nothing:
        def allowed(self):
            return np.zeros(32, bool)

        def take(self, id):
            raise AssertionError("nothing was allowed")

    engine = Engine(FakeModel())
    lost = Run(engine, Request(ids(1, 40), max_tokens=5, mask=Nothing()))
    run = Run(engine, Request(ids(2, 40), GREEDY, max_tokens=5))
    finish(engine, lost, run)
    assert isinstance(lost.ending.error, LocalLLMError)
    assert run.ids == answer(Request(ids(2, 40), GREEDY, max_tokens=5))


@pytest.mark.parametrize("seed", range(8))
def test_whatever_happens_every_answer_is_the_one_it_gets_alone(seed):
    """Random arrivals, cancels and a pool so small that it evicts and preempts."""
    rng = random.Random(seed)
    model, ticks = FakeModel(pages=20, rows=32, wanted=8, sequences=6), count()
    options = {"budget": rng.choice([5, 32]), "stretch": 3.0 * (seed % 2)}
    engine = Engine(model, clock=lambda: 0.01 * next(ticks), **options)
    stems = [ids(100 + n, rng.randrange(1, 120)) for n in range(3)]
    runs: list[Run] = []
    while len(runs) < 40 or engine.busy:
        if len(runs) < 40 and rng.random() < 0.3:
            prompt = rng.choice(stems)[: rng.randrange(1, 120)] + ids(rng.randrange(5), 9)
            sampling = Sampling(
                seed=rng.randrange(9), repeat_penalty=1.3, mirostat=rng.choice([0, 2])
            )
            rows = rng.random() < 0.1
            request = Request(prompt, sampling, max_tokens=rng.randrange(90), logit_rows=rows,
                              client=rng.choice("ab"), cache=rng.random() < 0.9)  # fmt: skip
            runs.append(Run(engine, request))
        if runs and rng.random() < 0.03:
            engine.cancel(rng.choice(runs).sequence)
        engine.step()
        engine.scheduler.pages.check()
    stats = engine.stats()
    assert stats["pages_used"] == stats["running"] == stats["queued"] == 0
    assert stats["preemptions"] and stats["evictions"] and stats["cancellations"]
    for run in runs:
        request, alone = run.sequence.request, answer(run.sequence.request)
        assert run.ids == alone[: len(run.ids)]
        assert run.ending.reason == "cancelled" or run.ids == alone
        if request.logit_rows and run.ending.reason != "cancelled":
            expected = [engine.model.logits(request.ids[: n + 1]) for n in range(len(request.ids))]
            assert np.array_equal(run.logits, expected)
