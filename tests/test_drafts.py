"""Guesses at next tokens: they save steps, and never change an answer."""

import random
from itertools import count

import numpy as np
import pytest
import tiny
from fake_model import FakeModel, Parrot, Run, finish, steady
from hypothesis import given
from hypothesis import strategies as st

from localllm import models
from localllm.engine.drafts import ROWS, SUFFIX, Lookup, worth
from localllm.engine.engine import Engine
from localllm.gguf import GGUF
from localllm.request import Request
from localllm.sampling import Sampling

GREEDY = Sampling(temperature=0)


def ids(seed: int, count: int) -> list[int]:
    return [int(i) for i in np.random.default_rng(seed).integers(0, 32, count)]


def plain(request: Request, **sizes) -> Run:
    """What a request gets from a Parrot that nobody guesses at."""
    run = Run(engine := Engine(Parrot(drafts=False, **sizes)), request)
    finish(engine, run)
    return run


# ---- what is guessed ----------------------------------------------------------------------------


@given(st.lists(st.integers(0, 3), max_size=60), st.integers(1, 8), st.data())
def test_a_guess_is_what_followed_the_last_time(words, most, data):
    lookup, text = Lookup(), np.array(words, np.int32)
    for end in sorted(data.draw(st.sets(st.integers(0, len(words))))):
        guess = lookup.guess(text[:end], most).tolist()
        spots = [
            at for at in range(SUFFIX, end)
            if words[at - SUFFIX : at] == words[end - SUFFIX : end]
        ] if end >= SUFFIX else []  # fmt: skip
        if spots:
            after = words[spots[-1] : end]
            assert guess == [after[n % len(after)] for n in range(most)]
        else:
            assert guess == []


def test_it_learns_how_often_guesses_come_true():
    lookup = Lookup()
    text, quiet = np.array([1, 2, 3, 4, 5, 1, 2, 3], np.int32), []
    for picked, better in (([4, 5], True), ([4, 9, 9], False), ([9], False), ([4], True)):
        before = lookup.rate
        assert lookup.guess(text, 2).tolist() == [4, 5]
        lookup.learn(picked)
        assert (lookup.rate > before) == better
        quiet.append(lookup.quiet)
    before = lookup.rate
    lookup.learn([4])  # nothing was guessed since
    assert lookup.rate == before
    assert quiet == [0, 0, 1, 0] and lookup.quiet == 1


def test_how_many_are_worth_it():
    assert worth(0.9, 0.1, 7) == 7
    assert worth(0.5, 0.2, 7) in (1, 2)
    assert worth(0.1, 0.2, 7) == 0
    assert worth(1.0, 1.0, 7) == 0
    assert worth(0.9, 0.1, 0) == 0
    counts = [worth(rate / 20, 0.15, 7) for rate in range(21)]
    assert counts == sorted(counts)


# ---- what comes of it ---------------------------------------------------------------------------


@pytest.mark.parametrize("sampling", [GREEDY, Sampling(temperature=0.05, seed=3)])
def test_guesses_save_steps_and_change_nothing(sampling):
    request = Request(ids(1, 40), sampling, max_tokens=600)
    model = Parrot()
    run = Run(engine := steady(model), request)
    finish(engine, run)
    alone = plain(request)
    assert run.ids == alone.ids
    assert run.sequence.usage == alone.sequence.usage
    assert len(run.events) == len(alone.events)
    timings = run.sequence.timings
    assert engine.counts.steps + timings.draft_n_accepted == 600 and engine.counts.steps < 450
    assert timings.draft_n == engine.counts.draft_tokens >= engine.counts.accepted_tokens > 150
    assert timings.draft_n_accepted == engine.counts.accepted_tokens
    assert max(len(batch.ids) for batch in model.batches[1:]) == ROWS


def test_none_where_a_model_takes_them_badly_or_nobody_wants_them():
    request = Request(ids(1, 40), GREEDY, max_tokens=60)
    for engine in (steady(Parrot(drafts=False)), steady(Parrot(), drafts=False)):
        finish(engine, Run(engine, request))
        assert engine.counts.steps == 60


def test_a_step_stays_within_a_models_rows():
    model = Parrot(rows=4, wanted=3, pages=200)
    engine = steady(model)
    runs = [Run(engine, Request(ids(n, 20), GREEDY, max_tokens=200)) for n in range(2)]
    finish(engine, *runs)
    assert max(len(batch.wanted) for batch in model.batches) == 3


def test_what_stands_in_no_text_before_costs_no_row():
    model = FakeModel(drafts=True)
    request = Request(ids(1, 40), GREEDY, max_tokens=60)
    finish(engine := steady(model), Run(engine, request))
    assert sum(len(batch.ids) for batch in model.batches) < 40 + 60 + 8


