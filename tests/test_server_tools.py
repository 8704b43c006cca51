"""Tool calls and reasoning on the wire, whole and streamed."""

import json

import httpx
import pytest
from fakes_server import FakeLibrary, FakeLLM, serving

TOOLS = [
    {"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}},
    {"type": "function", "function": {"name": "g", "description": None}},
]
CALL = '<tool_call>\n{"name": "f", "arguments": {"x": 1}}\n</tool_call>'
OTHER = '<tool_call>\n{"name": "g", "arguments": {}}\n</tool_call>'
USER = [{"role": "user", "content": "hi"}]


@pytest.fixture(scope="module")
def llm():
    return FakeLLM()


@pytest.fixture(scope="module")
def url(llm, tmp_path_factory):
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("LOCALLLM_HOME", str(tmp_path_factory.mktemp("home")))
        with serving(FakeLibrary(llm), ["fake"]) as site:
            yield f"{site.note.url}/v1/chat/completions"


def ask(url, **body):
    answer = httpx.post(url, json={"messages": USER, "tools": TOOLS} | body)
    assert answer.status_code == 200, answer.text
    return answer.json()["choices"][0]


def deltas(url, **body):
    asked = {"messages": USER, "tools": TOOLS, "stream": True} | body
    lines = httpx.post(url, json=asked).text.split("\n\n")
    events = [json.loads(line[6:]) for line in lines if line.startswith("data: {")]
    choices = [event["choices"][0] for event in events if event["choices"]]
    return [choice["delta"] for choice in choices], choices[-1]["finish_reason"]


def test_a_call(url, llm):
    llm.answer = "Sure.\n" + CALL
    choice = ask(url)
    message = choice["message"]
    assert choice["finish_reason"] == "tool_calls" and message["content"] == "Sure."
    (call,) = message["tool_calls"]
    assert call["type"] == "function" and call["id"].startswith("call_")
    assert call["function"]["name"] == "f"
    assert json.loads(call["function"]["arguments"]) == {"x": 1}


def test_calls_and_no_text(url, llm):
    llm.answer = f"{CALL}\n{OTHER}"
    message = ask(url)["message"]
    assert message["content"] is None
    assert [call["function"]["name"] for call in message["tool_calls"]] == ["f", "g"]
    assert len({call["id"] for call in message["tool_calls"]}) == 2


def test_streamed_calls_have_index_id_type_and_name_first(url, llm):
    llm.answer = f"{CALL}\n{OTHER}"
    found, finish = deltas(url)
    assert finish == "tool_calls" and found[0] == {"role": "assistant", "content": ""}
    calls = [part for delta in found for part in delta.get("tool_calls", ())]
    heads = [call for call in calls if "id" in call]
    assert [call["index"] for call in heads] == [0, 1]
    assert all(call["type"] == "function" and not call["function"]["arguments"] for call in heads)
    rest = [call for call in calls if "id" not in call]
    assert all(call.keys() == {"index", "function"} for call in rest)
    texts = ["".join(c["function"]["arguments"] for c in rest if c["index"] == i) for i in (0, 1)]
    assert [json.loads(text) for text in texts] == [{"x": 1}, {}]
    assert not any(delta.get("content") for delta in found)


@pytest.mark.parametrize("streaming", [False, True])
def test_one_call_only_when_they_may_not_be_parallel(url, llm, streaming):
    llm.answer = f"{CALL}\n{OTHER}" + "more" * 1000
    if streaming:
        found, finish = deltas(url, parallel_tool_calls=False)
        names = [c["function"].get("name") for d in found for c in d.get("tool_calls", ())]
        assert [name for name in names if name] == ["f"]
    else:
        choice = ask(url, parallel_tool_calls=False)
        finish = choice["finish_reason"]
        assert [call["function"]["name"] for call in choice["message"]["tool_calls"]] == ["f"]
    assert finish == "tool_calls"


def test_without_tools_the_marks_are_text(url, llm):
    llm.answer = CALL
    assert ask(url, tools=None)["message"]["content"] == CALL
    choice = ask(url, tool_choice="none")
    assert choice["message"]["content"] == CALL and choice["finish_reason"] == "stop"
    assert "[tool]" not in bytes(id for id in llm.asked[-1]["ids"] if id < 256).decode()


@pytest.mark.parametrize("broken", ["<tool_call>{oh no}</tool_call>", "<tool_call>{", "<tool_c"])
def test_a_call_that_cannot_be_read_is_text_and_no_error(url, llm, broken):
    llm.answer = broken
    choice = ask(url)
    assert choice["message"] == {"role": "assistant", "content": broken}
    assert choice["finish_reason"] == "stop"


@pytest.mark.parametrize("streaming", [False, True])
def test_a_call_that_the_limit_cuts_is_half_a_call(url, llm, streaming):
    llm.answer = CALL
    limit = CALL.index("1}")
    if streaming:
        found, finish = deltas(url, max_tokens=limit)
        calls = [call["function"] for delta in found for call in delta.get("tool_calls", ())]
        assert [call.get("name") for call in calls] == ["f", None]
        arguments, content = "".join(call["arguments"] for call in calls), None
        assert not any(delta.get("content") for delta in found)
    else:
        choice = ask(url, max_tokens=limit)
        (call,), finish = choice["message"]["tool_calls"], choice["finish_reason"]
        arguments, content = call["function"]["arguments"], choice["message"]["content"]
        assert call["function"]["name"] == "f"
    assert (arguments, content, finish) == ('{"x":', None, "length")


def test_a_call_that_must_be(url, llm):
    pytest.importorskip("llguidance")
    named = {"type": "function", "function": {"name": "g"}}
    parameters = {"type": "object", "properties": {"a": {"enum": [1]}}, "required": ["a"],
                  "additionalProperties": False}  # fmt: skip
    tools = [TOOLS[0], {"type": "function", "function": {"name": "g", "parameters": parameters}}]
    choice = ask(url, tools=tools, tool_choice=named)
    (call,) = choice["message"]["tool_calls"]
    assert (call["function"]["name"], choice["finish_reason"]) == ("g", "tool_calls")
    assert json.loads(call["function"]["arguments"]) == {"a": 1}


def test_history_with_tools_survives_small_mistakes(url, llm):
    llm.answer = "ok"
    said = [
        *USER,
        {"role": "assistant", "tool_calls": [{"function": {"name": "f", "arguments": "{bad"}}]},
        {"role": "tool", "content": "1", "tool_call_id": None},
        {"role": "tool", "content": [{"type": "text", "text": "2"}]},
        {"role": "assistant", "content": "", "refusal": None, "annotations": []},
    ]
    assert ask(url, messages=said)["message"]["content"] == "ok"


@pytest.mark.parametrize("streaming", [False, True])
def test_reasoning_goes_by_both_names(url, llm, streaming):
    llm.answer = "<think>\nhm hm\n</think>\n\nYes."
    if streaming:
        found, finish = deltas(url)
        join = lambda key: "".join(delta.get(key, "") for delta in found)  # noqa: E731
        message = {key: join(key) for key in ("content", "reasoning", "reasoning_content")}
    else:
        choice = ask(url)
        message, finish = choice["message"], choice["finish_reason"]
    assert message["content"] == "Yes." and finish == "stop"
    assert message["reasoning"] == message["reasoning_content"] == "hm hm"


def test_reasoning_is_counted(url, llm):
    llm.answer = "<think>\nhm hm\n</think>\n\nYes."
    usage = httpx.post(url, json={"messages": USER}).json()["usage"]
    assert (
        4 <= usage["completion_tokens_details"]["reasoning_tokens"] <= len("<think>hm hm</think>")
    )
    llm.answer = "No."
    usage = httpx.post(url, json={"messages": USER}).json()["usage"]
    assert usage["completion_tokens_details"] == {"reasoning_tokens": 0}


def test_a_models_own_system_message(url, llm, monkeypatch):
    monkeypatch.setattr(llm, "system", "Be brief.")
    ask(url)
    assert bytes(llm.asked[-1]["ids"][1:]).startswith(b"[system]Be brief.[user]hi")
    ask(url, messages=[{"role": "developer", "content": "Be long."}, *USER])
    assert bytes(llm.asked[-1]["ids"][1:]).startswith(b"[system]Be long.[user]hi")


def test_a_form_waits_for_the_end_of_reasoning_that_the_prompt_opened(url, llm, monkeypatch):
    pytest.importorskip("llguidance")
    render = type(llm.template).render

    def opened(self, *arguments, **extra):
        parts = render(self, *arguments, **extra)
        return [*parts, parts[-1]._replace(text="<think>\n")]

    monkeypatch.setattr(type(llm.template), "render", opened)
    masks = []
    monkeypatch.setattr(llm, "submit", lambda ids, mask=None, **more: masks.append(mask) or 1 / 0)
    httpx.post(url, json={"messages": USER, "json_schema": {"enum": ["a"]}})
    (mask,) = masks
    for letter in b"hm</think":
        assert mask.allowed() is None
        mask.take(letter)
    mask.take(ord(">"))
    assert mask.allowed()[ord('"')] and mask.allowed().sum() == 1
