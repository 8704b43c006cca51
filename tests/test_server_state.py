"""/health, /props, /slots, /metrics, /v1/models, /tokenize and its kin, and the log line."""

import json
import logging

import httpx
import pytest
from fakes_server import FakeLibrary, FakeLLM, serving, until

USER = {"messages": [{"role": "user", "content": "hi"}], "model": "fake"}


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("LOCALLLM_HOME", str(tmp_path_factory.mktemp("home")))
        with serving(FakeLibrary(FakeLLM(seconds=0.01), FakeLLM("other")), ["fake"]) as site:
            assert until(lambda: get(site, "/health").status_code == 200)
            yield site


def get(site, path, **params):
    return httpx.get(site.note.url + path, params=params)


def post(site, path, **body):
    return httpx.post(site.note.url + path, json=body)


def test_health_tells_loading_ready_and_failed(home):
    library = FakeLibrary(load_seconds=0.5)
    with serving(library, ["fake"]) as site:
        loading = get(site, "/health")
        assert (loading.status_code, loading.json()["status"]) == (503, "loading")
        assert loading.json()["error"]["message"] == "Loading model"
        assert until(lambda: get(site, "/health").json()["status"] == "ok")
    library.broken.add("fake")
    with serving(library, ["fake"]) as site:
        assert until(lambda: get(site, "/health").json()["status"] == "failed")
        assert get(site, "/health").status_code == 503


def test_models(site):
    listed = get(site, "/v1/models").json()
    assert listed["object"] == "list"
    states = {model["id"]: model["state"] for model in listed["data"]}
    assert states["fake"] == "ready"
    assert get(site, "/v1/models/").json() == listed
    one = get(site, "/v1/models/fake").json()
    assert one["object"] == "model" and one["meta"]["n_ctx"] == 4096
    missing = get(site, "/v1/models/user/none:q4")
    assert (missing.status_code, missing.json()["error"]["code"]) == (404, "model_not_found")


def test_props_report_the_context_in_force(site):
    props = get(site, "/props").json()
    assert props["default_generation_settings"]["n_ctx"] == 4096
    assert (props["bos_token"], props["eos_token"]) == ("<s>", "</s>")
    assert "path" not in json.dumps(props)
    assert get(site, "/props", model="none").status_code == 404


def test_props_need_not_load(site):
    answer = get(site, "/props", model="other", autoload="false")
    assert answer.status_code == 503 and "other" not in site.pool.entries


def test_tokenize_and_back(site):
    assert post(site, "/tokenize", content="hé").json() == {"tokens": [104, 195, 169]}
    assert post(site, "/tokenize", content="h", add_special=True).json() == {"tokens": [256, 104]}
    pieces = post(site, "/tokenize", content="é", with_pieces=True).json()["tokens"]
    assert pieces == [{"id": 195, "piece": [195]}, {"id": 169, "piece": [169]}]
    assert post(site, "/detokenize", tokens=[104, 195, 169]).json() == {"content": "hé"}
    assert post(site, "/detokenize", tokens=[]).json() == {"content": ""}


def test_control_tokens_have_their_texts(site):
    """As in llama-server."""
    both = [104, 257]
    pieces = post(site, "/tokenize", content=both, with_pieces=True).json()["tokens"]
    assert pieces == [{"id": 104, "piece": "h"}, {"id": 257, "piece": "</s>"}]
    assert post(site, "/detokenize", tokens=both).json() == {"content": "h</s>"}
    assert post(site, "/detokenize", tokens=both, special=False).json() == {"content": "h"}


def test_ids_among_the_texts_to_tokenize_stay_as_they_are(site):
    def tokens(content, **more):
        return post(site, "/tokenize", content=content, **more).json()["tokens"]

    assert tokens(["a", 256, "bc", 5.0]) == [97, 256, 98, 99, 5] and tokens([]) == []
    assert tokens(["a", 98], add_special=True) == [256, 97, 98]
    assert tokens([97, "b"], add_special=True) == [97, 98], "as llama-server has it"
    assert tokens([97], with_pieces=True) == [{"id": 97, "piece": "a"}]
    for wrong in ([99999], ["a", -1], ["a", True], ["a", 1.5], [["a"]], 97, [1] * (2**20 + 1)):
        assert post(site, "/tokenize", content=wrong).status_code == 400


