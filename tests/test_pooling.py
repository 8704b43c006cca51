"""Prompts as vectors: what is pooled, alone and among others; and the door to it in LLM."""

import random
import threading
from pathlib import Path

import numpy as np
import pytest
import tiny
from fake_model import FakeModel, Run, finish
from fakes import Bytes
from interpreter import Interpreter

from localllm import models
from localllm.batch import PAGE
from localllm.engine.engine import Engine
from localllm.engine.pooling import Pooling
from localllm.engine.worker import Worker
from localllm.errors import BadRequest, Busy, Cancelled, LocalLLMError, PromptTooLong
from localllm.llm import LLM
from localllm.request import Request
from localllm.sampling import Sampling


def ids(seed: int, count: int) -> list[int]:
    return random.Random(seed).choices(range(32), k=count)


def pooled(prompt, kind: str) -> np.ndarray:
    """What a whole pass over the prompt gives, in f64."""
    model = FakeModel()
    rows = np.array([model.hidden_row(prompt[: n + 1]) for n in range(len(prompt))], np.float64)
    return rows.mean(0) if kind == "mean" else rows[-1]


def asked(prompt, kind: str, **options) -> Request:
    return Request(prompt, max_tokens=0, pooling=kind, **options)


@pytest.mark.parametrize("kind", ["mean", "last"])
@pytest.mark.parametrize("count", [1, 15, 16, 17, 90])
def test_the_vector_is_that_of_the_whole_prompt(kind, count):
    run = Run(engine := Engine(FakeModel()), asked(ids(1, count), kind))
    finish(engine, run)
    np.testing.assert_allclose(run.vector, pooled(ids(1, count), kind), rtol=1e-6)
    assert run.ending.reason == "length" and run.ids == []
    assert engine.stats()["pages_used"] == 0


