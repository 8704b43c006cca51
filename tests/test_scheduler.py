"""Who runs next: budgets, fairness, preemption, and prompts that are computed once."""

import random

import numpy as np
import pytest
from fake_model import FakeModel, Run, answer, finish

from localllm.batch import PAGE
from localllm.engine.engine import Engine
from localllm.engine.pace import FIRST, LEAST, Pace
from localllm.request import Request
from localllm.sampling import Sampling

GREEDY = Sampling(temperature=0)


def ids(seed: int, count: int) -> list[int]:
    return [int(i) for i in np.random.default_rng(seed).integers(0, 32, count)]


def request(seed: int, prompt: int, tokens: int, client: str = "") -> Request:
    return Request(ids(seed, prompt), GREEDY, max_tokens=tokens, client=client)


def engine_with(budget: int | None = None, **model) -> Engine:
    return Engine(FakeModel(**model), budget=budget, stretch=0)


def widths(engine: Engine) -> list[list[int]]:
    """How many tokens of each sequence each step computed."""
    return [np.diff(batch.begins).tolist() for batch in engine.model.batches]


def test_a_step_mixes_answers_with_a_part_of_a_prompt():
    engine = engine_with(budget=10)
    first = Run(engine, request(1, 5, 30))
    engine.step()
    Run(engine, request(2, 25, 2))
    for _ in range(3):
        engine.step()
    assert widths(engine) == [[5], [1, 9], [1, 9], [1, 7]]
    assert len(first.ids) == 4


def test_every_stream_advances_with_every_step_of_a_long_prompt():
    engine = engine_with(budget=16)
    streams = [Run(engine, request(n, 4, 60)) for n in range(3)]
    while engine.scheduler.answers < 3:
        engine.step()
    before = [len(run.ids) for run in streams]
    Run(engine, request(9, 400, 1))
    for _ in range(20):
        engine.step()
    assert [len(run.ids) for run in streams] == [n + 20 for n in before]


def test_a_short_prompt_does_not_wait_for_a_long_one():
    engine = engine_with(budget=32, pages=200)
    long = Run(engine, request(1, 1000, 1))
    engine.step()
    short = Run(engine, request(2, 30, 1))
    finish(engine, short, steps=3)
    assert not long.ending
    finish(engine, long)


