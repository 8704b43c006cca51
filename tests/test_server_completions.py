"""/v1/completions, /completion and /infill: prompts of every kind, and both forms of answer."""

import json
from itertools import accumulate

import httpx
import pytest
from fakes_server import BOS, MID, PRE, SUF, FakeLibrary, FakeLLM, FakeTokenizer, serving


@pytest.fixture(scope="module")
def llm():
    return FakeLLM(answer=lambda ids: f"{len(ids)} tokens")


@pytest.fixture(scope="module")
def url(llm, tmp_path_factory):
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("LOCALLLM_HOME", str(tmp_path_factory.mktemp("home")))
        prose = FakeLLM("prose")
        prose.tokenizer = FakeTokenizer()
        prose.tokenizer.fim = {}
        with serving(FakeLibrary(llm, prose), ["fake"]) as site:
            yield site.note.url


def ask(url, prompt="hi", **body):
    return httpx.post(f"{url}/v1/completions", json={"prompt": prompt} | body)


@pytest.mark.parametrize(
    ("prompt", "tokens"),
    [("hi", [3]), (["a", "bcd"], [2, 4]), ([1, 2, 3], [3]), ([[1], [2, 3]], [1, 2]), ([1.0], [1])],
)
def test_the_four_kinds_of_prompt(url, prompt, tokens):
    answer = ask(url, prompt)
    said = answer.json()
    assert said["object"] == "text_completion"
    assert [choice["text"] for choice in said["choices"]] == [f"{n} tokens" for n in tokens]
    assert said["usage"]["prompt_tokens"] == sum(tokens)


def test_bos_is_there_once(url, llm):
    ask(url, "hi")
    assert llm.asked[-1]["ids"] == [BOS, *b"hi"]
    ask(url, [BOS, 104])
    assert llm.asked[-1]["ids"] == [BOS, 104]


def test_sixteen_tokens_unless_said_otherwise(url, llm):
    ask(url)
    assert llm.asked[-1]["max_tokens"] == 16
    ask(url, max_tokens=-1)
    assert llm.asked[-1]["max_tokens"] is None


def test_answers_of_several_prompts_in_order(url):
    said = ask(url, ["a", "bcd"], n=2).json()["choices"]
    assert [choice["index"] for choice in said] == [0, 1, 2, 3]
    assert [choice["text"][0] for choice in said] == ["2", "2", "4", "4"]
    assert ask(url, ["a"] * 60, n=16).status_code == 400


def test_echo_and_logprobs(url):
    (choice,) = ask(url, "ab", echo=True, logprobs=1, max_tokens=2).json()["choices"]
    assert choice["text"] == "ab3 "
    logprobs = choice["logprobs"]
    assert logprobs["tokens"] == ["", "a", "b", "3", " "]
    assert logprobs["text_offset"] == [0, 0, 1, 2, 3]
    assert logprobs["token_logprobs"][0] is None and logprobs["top_logprobs"][0] is None
    uniform = pytest.approx(-5.5645, abs=1e-3)  # the fake's logits are all the same
    assert logprobs["token_logprobs"][1:3] == [uniform, uniform]
    assert [len(tops) for tops in logprobs["top_logprobs"][1:]] == [1, 1, 1, 1]


def test_the_prompt_alone_can_be_scored(url):
    (choice,) = ask(url, "ab", echo=True, logprobs=0, max_tokens=0).json()["choices"]
    assert (choice["text"], choice["finish_reason"]) == ("ab", "length")
    assert len(choice["logprobs"]["token_logprobs"]) == 3


def test_a_suffix_fills_the_gap(url, llm):
    assert ask(url, "before", suffix="after").status_code == 200
    assert llm.asked[-1]["ids"] == [BOS, PRE, *b"before", SUF, *b"after", MID]
    refused = ask(url, "before", suffix="after", model="prose")
    assert refused.status_code == 400 and "fill" in refused.json()["error"]["message"]
    assert ask(url, ["a"], suffix="b").json()["error"]["param"] == "suffix"


def test_best_of_is_refused_when_it_would_be_ignored(url):
    assert ask(url, n=2, best_of=2).status_code == 200
    assert ask(url, n=1, best_of=3).json()["error"]["param"] == "best_of"


def test_a_streamed_completion(url):
    body = {"prompt": "hi", "stream": True, "stream_options": {"include_usage": True}}
    lines = httpx.post(f"{url}/v1/completions", json=body).text.strip().split("\n\n")
    assert lines.pop() == "data: [DONE]"
    events = [json.loads(line[6:]) for line in lines if not line.startswith(":")]
    assert events[-1]["choices"] == [] and events[-1]["usage"]["completion_tokens"] == 8
    assert "".join(event["choices"][0]["text"] for event in events[:-1]) == "3 tokens"
    assert [e["choices"][0]["finish_reason"] for e in events[:-1]].count("stop") == 1


