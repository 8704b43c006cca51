"""The command line: what it asks a model, what it prints, and what it returns."""

import json

import numpy as np
import pytest
from fake_model import FakeModel
from fakes import END, START, VOCAB, fake_llm
from typer.testing import CliRunner

from localllm.cli import app as cli
from localllm.cli import streams
from localllm.cli.commands import answer
from localllm.engine.worker import Worker


def request(call):
    return call.llm.worker.requests[-1]


def test_help_of_every_command(call):
    names = [command.name for command in cli.build().registered_commands]
    assert {"run", "chat", "serve", "pull", "list", "show", "rm", "cp", "ps", "stop", "import",
            "verify", "fit", "bench", "perplexity", "tokenize", "embed",
            "doctor"} <= set(names)  # fmt: skip
    for name in names:
        result = call(name, "--help")
        assert result.exit_code == 0 and name in result.output


def test_without_a_command_and_a_terminal_there_is_help(call):
    result = call()
    assert result.exit_code == 0 and "run" in result.output and "Usage" in result.output


def test_run_prints_the_answer_and_nothing_else(call):
    result = call("run", "m", "hi")
    assert (result.exit_code, result.stdout, result.stderr) == (0, "An answer.\n", "")
    assert request(call).ids == [START, *b"user ", *b"hi", END, START]


def test_stdin_is_added_to_the_prompt(call):
    call("run", "m", "sum", "up", stdin="the text\n")
    assert b"sum up\n\nthe text" in bytes(i for i in request(call).ids if i < 256)
    call("run", "m", stdin="only this")
    assert b"only this" in bytes(i for i in request(call).ids if i < 256)
    result = call("run", "m")
    assert result.exit_code == 1 and "no prompt" in result.stderr


def test_files_go_with_the_prompt(call, tmp_path):
    (tmp_path / "a.py").write_text("x = 1\n")
    (tmp_path / "b.bin").write_bytes(b"\0")
    result = call("run", "m", "what is", "-f", str(tmp_path / "a.py"), stdin="and this")
    assert result.exit_code == 0
    said = bytes(id for id in request(call).ids if id < 256).decode()
    assert said.startswith("user what is\n\n") and said.endswith("```\n\nand this")
    assert "a.py:\n```py\nx = 1\n```" in said
    for name, why in (("b.bin", "not a text file"), ("c", "There is no file")):
        result = call("run", "m", "x", "-f", str(tmp_path / name))
        assert result.exit_code == 1 and why in result.stderr


def test_run_as_json(call):
    result = call("run", "m", "hi", "--json", "-n", "3")
    answer = json.loads(result.stdout)
    assert answer["text"] == "An " and answer["finish_reason"] == "length"
    assert set(answer) == {"text", "usage", "timings", "finish_reason"}
    assert set(answer["usage"]) == {"prompt_tokens", "cached_tokens", "completion_tokens"}
    assert set(answer["timings"]) == {
        "load_ms", "prompt_ms", "prompt_per_second", "predicted_ms", "predicted_per_second",
        "ttft_ms", "draft_n", "draft_n_accepted",
    }  # fmt: skip


def test_every_sampling_knob_is_an_option(call):
    words = "--temperature 0 --top-k 5 --seed 7 --ignore-eos --samplers top_k;temperature"
    call("run", "m", "hi", *words.split(), "--logit-bias", "3=-inf", "--logit-bias", "4=1.5")
    sampling = request(call).sampling
    assert (sampling.temperature, sampling.top_k, sampling.seed) == (0, 5, 7)
    assert sampling.ignore_eos and sampling.logit_bias == {3: float("-inf"), 4: 1.5}
    assert sampling.samplers == ("top_k", "temperature")
    assert sampling.top_p == call.llm.defaults.top_p


@pytest.mark.parametrize(
    ("words", "code"),
    [
        (["--top-p", "2"], 1),
        (["--logit-bias", "x"], 1),
        (["--temperature", "warm"], 2),
        (["--no-such-option"], 2),
        (["-n", "0"], 2),
    ],
)
def test_wrong_values_are_explained(call, words, code):
    result = call("run", "m", "hi", *words)
    assert result.exit_code == code and result.stderr and "Traceback" not in result.output


def test_the_system_prompt_is_the_users(call):
    call("run", "m", "hi", "-s", "be brief")
    assert b"system be brief" in bytes(i for i in request(call).ids if i < 256)
    call.llm.system = "a preset"
    call("run", "m", "hi")
    assert b"system a preset" in bytes(i for i in request(call).ids if i < 256)


def test_a_base_model_goes_on_and_says_so(call):
    call.llm = fake_llm(" on and on", template=False)
    result = call("run", "m", "It goes")
    assert result.stdout == " on and on\n" and "base model" in result.stderr
    assert request(call).ids == list(b"It goes")
    result = call("run", "m", "--raw", "It goes")
    assert "base model" not in result.stderr


def test_run_asks_a_server_that_has_the_model_loaded(call, a_server):
    result = call("run", "m", "hi")
    assert result.stdout == "From the server.\n"
    assert "http://127.0.0.1:1" in result.stderr and "--local" in result.stderr
    assert a_server == ["m"]


@pytest.mark.parametrize(
    "words", [["n"], ["m", "--local"], ["m", "--ctx", "100"], ["m", "--threads", "1"]]
)
def test_run_opens_the_model_itself_where_a_server_will_not_do(call, a_server, words):
    assert call("run", words[0], "hi", *words[1:]).stdout == "An answer.\n"
    assert a_server == ["n"] * (words == ["n"])