def test_ends_and_limits_hold_in_the_middle_of_a_guess():
    free = plain(Request(ids(1, 40), GREEDY, max_tokens=300)).ids
    for length in range(60, 100):
        request = Request(ids(1, 40), GREEDY, max_tokens=length)
        run = Run(engine := steady(Parrot()), request)
        finish(engine, run)
        assert (run.ids, run.ending.reason) == (free[:length], "length")
    for end in set(free):
        request = Request(ids(1, 40), GREEDY, max_tokens=300, end_ids=frozenset([end]))
        run = Run(engine := steady(Parrot()), request)
        finish(engine, run)
        assert run.ids == free[: free.index(end)] and run.ending.end_id == end
        assert run.sequence.usage.completion_tokens == len(run.ids) + 1
        engine.scheduler.pages.check()


def test_a_mask_is_told_of_each_token_once():
    class Watch:
        def __init__(self):
            self.taken = []

        def allowed(self):
            return np.arange(32) % 7 != len(self.taken) % 7

        def take(self, id):
            self.taken.append(id)

    def ask(model: FakeModel) -> tuple[list[int], int]:
        watch = Watch()
        run = Run(engine := steady(model), Request(ids(2, 9), GREEDY, max_tokens=200, mask=watch))
        finish(engine, run)
        assert watch.taken == run.ids
        return run.ids, engine.counts.steps

    (with_guesses, few), (without, many) = ask(Parrot()), ask(Parrot(drafts=False))
    assert with_guesses == without and few < many


def test_a_mask_that_allows_nothing_fails_after_the_same_token():
    class Ten:
        def __init__(self):
            self.count = 0

        def allowed(self):
            return np.full(32, self.count < 150)

        def take(self, id):
            self.count += 1

    for model in (Parrot(), Parrot(drafts=False)):
        run = Run(engine := steady(model), Request(ids(2, 9), GREEDY, max_tokens=200, mask=Ten()))
        finish(engine, run)
        assert len(run.ids) == 150 and run.ending.error is not None


@pytest.mark.parametrize("seed", range(12))
def test_whatever_happens_every_answer_is_the_one_it_gets_alone(seed):
    """Random arrivals, cancels, guesses, and a pool so small that it evicts and preempts."""
    rng = random.Random(seed)
    model, ticks = Parrot(pages=20, rows=32, wanted=8, sequences=6), count()
    engine = Engine(model, clock=lambda: 0.01 * next(ticks), stretch=3.0 * (seed % 2))
    stems = [ids(100 + n, rng.randrange(1, 120)) for n in range(3)]
    runs: list[Run] = []
    while len(runs) < 30 or engine.busy:
        if len(runs) < 30 and rng.random() < 0.1:
            prompt = rng.choice(stems)[: rng.randrange(1, 120)] + ids(rng.randrange(5), 9)
            sampling = Sampling(
                seed=rng.randrange(9), temperature=rng.choice([0, 0.3]),
                repeat_penalty=rng.choice([1, 1.1]), mirostat=rng.choice([0, 0, 2]),
            )  # fmt: skip
            request = Request(prompt, sampling, max_tokens=rng.randrange(150),
                              logit_rows=rng.random() < 0.1, cache=rng.random() < 0.9,
                              logprobs=rng.choice([None, 1]))  # fmt: skip
            runs.append(Run(engine, request))
        if runs and rng.random() < 0.02:
            engine.cancel(rng.choice(runs).sequence)
        engine.step()
        engine.scheduler.pages.check()
    stats = engine.stats()
    assert stats["pages_used"] == stats["running"] == stats["queued"] == 0
    assert stats["preemptions"] and stats["completion_tokens"] > stats["steps"]
    for run in runs:
        alone = plain(run.sequence.request, pages=20, rows=32, wanted=8)
        assert run.ids == alone.ids[: len(run.ids)]
        assert run.ending.reason == "cancelled" or run.ids == alone.ids
        told = [logprob for event in run.events for logprob in event.logprobs or ()]
        expected = [logprob for event in alone.events for logprob in event.logprobs or ()]
        assert told == expected[: len(told)]


@pytest.mark.parametrize("kv_type", ["f16", "q8_0"])
@pytest.mark.parametrize("draws", [True, False])
def test_a_real_model_says_the_same(tmp_path, kv_type, draws):
    """With the pages that guesses were written to and that were written over after them."""
    words = ids(5, 12) * 3
    asked = [
        Request(words, GREEDY, max_tokens=120),
        Request([*words[5:], 4], Sampling(seed=1, top_k=3, temperature=0.1), max_tokens=120),
    ]
    with GGUF.open(tiny.write(tmp_path / "m.gguf", text=False, layers=2)) as file:
        model = models.load(
            file, device="cpu", threads=2, context=256, pages=64, max_rows=32, kv_type=kv_type
        )
        model.draws, model.ahead = draws, 0
        answers = []
        for drafts in (False, True):
            engine = steady(model, drafts=drafts)
            runs = [Run(engine, request) for request in asked]
            finish(engine, *runs)
            answers.append([run.ids for run in runs])
        assert engine.counts.draft_tokens > engine.counts.accepted_tokens > 20
        assert answers[0] == answers[1]
        model.close()
