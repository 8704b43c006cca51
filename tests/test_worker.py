"""The thread that owns the engine: tickets from many threads, errors, closing."""

import gc
import threading
import time

import numpy as np
import pytest
from fake_model import FakeModel, answer

from localllm.engine.loop import Loop
from localllm.engine.worker import Worker
from localllm.errors import BadRequest, Busy, LocalLLMError, PromptTooLong, Unavailable
from localllm.request import Request
from localllm.sampling import Sampling

GREEDY = Sampling(temperature=0)


def ids(seed: int, count: int) -> list[int]:
    return [int(i) for i in np.random.default_rng(seed).integers(0, 32, count)]


def read(ticket) -> list[int]:
    return [id for event in ticket for id in event.ids]


@pytest.fixture
def model() -> FakeModel:
    return FakeModel()


@pytest.fixture
def worker(model):
    with Worker(model) as worker:
        yield worker
    assert not worker._loop._thread.is_alive()


def test_a_ticket_brings_tokens_and_then_the_facts(worker):
    request = Request(ids(1, 40), GREEDY, max_tokens=10)
    ticket = worker.submit(request)
    assert ticket.finish_reason is None
    assert read(ticket) == answer(request)
    assert ticket.finish_reason == "length" and ticket.end_id is None
    assert ticket.usage == {"prompt_tokens": 40, "cached_tokens": 0, "completion_tokens": 10}
    assert list(ticket) == []
    timings = ticket.timings
    assert all(value >= 0 for value in timings.values())
    assert timings["ttft_ms"] >= timings["prompt_ms"] > 0
    assert timings["predicted_per_second"] == pytest.approx(9000 / timings["predicted_ms"])
    assert timings["prompt_per_second"] == pytest.approx(40_000 / timings["prompt_ms"])


def test_a_reader_with_a_pace_gets_tokens_together_but_the_first_at_once(worker, model):
    model.seconds = 0.002
    request = Request(ids(1, 150), GREEDY, max_tokens=100, logprobs=0)
    ticket = worker.submit(request, pace=0.05)
    events = list(ticket)
    assert [id for event in events for id in event.ids] == answer(request)
    assert [one.id for event in events for one in event.logprobs or ()] == answer(request)
    first = next(n for n, event in enumerate(events) if event.ids)
    assert len(events[first].ids) <= 3 and len(events) < first + 40
    assert max(event.progress or (0, 0) for event in events) == (150, 150)
    assert ticket.finish_reason == "length" and ticket.usage["completion_tokens"] == 100


def test_arrays_are_told_one_by_one_whatever_the_pace(worker):
    rows = worker.submit(Request(ids(1, 200), max_tokens=0, logit_rows=True), pace=0.01)
    assert sum(len(event.logits) for event in rows) == 200
    vector = worker.submit(Request(ids(1, 90), max_tokens=0, pooling="mean"), pace=0.01)
    assert sum(event.vector is not None for event in vector) == 1


def test_the_seed_of_an_answer_gives_it_again(worker):
    first = worker.submit(Request(ids(1, 9), max_tokens=30))
    text = read(first)
    again = worker.submit(Request(ids(1, 9), Sampling(seed=first.seed), max_tokens=30))
    assert read(again) == text
    other = worker.submit(Request(ids(1, 9), max_tokens=30))
    assert other.seed != first.seed and read(other) != text