@pytest.fixture
def chatted(call, monkeypatch):
    """What the full-screen chat was started with, instead of starting it."""
    from localllm.tui import app

    given = {}

    def run(open_llm, model=None, system="", options=None):
        given.update(
            llm=open_llm(model or "m", lambda *_: None), model=model, system=system,
            options={k: v for k, v in (options or {}).items() if v is not None},
        )  # fmt: skip

    monkeypatch.setattr(app, "run", run)
    monkeypatch.setattr(streams, "on_a_terminal", lambda: True)
    return given


def test_chat_asks_a_server_too_and_takes_the_options_of_run(call, a_server, chatted):
    call("chat", "m", "--temperature", "0", "-n", "5", "-s", "be brief")
    assert chatted["llm"].server == "http://127.0.0.1:1"
    assert (chatted["model"], chatted["system"]) == ("m", "be brief")
    assert chatted["options"] == {"temperature": 0, "max_tokens": 5}
    for words in (["--local"], ["--ctx", "100"], ["--device", "cpu"], ["--threads", "1"]):
        call("chat", "m", *words)
        assert chatted["llm"] is call.llm


def test_a_chat_needs_a_terminal(call, chatted, monkeypatch):
    monkeypatch.setattr(streams, "on_a_terminal", lambda: False)
    result = call("chat", "m")
    assert result.exit_code == 1 and "needs a terminal" in result.stderr and not chatted


def test_localllm_alone_on_a_terminal_is_the_chat(call, a_server, chatted):
    call()
    assert chatted["llm"].server and chatted["model"] is None


@pytest.mark.parametrize(("given", "code"), [("auto", 0), ("12", 0), ("-1", 1), ("all", 1)])
def test_gpu_layers_are_a_number_or_auto(call, given, code):
    assert call("run", "m", "hi", "--gpu-layers", given).exit_code == code


def test_stats_go_to_stderr(call):
    result = call("run", "m", "hi", "--stats")
    assert result.stdout == "An answer.\n"
    assert "answer 10 tokens 9.0 t/s" in result.stderr and "prompt 10 tokens" in result.stderr


def test_a_wrong_setting_is_told_before_a_model_is_loaded(home):
    result = CliRunner().invoke(cli.build(), ["run", "no-such-model", "hi", "--top-p", "7"])
    assert result.exit_code == 1 and "top_p is 7.0" in result.stderr


def test_a_conversation_gets_the_options_of_its_own(call, monkeypatch):
    from localllm.tui import line

    given = {}
    monkeypatch.setattr(line, "chat_loop", lambda *words, **options: given.update(options) or 3)
    monkeypatch.setattr(answer, "read_prompt", lambda words, attached: None)
    result = call("run", "m", "--plain", "--no-history", "--stats", "-f", __file__, "-n", "9")
    assert result.exit_code == 3
    assert (given["plain"], given["history"], given["stats"]) == (True, False, True)
    assert given["sampling"] == {"max_tokens": 9} and __doc__ in given["files"][0]
    assert "give a prompt" in call("run", "m", "--json").stderr.lower()


def test_errors_are_a_line_and_a_hint(call):
    result = call("show", "no-such-model")
    assert result.exit_code == 1 and not result.stdout
    assert result.stderr.startswith("localllm: There is no model 'no-such-model'")


def test_tokenize(call):
    assert json.loads(call("tokenize", "m", "a<end>", "--ids").stdout) == [97, END]
    assert json.loads(call("tokenize", "m", "<end>", "--ids", "--plain").stdout) == list(b"<end>")
    assert json.loads(call("tokenize", "m", "--ids", stdin="hi").stdout) == [104, 105]
    table = call("tokenize", "m", "a<end>").stdout
    assert "'a'" in table and "<end>" in table


def test_embed_prints_numbers(call):
    def embed(*words, stdin=""):
        call.llm.model = FakeModel(vocab=VOCAB)
        with Worker(call.llm.model) as call.llm.worker:
            return call("embed", "m", *words, "--pooling", "last", stdin=stdin)

    said = json.loads(embed("a", "bc", "--json").stdout)
    rows = [FakeModel(vocab=VOCAB).hidden_row(list(text)) for text in (b"a", b"bc")]
    want = [row / np.linalg.norm(row) for row in rows]
    np.testing.assert_allclose(said["embeddings"], want, rtol=1e-6)
    assert said["usage"]["prompt_tokens"] == 3 and said["model"] == "fake"
    lines = embed(stdin="a\n\nbc\n").stdout.splitlines()
    shown = [list(map(float, line.split())) for line in lines]
    np.testing.assert_allclose(shown, want, rtol=1e-5)
    assert embed("a", "--dimensions", "99").exit_code == 1


def test_perplexity_follows_the_protocol(call, tmp_path):
    file = tmp_path / "text"
    file.write_text("abcdefgh" * 4)  # the model expects the next letter, very surely
    result = json.loads(call("perplexity", "m", str(file), "--ctx", "8", "--json").stdout)
    assert result["tokens"] == 3 * 4 and result["chunks"] == 4
    assert result["perplexity"] == pytest.approx(1, abs=1e-4)
    short = call("perplexity", "m", str(file), "--ctx", "64")
    assert short.exit_code == 1 and "32 tokens" in short.stderr
