"""/v1/chat/completions on the wire: what every client relies on, field by field."""

import json
import time

import httpx
import pytest
from fakes_server import FakeLibrary, FakeLLM, serving, until


@pytest.fixture(scope="module")
def llm():
    return FakeLLM()


@pytest.fixture(scope="module")
def url(llm, tmp_path_factory):
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("LOCALLLM_HOME", str(tmp_path_factory.mktemp("home")))
        with serving(FakeLibrary(llm, FakeLLM("base", template=None)), ["fake"]) as site:
            yield f"{site.note.url}/v1/chat/completions"


USER = [{"role": "user", "content": "hi"}]


def ask(url, **body):
    return httpx.post(url, json={"messages": USER} | body)


def stream(url, **body):
    """The events of a streamed answer, [DONE] as it is."""
    with httpx.stream("POST", url, json={"messages": USER, "stream": True} | body) as answer:
        assert answer.status_code == 200, answer.read()
        assert answer.headers["content-type"].startswith("text/event-stream")
        blocks = "".join(answer.iter_text()).split("\n\n")
    assert blocks.pop() == ""
    lines = [block for block in blocks if not block.startswith(":")]
    assert all(line.startswith("data: ") and "\n" not in line for line in lines)
    return [line[6:] if line == "data: [DONE]" else json.loads(line[6:]) for line in lines]


