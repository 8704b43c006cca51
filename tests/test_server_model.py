"""The server over a real model: many at once, prefixes, cancels, and a short storm of all of it."""

import json
import os
import threading

import httpx
import pytest
from fakes_server import One, serving, until
from storm import LETTERS, Storm, alone, descriptors, readers

from localllm.llm import LLM

pytestmark = pytest.mark.model
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
    right, files = alone(site.note.url), descriptors()
    storm = Storm(site.note.url, right, STORM)
    counts = storm.run()
    assert not storm.wrong and not counts["wrong"], (counts, storm.wrong[:3])
    assert counts["right"] and counts["left"] and counts["bad"] and counts["broke off"]
    assert until(lambda: idle(llm) and not site.records, 20)
    assert until(lambda: not readers(), 10)
    assert until(lambda: descriptors() <= files + 4, 10)
    assert alone(site.note.url) == right
