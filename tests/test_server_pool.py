"""The pool of models and the gate: loading once, keeping, letting go, and turning away."""

import asyncio
import threading
import time

import httpx
import pytest
from fakes_server import FakeLibrary, FakeLLM, serving, until

from localllm.errors import BadRequest, Busy, NotFound, Unavailable
from localllm.server.gate import Gate
from localllm.server.pool import Pool


def pool_of(*names, keep_alive=300.0, memory=None, **library):
    return Pool(FakeLibrary(*map(FakeLLM, names), **library), keep_alive, memory)


async def touch(pool, name):
    async with pool.use(name) as llm:
        return llm


def test_many_who_ask_at_once_load_once():
    async def story():
        pool = pool_of("a", load_seconds=0.1)
        found = await asyncio.gather(*(touch(pool, "a") for _ in range(20)))
        assert len(set(map(id, found))) == 1 and pool.library.opened == ["a"]

    asyncio.run(story())


def test_who_gives_up_waiting_does_not_stop_the_load():
    async def story():
        pool = pool_of("a", load_seconds=0.2)
        task = asyncio.ensure_future(touch(pool, "a"))
        await asyncio.sleep(0.05)
        task.cancel()
        await asyncio.wait([task])
        assert pool.entries["a"].users == 0
        await touch(pool, "a")
        assert pool.library.opened == ["a"]

    asyncio.run(story())


def test_what_is_idle_goes_and_comes_back():
    async def story():
        pool = pool_of("a", "b", keep_alive=0.05)
        pool.pinned = ("b",)
        llm = await touch(pool, "a")
        await touch(pool, "b")
        async with pool.use("a"):
            await asyncio.sleep(0.1)
            await pool.sweep()
            assert not llm.closed, "somebody uses it"
        await pool.sweep()
        assert not llm.closed, "it was used just now"
        await asyncio.sleep(0.1)
        await pool.sweep()
        assert llm.closed and list(pool.entries) == ["b"], "named models stay"
        assert not (await touch(pool, "a")).closed

    asyncio.run(story())


@pytest.mark.parametrize("bounds", [{"memory": 200}, {"room": 2}], ids=["budget", "machine"])
def test_the_least_recently_used_makes_room(bounds):
    async def story():
        pool = pool_of("a", "b", "c", **bounds)
        for name in ("a", "b", "a", "c"):
            await touch(pool, name)
        assert sorted(pool.entries) == ["a", "c"]
        assert pool.library.llms["b"].closed

    asyncio.run(story())


@pytest.mark.parametrize(("bounds", "error"), [({"memory": 100}, Busy), ({"room": 1}, Unavailable)])
def test_a_model_in_use_is_never_taken_away(bounds, error):
    async def story():
        pool = pool_of("a", "b", **bounds)
        async with pool.use("a") as llm:
            with pytest.raises(error):
                await touch(pool, "b")
            assert not llm.closed
        await touch(pool, "b")
        assert llm.closed

    asyncio.run(story())


def test_a_model_larger_than_the_budget_is_refused_at_once():
    async def story():
        pool = pool_of("a", "b", memory=150)
        await touch(pool, "a")
        pool.memory = 50
        with pytest.raises(Unavailable, match="does not fit"):
            await touch(pool, "b")
        assert list(pool.entries) == ["a"], "nothing was let go for it"

    asyncio.run(story())


def test_a_load_that_failed_is_tried_again():
    async def story():
        pool = pool_of("a")
        pool.library.broken.add("a")
        with pytest.raises(Unavailable) as caught:
            await touch(pool, "a")
        assert "secret" not in caught.value.message and "a" in pool.failed
        pool.library.broken.clear()
        await touch(pool, "a")
        assert not pool.failed

    asyncio.run(story())


def test_a_server_that_ends_gives_up_loading(home):
    library = FakeLibrary(load_seconds=0.05)
    library.steps = 1000
    with serving(library, ["fake"]) as site:
        assert until(lambda: "fake" in site.pool.entries)
        since = time.monotonic()
    assert time.monotonic() - since < 5 and not library.opened