def test_a_whole_answer(url):
    answer = ask(url).json()
    assert answer["object"] == "chat.completion" and answer["model"] == "fake"
    assert ask(url, model="").json()["model"] == "fake"
    (choice,) = answer["choices"]
    assert choice["message"] == {"role": "assistant", "content": "Hello, you!"}
    assert (choice["finish_reason"], choice["logprobs"], choice["index"]) == ("stop", None, 0)
    usage = answer["usage"]
    assert usage["completion_tokens"] == 11
    assert usage["total_tokens"] == usage["prompt_tokens"] + 11
    assert usage["prompt_tokens_details"] == {"cached_tokens": usage["prompt_tokens"] // 2}
    assert answer["timings"]["predicted_n"] == 11


def test_a_stream_has_role_text_finish_usage_done_in_this_order(url):
    events = stream(url, stream_options={"include_usage": True})
    assert events.pop() == "[DONE]"
    assert len({(e["id"], e["created"], e["model"], e["object"]) for e in events}) == 1
    assert events[0]["object"] == "chat.completion.chunk"
    assert events[0]["choices"][0]["delta"] == {"role": "assistant", "content": ""}
    assert events[-1]["choices"] == [] and events[-1]["usage"]["completion_tokens"] == 11
    finish = events[-2]["choices"][0]
    assert (finish["delta"], finish["finish_reason"]) == ({}, "stop")
    middle = [event["choices"][0] for event in events[1:-2]]
    assert "".join(choice["delta"]["content"] for choice in middle) == "Hello, you!"
    assert all(choice["finish_reason"] is None for choice in middle)


def test_no_usage_unless_asked_for(url):
    assert all(event == "[DONE]" or "usage" not in event for event in stream(url))


def test_several_answers(url):
    answer = ask(url, n=3, seed=5).json()
    assert [choice["index"] for choice in answer["choices"]] == [0, 1, 2]
    assert answer["usage"]["completion_tokens"] == 33
    assert answer["usage"]["prompt_tokens"] == ask(url).json()["usage"]["prompt_tokens"]
    events = stream(url, n=2)
    finishes = [e["choices"][0] for e in events[:-1] if e["choices"][0]["finish_reason"]]
    assert [choice["index"] for choice in finishes] == [0, 1]


def test_seeds_of_several_answers_differ_and_are_the_requests_own(url, llm):
    del llm.asked[:]
    ask(url, n=3, seed=5)
    assert [asked["sampling"].seed for asked in llm.asked] == [5, 6, 7]


def test_limits_and_stops(url):
    assert ask(url, max_tokens=3).json()["choices"][0]["message"]["content"] == "Hel"
    answer = ask(url, max_tokens=3, max_completion_tokens=4).json()["choices"][0]
    assert (answer["message"]["content"], answer["finish_reason"]) == ("Hell", "length")
    assert ask(url, max_tokens=None).json()["usage"]["completion_tokens"] == 11
    assert ask(url, max_tokens=-1).json()["usage"]["completion_tokens"] == 11
    assert ask(url, stop=["lo"]).json()["choices"][0]["finish_reason"] == "stop"


@pytest.mark.parametrize(("stop", "read"), [("", ()), (["", ""], ()), (["you", ""], ("you",))])
def test_empty_stops_are_passed_over(url, llm, stop, read):
    base = url.removesuffix("/v1/chat/completions")
    for path, asked in (("/completion", {"prompt": "hi"}), ("/v1/completions", {"prompt": "hi"}),
                        ("/infill", {"input_prefix": "hi"}),
                        ("/v1/chat/completions", {"messages": USER})):  # fmt: skip
        assert httpx.post(base + path, json=asked | {"stop": stop}).status_code == 200, path
        assert llm.asked[-1]["stop"] == read


def test_every_sampling_knob_reaches_the_engine(url, llm):
    chosen = {
        "temperature": 0, "top_k": 7, "top_p": 0.5, "min_p": 0.1, "typical_p": 0.9,
        "top_n_sigma": 2.0, "xtc_probability": 0.5, "xtc_threshold": 0.2, "dynatemp_range": 0.5,
        "repeat_penalty": 1.1, "repeat_last_n": 32, "presence_penalty": 0.5, "mirostat": 2,
        "adaptive_target": 0.5, "adaptive_decay": 0.5, "frequency_penalty": 0.25,
        "dry_multiplier": 0.8, "ignore_eos": True, "seed": 11,
        "dry_sequence_breakers": ["\n"], "samplers": ["top_k", "infill", "none"],
        "logit_bias": {"65": -100, "b": 5, "67": False},
    }  # fmt: skip
    assert ask(url, **chosen, cache_prompt=False).status_code == 200
    asked = llm.asked[-1]["sampling"]
    special = ("samplers", "logit_bias", "dry_sequence_breakers")
    assert all(getattr(asked, name) == chosen[name] for name in chosen if name not in special)
    assert asked.samplers == ("top_k", "infill")
    assert asked.logit_bias == {65: float("-inf"), ord("b"): 5.0, 67: float("-inf")}
    assert asked.dry_sequence_breakers == ("\n",)
    assert llm.asked[-1]["cache"] is False


LETTERS = ("penalties", "dry", "top_k", "typ_p", "top_p", "min_p", "xtc", "temperature")


@pytest.mark.parametrize(
    ("given", "samplers"),
    [("edkypmxt", LETTERS), ("sk?i", ("top_n_sigma", "top_k", "infill")),
     ("top_k;temp;no", ("top_k", "temperature")), ("temp", ("temperature",)), ([], ())],
)  # fmt: skip
def test_samplers_in_one_string(url, llm, given, samplers):
    assert ask(url, samplers=given).status_code == 200
    assert llm.asked[-1]["sampling"].samplers == samplers


def test_what_clients_of_llama_server_send(url, llm):
    """llama cli; llama.vscode's edits; llama.vim's warming up before an instruction."""
    sent = [
        {"timings_per_token": True, "stream": True},
        {"timings_per_token": False, "lora": [{"id": 0, "scale": 0.5}], "max_tokens": -1},
        {"id_slot": 0, "n_predict": 0, "samplers": [], "response_fields": [""]},
    ]
    assert [ask(url, **body).status_code for body in sent] == [200, 200, 200]
    assert llm.asked[-1]["max_tokens"] == 0


@pytest.mark.parametrize(
    ("name", "knob"), [("repetition_penalty", "repeat_penalty"), ("temp", "temperature")]
)
def test_other_names_of_a_knob(url, llm, name, knob):
    ask(url, **{name: 1.5})
    assert getattr(llm.asked[-1]["sampling"], knob) == 1.5


def test_logprobs(url):
    answer = ask(url, logprobs=True, top_logprobs=2).json()["choices"][0]["logprobs"]
    first = answer["content"][0]
    assert (first["token"], first["logprob"], first["bytes"]) == ("H", -0.5, [72])
    assert [one["token"] for one in first["top_logprobs"]] == ["a", "b"]
    assert ask(url, top_logprobs=2).status_code == 400
    events = stream(url, logprobs=True)
    tokens = [
        one["token"]
        for event in events[:-1]
        for one in (event["choices"][0]["logprobs"] or {"content": []})["content"]
    ]
    assert "".join(tokens) == "Hello, you!"


def test_what_clients_put_into_messages(url, llm):
    said = [
        {"role": "developer", "content": "be kind"},
        {"role": "user", "content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]},
        {"role": "assistant", "content": None, "tool_calls": [
            {"id": None, "type": "function", "function": {"name": "f", "arguments": {"x": 1}}},
            {"function": {"name": "g", "arguments": "{\"y\": 2}"}},
            {"function": {"name": "h", "arguments": "not json"}}]},
        {"role": "function", "name": "f", "content": "3"},
    ]  # fmt: skip
    assert ask(url, messages=said).status_code == 200
    prompt = bytes(id for id in llm.asked[-1]["ids"] if id < 256).decode()
    assert prompt == "[system]be kind[user]ab[assistant][tool]3[assistant]"


@pytest.mark.parametrize(
    "content", [[{"type": "image_url", "image_url": {"url": "file:///etc/passwd"}}], 3, {}, [3]]
)
def test_content_that_is_not_text(url, content):
    answer = ask(url, messages=[{"role": "user", "content": content}])
    assert answer.status_code == 400
    assert answer.json()["error"]["param"].startswith("messages[0].content")


def test_a_large_body_is_checked_like_a_small_one(url):
    long = [{"role": "user", "content": "x" * 100_000}]
    assert ask(url, messages=long).json()["error"]["type"] == "exceed_context_size_error"
    assert ask(url, messages=long, top_k="many").json()["error"]["param"] == "top_k"


def test_template_variables(url, llm):
    ask(url, chat_template_kwargs={"enable_thinking": True}, reasoning_effort="none")
    prompt = bytes(id for id in llm.asked[-1]["ids"] if id < 256).decode()
    assert "[enable_thinking=True][reasoning_effort=none]" in prompt
    assert ask(url, chat_template_kwargs={"messages": []}).status_code == 400


def test_a_base_model_says_what_to_do(url):
    answer = ask(url, model="base")
    assert answer.status_code == 400 and "/v1/completions" in answer.json()["error"]["message"]


def test_a_prompt_too_long_gives_both_numbers(url):
    answer = ask(url, messages=[{"role": "user", "content": "x" * 5000}])
    error = answer.json()["error"]
    assert (answer.status_code, error["type"]) == (400, "exceed_context_size_error")
    assert error["n_prompt_tokens"] > error["n_ctx"] == 4096
    assert "exceeds the available context size" in error["message"]  # by which agents know it
    assert error["code"] == "context_length_exceeded"


@pytest.mark.parametrize(
    "field", ["user", "store", "metadata", "service_tier", "prompt_cache_key", "prediction",
              "safety_identifier", "verbosity"]
)  # fmt: skip
def test_fields_that_are_ignored_are_accepted(url, field):
    value = {"store": True, "metadata": {"a": "b"}, "prediction": {"type": "content"}}
    assert ask(url, **{field: value.get(field, "x")}).status_code == 200


@pytest.mark.parametrize("field", ["functions", "audio", "web_search_options", "temprature"])
def test_fields_that_are_not_known_are_refused_by_name(url, field):
    answer = ask(url, **{field: {}})
    assert (answer.status_code, answer.json()["error"]["param"]) == (400, field)


def test_progress_of_the_prompt(url):
    events = [event for event in stream(url, return_progress=True) if "prompt_progress" in event]
    assert events[0]["prompt_progress"]["processed"] == events[0]["prompt_progress"]["total"]


def test_a_time_limit_ends_the_answer():
    with serving(FakeLibrary(FakeLLM(answer="x" * 10_000, seconds=0.002)), ["fake"]) as site:
        url, since = f"{site.note.url}/v1/chat/completions", time.monotonic()
        answer = ask(url, t_max_predict_ms=200).json()["choices"][0]
        assert 0.1 < time.monotonic() - since < 5
        assert answer["finish_reason"] == "length" and len(answer["message"]["content"]) > 5


def test_silence_is_filled_with_comments():
    llm = FakeLLM(seconds=0.3)
    with serving(FakeLibrary(llm), ["fake"], ping_seconds=0.1) as site:
        body = {"messages": USER, "stream": True, "max_tokens": 2}
        answer = httpx.post(f"{site.note.url}/v1/chat/completions", json=body)
        assert answer.text.count(": ping\n\n") >= 2


@pytest.mark.parametrize("streaming", [False, True])
def test_a_client_that_goes_cancels(streaming):
    llm = FakeLLM(answer="x" * 100_000, seconds=0.005)
    with serving(FakeLibrary(llm), ["fake"]) as site:
        body = {"messages": USER, "stream": streaming}
        with (
            pytest.raises(httpx.TimeoutException),
            httpx.stream(
                "POST", f"{site.note.url}/v1/chat/completions", json=body, timeout=0.3
            ) as answer,
        ):
            for _ in answer.iter_raw():
                time.sleep(0.4)
                raise httpx.ReadTimeout("enough")
        assert until(lambda: llm.cancels > 0 and llm.running == 0)
        assert until(lambda: not site.records and site.gate.running == 0)
        assert 'localllm_cancellations_total{model="fake"} 1.0' in site.metrics.text().decode()


def test_an_error_in_the_middle_of_a_stream_is_an_event():
    llm = FakeLLM()
    llm.answer = lambda ids: "abc\N{SNOWMAN}"  # no id below 256: the reply fails
    with serving(FakeLibrary(llm), ["fake"]) as site:
        original = llm.tokenizer.token_bytes
        llm.tokenizer.token_bytes = lambda id, *more: 1 / 0 if id == 0xE2 else original(id, *more)
        url = f"{site.note.url}/v1/chat/completions"
        body = {"messages": USER, "stream": True, "logprobs": True}
        lines = httpx.post(url, json=body).text.strip().split("\n\n")
        assert json.loads(lines[-1][6:])["error"]["type"] == "server_error"
        assert "ZeroDivision" not in lines[-1]
        assert ask(url).status_code == 200