def test_llama_servers_own_form(url):
    answer = httpx.post(f"{url}/completion", json={"prompt": "hi", "n_probs": 1}).json()
    assert (answer["content"], answer["stop"], answer["stop_type"]) == ("3 tokens", True, "eos")
    assert (answer["tokens_evaluated"], answer["tokens_predicted"]) == (3, 8)
    assert answer["generation_settings"]["n_ctx"] == 4096
    assert answer["completion_probabilities"][0]["token"] == "3"
    assert answer["tokens"] == []
    told = httpx.post(f"{url}/completion", json={"prompt": "hi", "return_tokens": True}).json()
    assert bytes(told["tokens"]) == b"3 tokens"
    word = httpx.post(f"{url}/completion", json={"prompt": "hi", "stop": "tok"}).json()
    assert (word["stop_type"], word["stopping_word"]) == ("word", "tok")
    limit = httpx.post(f"{url}/completion", json={"prompt": "hi", "n_predict": 0}).json()
    assert (limit["stop_type"], limit["content"]) == ("limit", "")


def test_a_prompt_of_texts_and_ids(url, llm):
    httpx.post(f"{url}/completion", json={"prompt": [BOS, "a", 98, "c"]})
    assert llm.asked[-1]["ids"] == [BOS, *b"abc"]
    httpx.post(f"{url}/completion", json={"prompt": ["a", 98]})
    assert llm.asked[-1]["ids"] == [BOS, *b"ab"], "a text that begins has BOS before it"
    httpx.post(f"{url}/completion", json={"prompt": [97, "b"]})
    assert llm.asked[-1]["ids"] == [*b"ab"]


def test_llama_servers_stream_ends_with_stop_true(url):
    body = {"prompt": "hi", "stream": True, "n_cmpl": 2}
    lines = httpx.post(f"{url}/completion", json=body).text.strip().split("\n\n")
    events = [json.loads(line[6:]) for line in lines if line.startswith("data: ")]
    for index in (0, 1):
        mine = [event for event in events if event["index"] == index]
        assert "".join(event["content"] for event in mine) == "3 tokens"
        assert [event["stop"] for event in mine] == [False] * (len(mine) - 1) + [True]
        made = [len(event["tokens"]) for event in mine[:-1]]
        assert [event["tokens_predicted"] for event in mine[:-1]] == list(accumulate(made))


WHAT_LLAMA_VSCODE_SENDS = {
    "id_slot": 0, "input_prefix": "def f():\n", "input_suffix": "\n", "prompt": "    ret",
    "input_extra": [{"filename": "a.py", "text": "x = 1"}], "n_predict": 16, "n_cmpl": 1,
    "top_k": 40, "top_p": 0.99, "stream": False, "samplers": ["top_k", "top_p", "infill"],
    "cache_prompt": True, "t_max_prompt_ms": 500, "t_max_predict_ms": 2500, "n_indent": 4,
    "lora": [],
}  # fmt: skip


def test_what_llama_vscode_sends(url, llm):
    answer = httpx.post(f"{url}/infill", json=WHAT_LLAMA_VSCODE_SENDS)
    assert answer.status_code == 200
    said = answer.json()
    assert {"content", "timings", "generation_settings", "truncated"} <= said.keys()
    gap = [PRE, *b"def f():\n    ret", SUF, *b"\n", MID]
    assert llm.asked[-1]["ids"] == [BOS, *b"\n# a.py\nx = 1", *gap]
    warm = WHAT_LLAMA_VSCODE_SENDS | {"n_predict": 0, "samplers": [], "t_max_predict_ms": 1}
    assert httpx.post(f"{url}/infill", json=warm).status_code == 200


def test_what_llama_vim_sends(url):
    wanted = ["content", "timings/predicted_n", "timings/predicted_n/x", "truncated", "no", "no/x"]
    body = WHAT_LLAMA_VSCODE_SENDS | {"response_fields": wanted, "stop": []}
    said = httpx.post(f"{url}/infill", json=body).json()
    assert said == {"content": "34 tokens", "timings/predicted_n": 9, "truncated": False}
    warm = {"input_prefix": "", "input_suffix": "", "prompt": "", "n_predict": 0,
            "samplers": [], "response_fields": [""]}  # fmt: skip
    answer = httpx.post(f"{url}/infill", json=warm)
    assert (answer.status_code, answer.json()) == (200, {})


def test_the_message_that_llama_vscode_looks_for(url):
    body = WHAT_LLAMA_VSCODE_SENDS | {"n_cmpl": 99}
    message = httpx.post(f"{url}/infill", json=body).json()["error"]["message"]
    assert message.startswith("Field 'n_cmpl': Value must be between")


def test_text_far_from_the_gap_is_left_out(url, llm):
    body = {"input_prefix": "a" * 6000 + "NEAR", "input_suffix": "next" + "b" * 6000}
    assert httpx.post(f"{url}/infill", json=body).status_code == 200
    ids = llm.asked[-1]["ids"]
    assert len(ids) <= 4096 - 256
    text = bytes(id for id in ids if id < 256)
    assert b"NEARnext" in text
