"""/v1/embeddings over a real engine and a made-up model: every form, every refusal, a client."""

import base64
import threading
from pathlib import Path

import httpx
import numpy as np
import pytest
from fake_model import FakeModel
from fakes import BOS, VOCAB, Bytes
from fakes_server import One, serving, until

from localllm.engine.worker import Worker
from localllm.llm import LLM


@pytest.fixture(scope="module")
def llm():
    model = FakeModel(vocab=VOCAB, pages=256, context=256)
    with Worker(model) as worker:
        llm = LLM("fake", Path("fake.gguf"), {}, (Bytes(True), None), model, worker)
        llm.close = lambda: None
        yield llm


@pytest.fixture(scope="module")
def site(llm, tmp_path_factory):
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("LOCALLLM_HOME", str(tmp_path_factory.mktemp("home")))
        with serving(One(llm), ["fake"]) as site:
            assert until(lambda: httpx.get(f"{site.note.url}/health").status_code == 200)
            yield site


def ask(site, input="hi", **body):
    return httpx.post(f"{site.note.url}/v1/embeddings", json={"input": input} | body)


@pytest.mark.parametrize(
    "given, prompts",
    [
        ("hi", [[BOS, *b"hi"]]),
        (["a", "bcd"], [[BOS, *b"a"], [BOS, *b"bcd"]]),
        ([1, 2, 3], [[1, 2, 3]]),
        ([[1], [2, 3.0]], [[1], [2, 3]]),
        ("<end>", [[BOS, *b"<end>"]]),
    ],
)
def test_the_four_kinds_of_input(site, llm, given, prompts):
    said = ask(site, given).json()
    assert said["object"] == "list" and said["model"] == "fake"
    assert [one["index"] for one in said["data"]] == list(range(len(prompts)))
    got = np.array([one["embedding"] for one in said["data"]], np.float32)
    np.testing.assert_array_equal(got, llm.embed(prompts, pooling="mean"))
    tokens = sum(map(len, prompts))
    assert said["usage"] == {"prompt_tokens": tokens, "total_tokens": tokens}


def test_base64_dimensions_and_pooling(site, llm):
    body = {"encoding_format": "base64", "dimensions": 3, "pooling": "last"}
    (one,) = ask(site, "hello", **body).json()["data"]
    got = np.frombuffer(base64.b64decode(one["embedding"]), "<f4")
    np.testing.assert_array_equal(got, llm.embed(["hello"], dimensions=3, pooling="last")[0])
    assert np.linalg.norm(got) == pytest.approx(1)


@pytest.mark.parametrize(
    "given, body, status, param, code",
    [
        ("", {}, 400, "input", None),
        ([], {}, 400, "input", None),
        (["a", ""], {}, 400, "input", None),
        ([[]], {}, 400, "input", None),
        ([["a"]], {}, 400, "input[0][0]", None),
        (["a", 3], {}, 400, "input", None),
        ([1, VOCAB], {}, 400, "input", None),
        ([True], {}, 400, "input[0]", None),
        ([[1]] * 2049, {}, 400, "input", None),
        ("a" * 256, {}, 400, None, "context_length_exceeded"),
        ("a", {"dimensions": 5}, 400, "dimensions", None),
        ("a", {"dimensions": 0}, 400, "dimensions", None),
        ("a", {"encoding_format": "int8"}, 400, "encoding_format", None),
        ("a", {"pooling": "cls"}, 400, "pooling", None),
        ("a", {"temperature": 1}, 400, "temperature", None),
        ("a", {"model": "other"}, 404, None, "model_not_found"),
    ],
)
def test_what_is_refused_says_why(site, given, body, status, param, code):
    answer = ask(site, given, **body)
    error = answer.json()["error"]
    assert (answer.status_code, error["param"], error["code"]) == (status, param, code)


def test_many_at_once_are_each_their_own(site, llm):
    texts = [f"text {n}" * (n % 5 + 1) for n in range(40)]
    want = llm.embed(texts)
    found: dict[int, list[float]] = {}

    def work(n: int) -> None:
        found[n] = ask(site, texts[n]).json()["data"][0]["embedding"]

    threads = [threading.Thread(target=work, args=(n,)) for n in range(len(texts))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    np.testing.assert_array_equal(np.array([found[n] for n in range(40)], np.float32), want)


def test_who_goes_away_is_cancelled(site, llm):
    llm.model.seconds, before = 0.02, llm.worker.stats()["cancellations"]
    with pytest.raises(httpx.ReadTimeout):
        httpx.post(f"{site.note.url}/v1/embeddings", json={"input": ["a" * 250] * 500}, timeout=0.3)
    assert until(lambda: llm.worker.stats()["cancellations"] > before)
    assert until(lambda: not llm.worker.stats()["running"] + llm.worker.stats()["queued"])
    llm.model.seconds = 0.0
    assert llm.worker.stats()["pages_used"] == 0


def test_the_openai_client(site, llm):
    openai = pytest.importorskip("openai")
    with openai.OpenAI(base_url=f"{site.note.url}/v1", api_key="none", max_retries=0) as client:
        made = client.embeddings.create(model="fake", input=["one", "two"])
        want = llm.embed(["one", "two"])
        np.testing.assert_allclose([one.embedding for one in made.data], want, rtol=1e-6)
        assert made.usage.total_tokens == 8
        made = client.embeddings.create(
            model="fake", input=[[1, 2]], dimensions=2, encoding_format="float"
        )
        np.testing.assert_allclose(
            made.data[0].embedding, llm.embed([[1, 2]], dimensions=2)[0], rtol=1e-6
        )
        with pytest.raises(openai.BadRequestError) as caught:
            client.embeddings.create(model="fake", input="a" * 256)
        assert caught.value.code == "context_length_exceeded"
