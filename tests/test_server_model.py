"""The server over a real model: many at once, prefixes, cancels, and a short storm of all of it."""

import asyncio
import json
import os
import random
import threading

import httpx
import pytest
from fakes_server import One, serving, until

from localllm.llm import LLM

pytestmark = pytest.mark.model
LETTERS = "Write the alphabet. "
STORM = float(os.environ.get("LOCALLLM_STORM_SECONDS", "8"))


@pytest.fixture(scope="module")
def llm(model_path):
    with LLM.open(str(model_path("smollm2"))) as llm:
        real, llm.close = llm.close, lambda: None
        yield llm
        llm.close = real


@pytest.fixture(scope="module")
def site(llm, tmp_path_factory):
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("LOCALLLM_HOME", str(tmp_path_factory.mktemp("home")))
        with serving(One(llm), [llm.name]) as site:
            assert until(lambda: httpx.get(f"{site.note.url}/health").status_code == 200)
            yield site


def body(text, **more):
    said = {"messages": [{"role": "user", "content": text}], "temperature": 0, "max_tokens": 12}
    return said | more


def ask(site, text, **more):
    url = f"{site.note.url}/v1/chat/completions"
    answer = httpx.post(url, json=body(text, **more), timeout=120)
    assert answer.status_code == 200, answer.text
    return answer.json()


def said(answer):
    return answer["choices"][0]["message"]["content"]


def idle(llm):
    stats = llm.worker.stats()
    return not (stats["running"] or stats["queued"] or stats["pages_used"])


def test_the_same_answer_alone_and_among_others(site, llm):
    texts = [f"Say something about the number {i}." for i in range(8)]
    alone = [said(ask(site, text, cache_prompt=False)) for text in texts]
    direct = llm.chat(body(texts[0])["messages"], temperature=0, max_tokens=12)
    assert alone[0] == direct.text
    together = [""] * 8

    def work(i):
        together[i] = said(ask(site, texts[i]))

    threads = [threading.Thread(target=work, args=(i,)) for i in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert together == alone


def test_a_shared_prefix_is_computed_once(site):
    story = LETTERS * 40
    first, second = ask(site, story + "Now."), ask(site, story + "Then.")
    usage = second["usage"]
    cached = usage["prompt_tokens_details"]["cached_tokens"]
    assert cached >= 0.9 * usage["prompt_tokens"] - 32
    assert second["timings"]["prompt_n"] < first["timings"]["prompt_n"] / 4


def test_several_answers_of_one_prompt(site):
    answer = ask(site, "Invent a name.", n=3, seed=1, temperature=1.0)
    again = ask(site, "Invent a name.", n=3, seed=1, temperature=1.0)
    texts = [choice["message"]["content"] for choice in answer["choices"]]
    assert texts == [choice["message"]["content"] for choice in again["choices"]]
    assert len(set(texts)) > 1


def test_a_schema_is_followed(site):
    pytest.importorskip("llguidance")
    schema = {
        "type": "object",
        "properties": {"city": {"type": "string", "maxLength": 20}, "big": {"type": "boolean"}},
        "required": ["city", "big"],
        "additionalProperties": False,
    }
    answer = ask(site, "Name a city as JSON.", max_tokens=60, json_schema=schema)
    found = json.loads(said(answer))
    assert isinstance(found["city"], str) and isinstance(found["big"], bool)


def test_the_prompt_is_scored_as_the_model_scores_it(site, llm):
    url = f"{site.note.url}/v1/completions"
    asked = {"prompt": "The capital of France is Paris", "echo": True, "logprobs": 1}
    answer = httpx.post(url, json=asked | {"max_tokens": 1, "temperature": 0}, timeout=60).json()
    logprobs = answer["choices"][0]["logprobs"]
    assert "".join(logprobs["tokens"][:-1]) == asked["prompt"]
    (likeliest,) = logprobs["top_logprobs"][logprobs["tokens"].index(" Paris")]
    assert likeliest == " Paris"


@pytest.mark.parametrize("streaming", [False, True])
def test_a_client_that_goes_gives_its_pages_back(site, llm, streaming):
    url = f"{site.note.url}/v1/chat/completions"
    asked = body(LETTERS * 300, stream=streaming, max_tokens=2000, ignore_eos=True)
    with pytest.raises(httpx.TimeoutException), httpx.stream("POST", url, json=asked, timeout=0.5):
        raise httpx.ReadTimeout("enough") if streaming else AssertionError("it was too quick")
    assert until(lambda: idle(llm), 30)


def test_a_storm(site, llm):
    """64 connections: whole and streamed answers, cancels, bad bodies, half requests."""
    texts = [f"Count from {i}." for i in range(6)]
    right = {text: said(ask(site, text)) for text in texts}
    descriptors = count_descriptors()
    counts = asyncio.run(storm(site, right))
    assert counts["wrong"] == 0, counts
    assert counts["right"] > 0 and counts["left"] > 0 and counts["bad"] > 0
    assert until(lambda: idle(llm) and not site.records, 20)
    assert until(lambda: not [t for t in threading.enumerate() if "reply" in t.name], 10)
    assert until(lambda: count_descriptors() <= descriptors + 4, 10)
    assert said(ask(site, texts[0])) == right[texts[0]]


def count_descriptors():
    return len(os.listdir("/proc/self/fd")) if os.path.isdir("/proc/self/fd") else 0


async def storm(site, right):
    counts = dict.fromkeys(("right", "wrong", "left", "bad"), 0)
    end = asyncio.get_running_loop().time() + STORM
    limits = httpx.Limits(max_connections=64)
    async with httpx.AsyncClient(base_url=site.note.url, timeout=120, limits=limits) as client:
        await asyncio.gather(*(visitor(client, right, end, i, counts) for i in range(64)))
    return counts


async def visitor(client, right, end, number, counts):
    dice = random.Random(number)
    while asyncio.get_running_loop().time() < end:
        text, url = dice.choice(list(right)), "/v1/chat/completions"
        kind = dice.choice(("whole", "stream", "leave", "bad"))
        if kind == "whole":
            answer = await client.post(url, json=body(text))
            counts["right" if said(answer.json()) == right[text] else "wrong"] += 1
        elif kind == "bad":
            raw = dice.choice((b"{", b'{"messages": 3}', b"[]", b"\xff", b""))
            answer = await client.post(
                url, content=raw, headers={"Content-Type": "application/json"}
            )
            counts["bad" if answer.status_code == 400 else "wrong"] += 1
        else:
            found = await streamed(
                client, url, text, dice.randrange(1, 8) if kind == "leave" else None
            )
            ended = "right" if found == right[text] else "wrong"
            counts["left" if kind == "leave" else ended] += 1


async def streamed(client, url, text, most):
    """The text of a streamed answer, or of its first `most` events."""
    found = ""
    async with client.stream("POST", url, json=body(text, stream=True)) as answer:
        async for line in answer.aiter_lines():
            if line.startswith("data: {"):
                found += json.loads(line[6:])["choices"][0]["delta"].get("content", "")
                most = None if most is None else most - 1
            if most == 0:
                return found
    return found
