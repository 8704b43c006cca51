"""Opening tiny models for real: every architecture, from a file to text and logits."""

import numpy as np
import pytest
import tiny

from localllm import llm as door
from localllm import machine, opening
from localllm.errors import BadFile, BadRequest, NotFound, PromptTooLong, TooLarge, Unsupported
from localllm.llm import LLM

IDS = [17, 3, 99, 42, 7, 64, 120, 5, 88, 31, 2, 77, 11, 54, 101, 23, 9, 66, 48, 15]


@pytest.mark.parametrize("architecture", ["llama", "qwen2", "gemma3"])
def test_from_a_file_to_an_answer(architecture, tmp_path, open_llm):
    llm = open_llm(tiny.write(tmp_path / "m.gguf", architecture=architecture), threads=2)
    assert (llm.name, llm.context, llm.model.architecture) == ("m", 256, architecture)
    reply = llm.chat([{"role": "user", "content": "hello"}], max_tokens=5, ignore_eos=True)
    assert sum(len(delta.ids) for delta in reply) == reply.usage["completion_tokens"] == 5
    table = llm.logits(IDS)
    assert table.shape == (len(IDS), 320) and np.isfinite(table).all()
    parts = open_llm(llm.path, threads=1, prefill_chunk=7)
    assert np.array_equal(parts.logits(IDS), table)
    assert np.array_equal(parts.logits(IDS[:9]), table[:9])


def test_a_file_without_text(tmp_path, open_llm):
    llm = open_llm(tiny.write(tmp_path / "m.gguf", text=False))
    assert llm.logits(IDS).shape == (len(IDS), 320)
    assert llm.generate(IDS, max_tokens=3).usage["completion_tokens"] == 3
    with pytest.raises(Unsupported):
        llm.tokenize("hello")


def test_a_vocabulary_alone_needs_no_weights(tmp_path, monkeypatch):
    path = tiny.write(tmp_path / "m.gguf")
    monkeypatch.setattr(machine, "available_memory", lambda: 0)
    with LLM.open(str(path), vocab_only=True) as llm:
        assert llm.detokenize(llm.tokenize("hello")) == "hello"
        with pytest.raises(BadRequest):
            llm.logits(IDS)


def test_what_does_not_fit_is_refused_before_it_is_loaded(tmp_path, monkeypatch):
    path = tiny.write(tmp_path / "m.gguf")
    monkeypatch.setattr(machine, "available_memory", lambda: 50_000)
    with pytest.raises(TooLarge, match="m does not fit into memory: .* 50.0 kB free"):
        LLM.open(str(path))


def test_the_context_is_a_cap(tmp_path, open_llm):
    llm = open_llm(tiny.write(tmp_path / "m.gguf"), context=32)
    assert llm.context == 32
    with pytest.raises(PromptTooLong, match="40 tokens.*size of 32"):
        llm.generate([1] * 40)
    assert llm.generate([1] * 30, ignore_eos=True).finish_reason == "length"


def test_the_file_recommends_its_sampling(tmp_path, open_llm):
    import gguf

    path = tmp_path / "m.gguf"
    original = gguf.GGUFWriter.add_vocab_size

    def also(writer, size):
        original(writer, size)
        writer.add_sampling_temp(0.25)
        writer.add_sampling_top_k(9)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(gguf.GGUFWriter, "add_vocab_size", also)
        tiny.write(path)
    llm = open_llm(path)
    assert llm.defaults.temperature == 0.25 and llm.defaults.top_k == 9
    assert llm.defaults.top_p == 0.95


def test_files_that_are_none(tmp_path):
    with pytest.raises(NotFound):
        LLM.open(str(tmp_path / "nothing.gguf"))
    (tmp_path / "text.gguf").write_text("no model")
    with pytest.raises(BadFile):
        LLM.open(str(tmp_path / "text.gguf"))
    strange = tiny.write(tmp_path / "m.gguf", architecture="strange")
    with pytest.raises(Unsupported, match="strange"):
        LLM.open(str(strange))


@pytest.mark.parametrize("options", [{"context": 0}, {"threads": 0}, {"prefill_chunk": 0}])
def test_numbers_below_one(tmp_path, options):
    with pytest.raises(BadRequest, match="at least 1"):
        LLM.open(str(tiny.write(tmp_path / "m.gguf")), **options)


def test_text_is_read_beside_the_weights(tmp_path, monkeypatch, open_llm):
    """Not before, and once: compiling, say, is Python too, and both would wait for its lock."""
    told, read = [], []
    progress = opening.beside(lambda: read.append(1), lambda *stage: told.append(stage))
    progress("compiling kernels", 1, 2)
    assert not read
    progress(opening.LOADING, 0, 2)
    assert read and told == [("compiling kernels", 1, 2), (opening.LOADING, 0, 2)]
    count = []
    monkeypatch.setattr(door, "read_text", lambda data: count.append(1) or opening.read_text(data))
    assert open_llm(tiny.write(tmp_path / "m.gguf")).tokenize("hello") and count == [1]
