"""The models of the catalog, when they are here: right by exact references, and end to end."""

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from localllm.perplexity import measure

pytestmark = pytest.mark.model

DATA = Path(__file__).parent / "data" / "models"
NAMES = ("smollm2", "gemma3:270m", "qwen2.5-coder:0.5b", "qwen2.5-coder:1.5b")
LLAMA_CPP = json.loads((DATA / "llama_cpp_error.json").read_text())
PERPLEXITY = dict(zip(NAMES, (18.494, 15.003, 5.911, 1.811), strict=True))  # llama.cpp's, 8 chunks


def reference(name: str):
    """256 ids of a text; the exact 16 likeliest next ids at each, and their log-probabilities."""
    return np.load(DATA / f"{name.replace(':', '-')}.npz")


def log_softmax(logits: np.ndarray) -> np.ndarray:
    logits = logits.astype(np.float64) - logits.max(-1, keepdims=True)
    return logits - np.log(np.exp(logits).sum(-1, keepdims=True))


def divergence(logits: np.ndarray, exact) -> np.ndarray:
    """KL(exact || ours) over the exact 16 likeliest tokens and one bucket for all others."""
    ours = np.take_along_axis(log_softmax(logits), exact["top_ids"].astype(int), 1)
    p, q = np.exp(exact["top_logprobs"].astype(np.float64)), np.exp(ours)
    p_rest, q_rest = np.clip(1 - p.sum(1), 1e-12, 1), np.clip(1 - q.sum(1), 1e-12, 1)
    return (p * (np.log(p) - ours)).sum(1) + p_rest * np.log(p_rest / q_rest)


@pytest.mark.parametrize("name", NAMES)
def test_as_close_to_the_exact_answer_as_llama_cpp(name, model_path, open_llm):
    exact = reference(name)
    logits = open_llm(model_path(name)).logits(exact["tokens"].tolist())
    assert divergence(logits, exact).mean() <= 1.03 * LLAMA_CPP[name]["mean_kl"]
    same = int((logits.argmax(1) == exact["top_ids"][:, 0]).sum())
    assert same >= round(len(logits) * LLAMA_CPP[name]["same_top"]) - 4


@pytest.mark.parametrize("name", NAMES)
def test_int8_pages_cost_little(name, model_path, open_llm):
    """Without the few tokens that a rounding may throw far, which are a matter of chance."""
    exact, path = reference(name), model_path(name)
    wide, half = (
        np.sort(divergence(open_llm(path, kv_type=t).logits(exact["tokens"].tolist()), exact))[:-8]
        for t in ("f16", "q8_0")
    )
    assert half.mean() <= 1.2 * wide.mean()


@pytest.mark.parametrize("name", NAMES[:2])
def test_perplexity_is_llama_cpps(name, model_path, open_llm):
    result = measure(
        open_llm(model_path(name), context=512), (DATA / "text.txt").read_text(), 512, 8
    )
    assert result.perplexity == pytest.approx(PERPLEXITY[name], rel=0.01)
    assert (result.tokens, result.chunks) == (8 * 255, 8)


def test_the_same_bits_however_it_is_computed(model_path, open_llm):
    path, ids = model_path("smollm2"), reference("smollm2")["tokens"][:80].tolist()
    whole = open_llm(path, threads=2).logits(ids)
    assert np.array_equal(open_llm(path, threads=2, prefill_chunk=7).logits(ids), whole)
    one = open_llm(path, threads=1)
    assert np.array_equal(one.logits(ids), whole)
    assert np.array_equal(one.logits(ids[:33]), whole[:33])


def test_answers_are_sensible_and_repeatable(model_path, open_llm):
    llm = open_llm(model_path("smollm2"))
    first = llm.generate("The capital of France is", temperature=0, max_tokens=8)
    assert "Paris" in first.text and first.finish_reason == "length"
    again = llm.generate("The capital of France is", temperature=0, max_tokens=8)
    assert again.text == first.text
    assert again.usage["prompt_tokens"] == first.usage["prompt_tokens"] == 5
    chat = llm.chat([{"role": "user", "content": "Say hello."}], temperature=0, max_tokens=200)
    assert chat.finish_reason == "stop" and "ello" in chat.text and "<|im_end|>" not in chat.text
    long = list(range(40)) * 4
    assert llm.generate(long, max_tokens=1).usage["cached_tokens"] == 0
    assert llm.generate(long, max_tokens=1).usage["cached_tokens"] >= 144  # whole pages of 16


def test_the_command_line_end_to_end(model_path):
    words = ["run", str(model_path("smollm2")), "hi", "-n", "4", "--temperature", "0", "--json"]
    done = subprocess.run(
        [sys.executable, "-m", "localllm", *words],
        capture_output=True, text=True, stdin=subprocess.DEVNULL, timeout=600,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    answer = json.loads(done.stdout)
    assert answer["usage"]["completion_tokens"] == 4 and answer["timings"]["ttft_ms"] > 0


@pytest.mark.skipif(not Path("/proc/self/smaps").exists(), reason="Linux tells what is resident")
@pytest.mark.parametrize("name", NAMES)
def test_a_model_takes_its_own_size_and_gives_the_file_back(name, model_path, open_llm):
    path, before = model_path(name), anonymous()
    llm = open_llm(path)
    assert llm.generate("The", temperature=0, max_tokens=50).text  # steps that repack weights
    size = path.stat().st_size
    assert anonymous() - before < 1.1 * size + 200e6
    assert mapped(path) < 0.05 * size + 4e6  # the rows of an embedding, read where they stand


def anonymous() -> int:
    """Bytes of this process that no file has."""
    status = dict(line.split(":") for line in Path("/proc/self/status").read_text().splitlines())
    return int(status["RssAnon"].split()[0]) * 1024


def mapped(path: Path) -> int:
    """Bytes of a file that this process holds in memory."""
    total, ours = 0, False
    for line in Path("/proc/self/smaps").read_text().splitlines():
        if "-" in line.split()[0]:  # a mapping begins
            ours = line.endswith(str(path.resolve()))
        elif ours and line.startswith("Rss:"):
            total += int(line.split()[1]) * 1024
    return total
