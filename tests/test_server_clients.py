"""Real clients against a real server: openai (sync, async, streaming), langchain-openai, llm."""

import asyncio
import json
import os
import subprocess
import sys

import pytest
from fakes_server import FakeLibrary, FakeLLM, serving

openai = pytest.importorskip("openai")

USER = [{"role": "user", "content": "hi"}]


@pytest.fixture(scope="module")
def url(tmp_path_factory):
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("LOCALLLM_HOME", str(tmp_path_factory.mktemp("home")))
        slow = FakeLLM("slow", answer="x" * 10_000, seconds=0.01)
        with serving(FakeLibrary(FakeLLM(), slow), ["fake"]) as site:
            yield site.note.url + "/v1"


@pytest.fixture
def client(url):
    with openai.OpenAI(base_url=url, api_key="none", max_retries=0) as client:
        yield client


def test_openai_whole(client):
    answer = client.chat.completions.create(model="fake", messages=USER, seed=1, user="me")
    assert answer.choices[0].message.content == "Hello, you!"
    assert answer.choices[0].finish_reason == "stop"
    assert answer.usage.prompt_tokens_details.cached_tokens > 0
    assert [model.id for model in client.models.list()] == ["fake", "slow"]
    assert client.models.retrieve("fake").object == "model"


def test_openai_streaming(client):
    chunks = list(
        client.chat.completions.create(
            model="fake", messages=USER, stream=True, stream_options={"include_usage": True}
        )
    )
    assert chunks[0].choices[0].delta.role == "assistant"
    text = "".join(chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices)
    assert text == "Hello, you!"
    assert chunks[-1].choices == [] and chunks[-1].usage.completion_tokens == 11


def test_openai_helper_for_streams(client):
    with client.chat.completions.stream(model="fake", messages=USER) as stream:
        final = stream.until_done().get_final_completion()
    assert final.choices[0].message.content == "Hello, you!"


def test_openai_async(url):
    async def story():
        async with openai.AsyncOpenAI(base_url=url, api_key="none") as client:
            asks = [client.chat.completions.create(model="fake", messages=USER) for _ in range(8)]
            answers = await asyncio.gather(*asks)
            stream = await client.chat.completions.create(model="fake", messages=USER, stream=True)
            text = "".join([chunk.choices[0].delta.content or "" async for chunk in stream])
            return [answer.choices[0].message.content for answer in answers] + [text]

    assert asyncio.run(story()) == ["Hello, you!"] * 9


def test_openai_leaves_a_stream(client):
    stream = client.chat.completions.create(model="slow", messages=USER, stream=True)
    for _, chunk in zip(range(4), stream, strict=False):
        assert chunk.model == "slow"
    stream.close()


def test_openai_completions(client):
    answer = client.completions.create(model="fake", prompt=["a", "b"], logprobs=1, echo=True)
    assert [choice.text for choice in answer.choices] == ["aHello, you!", "bHello, you!"]
    assert answer.choices[0].logprobs.text_offset[-1] > 0


def test_openai_errors(client):
    with pytest.raises(openai.NotFoundError) as caught:
        client.chat.completions.create(model="none", messages=USER)
    assert caught.value.code == "model_not_found"
    with pytest.raises(openai.BadRequestError) as caught:
        client.chat.completions.create(model="fake", messages=USER, temperature=-3)
    assert caught.value.param == "temperature"
    with pytest.raises(openai.BadRequestError) as caught:
        client.chat.completions.create(
            model="fake", messages=[{"role": "user", "content": "x" * 9999}]
        )
    assert caught.value.code == "context_length_exceeded"


def test_openai_structured(client):
    pytest.importorskip("llguidance")
    schema = {"type": "object", "properties": {"a": {"enum": ["b"]}}, "required": ["a"],
              "additionalProperties": False}  # fmt: skip
    answer = client.chat.completions.create(
        model="fake",
        messages=USER,
        response_format={"type": "json_schema", "json_schema": {"name": "x", "schema": schema}},
    )
    assert json.loads(answer.choices[0].message.content) == {"a": "b"}


def test_langchain(url):
    langchain = pytest.importorskip("langchain_openai")
    model = langchain.ChatOpenAI(base_url=url, api_key="none", model="fake", temperature=0)
    answer = model.invoke("hi")
    assert answer.content == "Hello, you!"
    assert answer.usage_metadata["output_tokens"] == 11
    assert "".join(chunk.content for chunk in model.stream("hi")) == "Hello, you!"
    assert len(model.batch(["a", "b", "c"])) == 3


def test_the_llm_command(url, tmp_path):
    pytest.importorskip("llm")
    models = [{"model_id": "mine", "model_name": "fake", "api_base": url, "api_key_name": "none"}]
    (tmp_path / "extra-openai-models.yaml").write_text(json.dumps(models))
    (tmp_path / "keys.json").write_text('{"none": "none"}')
    for extra in ([], ["--no-stream"]):
        done = subprocess.run(
            [sys.executable, "-m", "llm", "-m", "mine", "hi", *extra],
            env=os.environ | {"LLM_USER_PATH": str(tmp_path)},
            capture_output=True, text=True, timeout=60,
        )  # fmt: skip
        assert done.stdout.strip() == "Hello, you!", done.stderr