def test_many_threads_get_their_own_answers(worker):
    requests = [Request(ids(n, 10 + n), Sampling(seed=n), max_tokens=40) for n in range(24)]
    texts: dict[int, list[int]] = {}

    def ask(n: int) -> None:
        texts[n] = read(worker.submit(requests[n]))

    threads = [threading.Thread(target=ask, args=(n,)) for n in range(24)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert texts == {n: answer(request) for n, request in enumerate(requests)}


def test_cancel_from_another_thread_during_the_prompt(model):
    model.seconds = 0.01
    with Worker(model, budget=8) as worker:
        ticket = worker.submit(Request(ids(1, 800), max_tokens=5))
        event = next(ticket)
        assert event.progress == (8, 800)
        threading.Timer(0.02, ticket.cancel).start()
        assert read(ticket) == [] and ticket.finish_reason == "cancelled"
        assert len(model.batches) < 20
        assert worker.call(lambda engine: engine.scheduler.pages.used) == 0
        ticket.cancel()
        assert worker.stats()["cancellations"] == 1


def test_a_cancel_after_the_end_changes_nothing(worker):
    ticket = worker.submit(Request(ids(1, 5), max_tokens=2))
    read(ticket)
    ticket.cancel()
    worker.call(lambda engine: None)
    assert ticket.finish_reason == "length" and worker.stats()["cancellations"] == 0


@pytest.mark.parametrize(
    "request_, error", [(Request([]), BadRequest), (Request([1] * 9999), PromptTooLong)]
)
def test_refusals_come_at_once(worker, request_, error):
    with pytest.raises(error):
        worker.submit(request_)


def test_a_full_queue_is_busy(model):
    model.max_sequences, model.seconds = 1, 0.01
    with Worker(model, max_queue=2) as worker:
        running = worker.submit(Request(ids(0, 5), max_tokens=200))
        next(running)
        waiting = [worker.submit(Request(ids(n, 5), max_tokens=1)) for n in (1, 2)]
        with pytest.raises(Busy):
            worker.submit(Request(ids(3, 5)))
        running.cancel()
        assert [len(read(ticket)) for ticket in waiting] == [1, 1]
        assert waiting[0].timings["queue_ms"] > 0


def test_an_error_reaches_its_reader_and_the_engine_goes_on(worker, model):
    model.error = ZeroDivisionError("by nothing")
    with pytest.raises(LocalLLMError, match="ZeroDivisionError: by nothing"):
        read(worker.submit(Request(ids(1, 5))))
    assert len(read(worker.submit(Request(ids(1, 5), max_tokens=3)))) == 3


def test_an_error_of_the_scheduler_does_not_hang_anybody(worker, caplog):
    def break_it(engine):
        engine.scheduler.plan = lambda *_: 1 / 0

    plan = worker.call(lambda engine: engine.scheduler.plan)
    worker.call(break_it)
    with pytest.raises(LocalLLMError, match="ZeroDivisionError"):
        read(worker.submit(Request(ids(1, 5))))
    worker.call(lambda engine: setattr(engine.scheduler, "plan", plan))
    assert len(read(worker.submit(Request(ids(1, 5), max_tokens=3)))) == 3
    assert "a step of the engine failed" in caplog.text


def test_logits_do_not_pile_up_before_a_slow_reader(worker, model):
    model.max_wanted = 8
    with Worker(model) as narrow:
        ticket = narrow.submit(Request(ids(1, 200), max_tokens=0, logit_rows=True))
        time.sleep(0.2)
        assert ticket._events.qsize() <= 5
        assert sum(len(event.logits) for event in ticket) == 200


@pytest.mark.parametrize("rows", [False, True])
def test_a_ticket_that_nobody_holds_is_cancelled(worker, rows):
    ticket = worker.submit(Request(ids(1, 500), logit_rows=rows))
    next(ticket)
    del ticket
    gc.collect()
    assert worker.call(lambda engine: engine.scheduler.pages.used) == 0
    assert worker.stats()["cancellations"] == 1


def test_call_returns_and_raises(worker):
    assert worker.call(lambda engine: engine.context) == worker.context
    assert worker.call(lambda engine: worker.call(lambda same: same is engine))
    with pytest.raises(KeyError):
        worker.call(lambda engine: {}["nothing"])


def test_a_miss_is_explained(worker):
    read(worker.submit(Request(ids(1, 64), max_tokens=1)))
    changed = ids(1, 64)
    changed[20] = (changed[20] + 1) % 32
    miss = worker.explain(changed)
    assert (miss.position, miss.known, miss.given) == (20, ids(1, 64)[20], changed[20])


def test_close_ends_what_runs_and_waits(model):
    model.seconds, model.max_sequences = 0.01, 1
    worker = Worker(model)
    tickets = [worker.submit(Request(ids(n, 5))) for n in range(3)]
    next(tickets[0])
    worker.close()
    worker.close()
    for ticket in tickets:
        read(ticket)
        assert ticket.finish_reason == "cancelled"
    with pytest.raises(Unavailable):
        worker.submit(Request([1]))
    with pytest.raises(Unavailable):
        worker.call(lambda engine: None)


def test_two_models_take_turns_on_one_thread():
    loop = Loop()
    try:
        first, second = Worker(FakeModel(), loop=loop), Worker(FakeModel(pages=200), loop=loop)
        request = Request(ids(1, 30), GREEDY, max_tokens=50)
        tickets = [worker.submit(request) for worker in (first, second)]
        assert [read(ticket) for ticket in tickets] == [answer(request)] * 2
        first.close()
        assert loop.alive and len(read(second.submit(request))) == 50
        with pytest.raises(Unavailable):
            first.submit(request)
    finally:
        loop.close()


def test_nothing_stays_behind(model):
    before = threading.active_count()
    for _ in range(5):
        with Worker(model) as worker:
            read(worker.submit(Request(ids(1, 40), max_tokens=3)))
    gc.collect()
    assert threading.active_count() == before