def test_apply_template(site):
    said = post(site, "/apply-template", messages=USER["messages"]).json()
    assert said == {"prompt": "[user]hi[assistant]"}
    said = post(site, "/apply-template", messages=USER["messages"], add_generation_prompt=False)
    assert said.json() == {"prompt": "[user]hi"}


def test_apply_template_takes_what_llama_vscode_counts_the_tokens_of(site):
    tools = {"tools": [{"type": "function", "function": {"name": "f"}}]}
    said = [
        post(site, "/apply-template", messages=USER["messages"], tool_choice=choice, **tools).json()
        for choice in ("auto", "required", "none")
    ]
    shown = ("[tool]f", "[tool]f", "")
    assert said == [{"prompt": f"[user]hi{tool}[assistant]"} for tool in shown]
    form = {"response_format": {"type": "json_object"}, "reasoning_effort": "low"}
    assert post(site, "/apply-template", messages=USER["messages"], **form).status_code == 200


def test_paths_that_are_not_there(site):
    missing = get(site, "/v1/nothing")
    assert (missing.status_code, missing.json()["error"]["type"]) == (404, "not_found_error")
    method = get(site, "/v1/chat/completions")
    assert method.status_code == 405 and "error" in method.json()
    assert httpx.request("HEAD", site.note.url + "/").status_code == 200


def test_metrics_count_what_happened(site):
    def value(name):
        lines = get(site, "/metrics").text.splitlines()
        return sum(float(line.rpartition(" ")[2]) for line in lines if line.startswith(name))

    before = value('localllm_generated_tokens_total{model="fake"}')
    assert post(site, "/v1/chat/completions", **USER).status_code == 200
    assert until(lambda: value('localllm_generated_tokens_total{model="fake"}') == before + 11)
    assert value('localllm_time_to_first_token_seconds_count{model="fake"}') >= 1
    assert value('localllm_inter_token_latency_seconds_count{model="fake"}') >= 1
    assert value('localllm_prefix_hit_tokens_total{model="fake"}') > 0
    assert value('localllm_pages_free{model="fake"}') == 7
    assert value('localllm_preemptions_total{model="fake"}') == 3
    assert value('localllm_model_loaded{model="fake"}') == 1
    assert value("localllm_requests_running") == 0
    names = {line.split()[2] for line in get(site, "/metrics").text.splitlines() if line[0] == "#"}
    assert all(name.startswith("localllm_") for name in names)


def test_metrics_never_grow_with_what_clients_write(site):
    for path in ("/a", "/b", "/v1/models/x", "/v1/models/y"):
        get(site, path)
    post(site, "/v1/chat/completions", **USER | {"model": "madeup"})
    text = get(site, "/metrics").text
    assert "madeup" not in text and '"/a"' not in text and "models/x" not in text


def test_slots_show_running_requests_and_none_of_their_words(home):
    with serving(FakeLibrary(FakeLLM(answer="x" * 9999, seconds=0.01)), ["fake"]) as site:
        url = site.note.url + "/v1/chat/completions"
        with httpx.stream("POST", url, json=USER | {"stream": True}) as answer:
            lines = answer.iter_lines()
            for _ in range(7):
                next(lines)
            (slot,) = get(site, "/slots").json()
            assert slot["is_processing"] and slot["n_decoded"] > 0 and slot["model"] == "fake"
            assert "hi" not in json.dumps(slot)
        assert until(lambda: get(site, "/slots").json() == [])


def test_one_log_line_a_request(site, caplog):
    caplog.set_level(logging.INFO, "localllm.server")
    answer = post(site, "/v1/chat/completions", **USER)

    def lines():
        said = [r.getMessage() for r in caplog.records if r.name == "localllm.server"]
        return [line for line in map(json.loads, said) if line.get("path")]

    assert until(lambda: len(lines()) == 1)
    (line,) = lines()
    assert line["id"] == answer.headers["x-request-id"]
    assert (line["model"], line["status"], line["finish"]) == ("fake", 200, "stop")
    assert line["completion_tokens"] == 11 and line["prompt_tokens"] > line["cached_tokens"] > 0
    assert line["ttft_ms"] > 0 and line["ms"] >= line["ttft_ms"]
    assert "prompt" not in line and "answer" not in line