def test_a_mean_needs_every_row_and_a_last_row_only_itself():
    engine, prompt = Engine(FakeModel()), ids(2, 90)
    finish(engine, Run(engine, Request(prompt, max_tokens=1)))
    for kind, cached in (("mean", 0), ("last", 89 // PAGE * PAGE)):
        run = Run(engine, asked(prompt, kind))
        finish(engine, run)
        assert run.sequence.usage.cached_tokens == cached
        np.testing.assert_allclose(run.vector, pooled(prompt, kind), rtol=1e-6)


def test_pieces_change_no_bit():
    rows = np.random.default_rng(0).normal(size=(100, 64)).astype(np.float32)
    whole = Pooling("mean", 100)
    whole.add(rows)
    for cut in (1, 7, 33, 99):
        pieces = Pooling("mean", 100)
        for at in range(0, 100, cut):
            assert pieces.wanted(at, min(at + cut, 100)) == range(at, min(at + cut, 100))
            pieces.add(rows[at : at + cut])
        np.testing.assert_array_equal(pieces.vector(), whole.vector())


@pytest.mark.parametrize("seed", range(6))
def test_beside_others_it_is_the_vector_it_would_be_alone(seed):
    """Chats and vectors on a pool that evicts and preempts; some are cancelled."""
    rng = random.Random(seed)
    model = FakeModel(pages=24, rows=32, wanted=8, sequences=6)
    engine = Engine(model, budget=rng.choice([5, 32]))
    stems = [ids(100 + n, rng.randrange(1, 120)) for n in range(3)]
    runs: list[Run] = []
    while len(runs) < 40 or engine.busy:
        if len(runs) < 40 and rng.random() < 0.3:
            prompt = rng.choice(stems)[: rng.randrange(1, 120)] + ids(rng.randrange(5), 9)
            request = asked(prompt, rng.choice(["mean", "last"]), cache=rng.random() < 0.9)
            if rng.random() < 0.4:
                request = Request(prompt, Sampling(seed=1), max_tokens=rng.randrange(90))
            runs.append(Run(engine, request))
        if runs and rng.random() < 0.03:
            engine.cancel(rng.choice(runs).sequence)
        engine.step()
        engine.scheduler.pages.check()
    assert engine.stats()["pages_used"] == 0 and engine.stats()["evictions"]
    vectors = [run for run in runs if run.sequence.pooling and run.ending.reason != "cancelled"]
    assert len(vectors) > 5
    for run in vectors:
        alone = Run(engine := Engine(FakeModel()), run.sequence.request)
        finish(engine, alone)
        np.testing.assert_array_equal(run.vector, alone.vector)


# ---- the door ----------------------------------------------------------------------------------


@pytest.fixture
def llm():
    model = FakeModel(vocab=300, pages=256, context=256)
    with Worker(model) as worker:
        metadata = {"general.architecture": "fake", "fake.pooling_type": 3}
        yield LLM("fake", Path("fake.gguf"), metadata, (Bytes(True), None), model, worker)


def unit(vector: np.ndarray) -> np.ndarray:
    return vector / np.linalg.norm(vector)


def wide(prompt, kind: str) -> np.ndarray:
    model = FakeModel(vocab=300)
    rows = np.array([model.hidden_row(prompt[: n + 1]) for n in range(len(prompt))], np.float64)
    return rows.mean(0) if kind == "mean" else rows[-1]


def test_texts_and_ids_as_unit_vectors(llm):
    texts = ["a text", "<|im_end|> stays text", [1, 2, 3]]
    prompts = [llm._plain(text) if isinstance(text, str) else text for text in texts]
    assert prompts[0][0] == llm.tokenizer.bos and len(prompts[1]) == 1 + len(texts[1])
    for kind in ("mean", "last"):
        want = [unit(wide(prompt, kind)) for prompt in prompts]
        np.testing.assert_allclose(llm.embed(texts, pooling=kind), want, rtol=1e-5)
    np.testing.assert_array_equal(llm.embed(texts), llm.embed(texts, pooling="last"))
    short = [unit(wide(prompt, "last")[:2]) for prompt in prompts]
    np.testing.assert_allclose(llm.embed(texts, dimensions=2), short, rtol=1e-5)


def test_more_texts_than_the_engine_takes_at_a_time(llm):
    llm.worker._max_queue = 7
    texts = [[n % 300, n // 300, 5] for n in range(500)]
    made = llm.embedding(texts, pooling="mean")
    told = [delta.progress for delta in made]
    assert told == sorted(told) and told[-1] == (1500, 1500)
    np.testing.assert_allclose(made.vectors, [unit(wide(t, "mean")) for t in texts], rtol=1e-5)
    assert made.usage == {"prompt_tokens": 1500, "cached_tokens": 0, "completion_tokens": 0}
    assert made.finish_reason == "stop" and made.timings["prompt_per_second"] > 0


def test_cancel_ends_all_of_them(llm):
    llm.model.seconds = 0.02
    made = llm.embedding([[1] * 200] * 300)
    threading.Timer(0.1, made.cancel).start()
    assert made.finish_reason == "cancelled"
    with pytest.raises(Cancelled):
        _ = made.vectors
    assert llm.worker.call(lambda engine: engine.busy) is False


@pytest.mark.parametrize(
    "texts, options, error",
    [
        ([], {}, BadRequest),
        ([[]], {}, BadRequest),
        ([[1, 300]], {}, BadRequest),
        (["a"], {"pooling": "most"}, BadRequest),
        (["a"], {"dimensions": 5}, BadRequest),
        (["a"], {"dimensions": 0}, BadRequest),
        (["fine", "a" * 256], {}, PromptTooLong),
    ],
)
def test_what_cannot_be_embedded_is_refused_before_anything_runs(llm, texts, options, error):
    with pytest.raises(error):
        llm.embed(texts, **options)
    assert llm.worker.stats()["steps"] == 0


def test_a_full_queue_is_said_and_a_broken_model_too(llm):
    llm.worker._max_queue = 0
    with pytest.raises(Busy):
        llm.embed(["a"])
    llm.worker._max_queue = 10
    llm.model.hidden_row = lambda ids: np.full(4, np.nan)
    with pytest.raises(LocalLLMError, match="not a number"):
        llm.embed(["a"])


# ---- the whole of it ---------------------------------------------------------------------------


@pytest.mark.usefixtures("kept_kernels")
@pytest.mark.parametrize("architecture", models.supported())
def test_vectors_of_a_file_are_numpys(architecture, tmp_path):
    path = tiny.write(tmp_path / "m.gguf", architecture=architecture, type="F32")
    texts = ["Hello there", "a much longer text, " * 10, "x"]
    with LLM.open(str(path), device="cpu", threads=2, prefill_chunk=64) as llm:
        got = {kind: llm.embed(texts, pooling=kind) for kind in ("mean", "last")}
        for n, text in enumerate(texts):
            rows = Interpreter(models.record(llm.model.gguf), llm.model.gguf)
            rows = rows.hidden(llm.tokenize(text, special=False))
            for kind, want in (("mean", rows.mean(0)), ("last", rows[-1])):
                np.testing.assert_allclose(got[kind][n], unit(want), atol=2e-3)
                alone = llm.embed([text], pooling=kind)[0]
                np.testing.assert_array_equal(alone, got[kind][n])