def test_which_model_is_meant_without_a_name():
    async def story():
        pool = pool_of("a", "b")
        with pytest.raises(BadRequest):
            await pool.resolve(None)
        with pytest.raises(NotFound):
            await pool.resolve("c")
        await touch(pool, "a")
        await touch(pool, "b")
        assert await pool.resolve(None) == "b"
        pool.pinned = ("a",)
        assert await pool.resolve("") == "a"

    asyncio.run(story())


def test_the_gate_is_first_come_first_served():
    async def story():
        gate, order = Gate(1, 10), []

        async def visit(name):
            async with gate.place():
                order.append(name)
                assert gate.running == 1
                await asyncio.sleep(0)

        await asyncio.gather(*map(visit, range(8)))
        assert order == list(range(8)) and gate.running == gate.waiting == 0

    asyncio.run(story())


def test_the_gate_turns_away_and_forgets_who_left():
    async def story():
        gate = Gate(1, 1)
        async with gate.place():
            waiting = asyncio.ensure_future(gate.place().__aenter__())
            await asyncio.sleep(0)
            with pytest.raises(Busy):
                await gate.place().__aenter__()
            waiting.cancel()
            await asyncio.wait([waiting])
            assert gate.waiting == 0
            other = asyncio.ensure_future(gate.place().__aenter__())
            await asyncio.sleep(0)
            gate.close()
            with pytest.raises(Unavailable):
                await other
        assert gate.running == 0

    asyncio.run(story())


USER = {"messages": [{"role": "user", "content": "hi"}], "model": "fake"}


def answers_of(site, count):
    found = []

    def ask():
        url = site.note.url + "/v1/chat/completions"
        found.append(httpx.post(url, json=USER, timeout=30))

    threads = [threading.Thread(target=ask) for _ in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return found


def test_more_than_may_wait_are_told_to_come_again(home):
    llm = FakeLLM(seconds=0.03)
    with serving(FakeLibrary(llm), ["fake"], running=2, waiting=3) as site:
        found = answers_of(site, 12)
    assert {answer.status_code for answer in found} == {200, 429}
    refused = [answer for answer in found if answer.status_code == 429]
    assert all(answer.headers["retry-after"] for answer in refused) and len(refused) >= 12 - 8
    assert llm.most_running <= 2


def test_sigterm_lets_running_requests_end_and_no_new_ones_in(home):
    llm = FakeLLM(answer="x" * 30, seconds=0.02)
    with serving(FakeLibrary(llm), ["fake"], running=1, grace_seconds=5.0) as site:
        found = []
        url = site.note.url + "/v1/chat/completions"
        threads = [
            threading.Thread(target=lambda: found.append(httpx.post(url, json=USER, timeout=30)))
            for _ in range(2)
        ]
        for thread in threads:
            thread.start()
            time.sleep(0.15)
        site.stop()
        for thread in threads:
            thread.join(10)
    assert sorted(answer.status_code for answer in found) == [200, 503]
    whole = next(answer for answer in found if answer.status_code == 200)
    assert whole.json()["choices"][0]["message"]["content"] == "x" * 30
    assert llm.closed


def test_the_grace_period_ends(home):
    llm = FakeLLM(answer="x" * 10_000, seconds=0.02)
    with serving(FakeLibrary(llm), ["fake"], grace_seconds=1.0) as site:
        url = site.note.url + "/v1/chat/completions"
        with httpx.stream("POST", url, json=USER | {"stream": True}) as answer:
            pieces = answer.iter_raw()
            next(pieces)
            since = time.monotonic()
            site.stop()
            with pytest.raises(httpx.HTTPError):
                for _ in pieces:
                    pass
            assert time.monotonic() - since < 8
    assert until(lambda: llm.running == 0) and llm.closed