def test_the_oldest_prompt_keeps_half_the_room():
    engine = engine_with(budget=32, pages=200)
    long = Run(engine, request(1, 1000, 1))
    engine.step()
    for n in range(60):
        Run(engine, request(100 + n, 90, 1))
    finish(engine, long, steps=2 * 1000 // 32 + 2)


def test_answers_never_leave_prompts_without_room():
    engine = engine_with(budget=4, sequences=8)
    streams = [Run(engine, request(n, 3, 200)) for n in range(6)]
    while engine.scheduler.answers < 6:
        engine.step()
    newcomer = Run(engine, request(7, 40, 1))
    finish(engine, newcomer, steps=40)
    assert not any(run.ending for run in streams)


def test_the_bounds_of_the_model_hold():
    engine = engine_with(sequences=4, rows=8, wanted=3)
    runs = [Run(engine, request(n, 30, 6)) for n in range(9)]
    finish(engine, *runs)  # the fake model checks each batch
    assert max(len(batch.wanted) for batch in engine.model.batches) == 3


def test_clients_take_turns():
    engine = engine_with(sequences=2, pages=400)
    many = [Run(engine, request(n, 20, 4, "greedy")) for n in range(12)]
    one = Run(engine, request(50, 20, 4, "modest"))
    finish(engine, one, steps=12)
    assert sum(run.ending is not None for run in many) <= 2
    finish(engine, *many)
    assert not engine.scheduler.queue._served


def test_the_client_that_had_less_gets_the_room():
    engine = engine_with(budget=20, pages=400)
    runs = [Run(engine, request(n, 200, 1, "greedy")) for n in range(3)]
    for _ in range(4):
        engine.step()
    modest = Run(engine, request(50, 100, 1, "modest"))
    finish(engine, modest, steps=11)
    assert not any(run.ending for run in runs[1:])


def test_the_youngest_is_preempted_and_goes_on_from_the_tree():
    engine = engine_with(pages=10, rows=64)
    old, young = Run(engine, request(1, 40, 60)), Run(engine, request(2, 40, 60))
    while not engine.scheduler.preemptions:
        engine.step()
    assert engine.scheduler.running == [old.sequence]
    assert young.sequence.pages == [] and young.ids
    finish(engine, old, young)
    assert old.ids == answer(request(1, 40, 60)) and young.ids == answer(request(2, 40, 60))
    assert young.sequence.usage.cached_tokens == 0  # its own work is no hit


def test_who_was_preempted_comes_back_before_later_arrivals():
    engine = engine_with(pages=10, rows=64)
    old, young = Run(engine, request(1, 40, 60)), Run(engine, request(2, 40, 60))
    engine.step()
    late = Run(engine, request(3, 40, 1))
    while not engine.scheduler.preemptions:
        engine.step()
    assert list(engine.scheduler.queue) == [young.sequence, late.sequence]
    finish(engine, old, young, late)


def test_admission_waits_for_pages_instead_of_preempting():
    engine = engine_with(pages=8)
    first = Run(engine, request(1, 60, 20))
    engine.step()
    second = Run(engine, request(2, 60, 20))
    finish(engine, first)
    assert not second.events
    finish(engine, second)
    assert engine.scheduler.preemptions == 0


@pytest.mark.parametrize("pages", [8, 9, 12])
def test_a_full_pool_never_deadlocks(pages):
    engine = engine_with(pages=pages, budget=16)
    runs = [Run(engine, request(n, 8 * PAGE - 20, 20)) for n in range(8)]
    finish(engine, *runs, steps=2000)
    assert [run.ids for run in runs] == [answer(request(n, 8 * PAGE - 20, 20)) for n in range(8)]


def test_who_shares_a_prompt_waits_for_the_one_that_computes_it():
    engine = engine_with(budget=32, pages=200)
    stem = ids(1, 500)
    runs = [Run(engine, Request(stem + ids(n, 30), GREEDY, max_tokens=2)) for n in range(4)]
    engine.step()
    assert len(engine.model.batches[0].starts) == 1
    finish(engine, *runs)
    computed = sum(len(batch.ids) for batch in engine.model.batches)
    assert computed <= 500 + 4 * (30 + PAGE + 2)


def test_when_the_one_that_computes_is_cancelled_another_goes_on():
    engine = engine_with(budget=16, pages=200)
    first, second = Run(engine, request(1, 300, 3)), Run(engine, request(1, 300, 3))
    for _ in range(5):
        engine.step()
    engine.cancel(first.sequence)
    finish(engine, second)
    assert second.sequence.usage.cached_tokens == 80
    assert second.ids == answer(request(1, 300, 3), pages=200)


def test_a_cancel_during_the_prompt_gives_back_all_pages_after_one_step():
    engine = engine_with(budget=16)
    run, waiting = Run(engine, request(1, 300, 3)), Run(engine, request(2, 900, 3))
    engine.step()
    for one in (run, waiting):
        engine.cancel(one.sequence)
        assert one.ending.reason == "cancelled"
    assert not engine.step() and engine.scheduler.pages.used == 0
    engine.cancel(run.sequence)
    assert engine.stats()["cancellations"] == 2


def test_pace_gives_prompts_the_time_that_answers_can_spare():
    pace = Pace(512, stretch=3.0)
    assert pace.room(0) == 512 and pace.room(2) == 0  # first it has to know how long that takes
    pace.learn(0, 512, 2.56)  # 5 ms a token
    for _ in range(50):
        pace.learn(1, 0, 0.030)
    assert pace.room(1) == FIRST
    for _ in range(50):
        pace.learn(1, 12, 0.030 + 12 * 0.005)
    assert pace.room(1) == pytest.approx(2 * 30 / 5, abs=1)
    assert Pace(4096, stretch=3.0).room(0) == 4096
    pace.learn(1, 0, 0.030)
    for _ in range(20):
        pace.learn(1, 12, 0.030 + 12 * 0.002)  # 2 ms: other work has left the machine
    assert pace.room(1) == pytest.approx(2 * 30 / 2, abs=2)
    pace.learn(0, 512, 100.0)
    assert pace.room(0) < 32  # three seconds
    for _ in range(200):
        pace.learn(1, 30, 30.0)
        pace.learn(1, 0, 0.030)
    assert pace.room(1) == LEAST
    assert Pace(512, stretch=0).room(8) == 504


def cost(depth: int, tokens: int) -> float:
    """Seconds that tokens add to a step: at the end of the prompt five times as many."""
    return (0.0005 + depth * 5e-7) * tokens


@pytest.mark.parametrize("known", [True, False])
def test_pace_holds_steps_to_the_stretch_while_a_prompt_grows_dear(known):
    """Steps are noisy, and now and then one is disturbed; a model may also begin this way."""
    rng, pace, depth, seconds = random.Random(1), Pace(512, stretch=3.0), 0, []
    for _ in range(known * 20):
        pace.learn(1, 0, 0.004)
    while depth < 4000:
        tokens = pace.room(1)
        took = (0.004 + cost(depth, tokens)) * rng.uniform(0.9, 1.1) * rng.choice([1] * 60 + [4])
        pace.learn(1, tokens, took)
        depth += tokens
        seconds += [took] * bool(tokens)
    settled = sorted(seconds[20:])
    assert settled[len(settled) // 2] == pytest.approx(0.012, rel=0.2)
    assert settled[int(0.95 * len(settled))] < 4 * 0.004


def test_one_disturbed_step_changes_little():
    pace = Pace(512)
    for _ in range(20):
        pace.learn(1, 0, 0.010)
        pace.learn(1, 10, 0.030)
    before = pace.room(1)
    pace.learn(1, 10, 3.0)
    assert before * 0.75 <= pace.room(1) <= before
