"""Answers that must follow a schema, a grammar or a tool: enforced token by token, or refused."""

import json

import httpx
import numpy as np
import pytest
from fakes_server import EOS, FakeLibrary, FakeLLM, serving

from localllm.errors import BadRequest
from localllm.server import constrain
from localllm.server.dialect import Tools

pytest.importorskip("llguidance")

WEATHER = {
    "type": "function",
    "function": {
        "name": "weather",
        "parameters": {
            "type": "object",
            "properties": {"city": {"type": "string", "maxLength": 4}, "days": {"type": "integer"}},
            "required": ["city"],
        },
    },
}
TIME = {"type": "function", "function": {"name": "time"}}
SCHEMA = {
    "type": "object",
    "properties": {"colour": {"enum": ["red", "blue"]}, "n": {"type": "integer", "maximum": 99}},
    "required": ["colour", "n"],
    "additionalProperties": False,
}


def strict(schema):
    return {"response_format": {"type": "json_schema", "json_schema": {"schema": schema}}}


def spell(body, text, tools=None):
    """The mask after each letter of a text; fails at a letter that is not allowed."""
    mask = constrain.mask_for(body, FakeLLM(), tools or Tools())()
    for letter in text.encode():
        assert mask.allowed()[letter], f"{chr(letter)!r} is not allowed in {text!r}"
        mask.take(letter)
    return mask.allowed()


def letters(mask):
    return {chr(id) for id in np.flatnonzero(mask) if id < 256}


def test_no_form_no_mask():
    assert constrain.mask_for({}, FakeLLM(), Tools())() is None
    assert constrain.mask_for({"response_format": {"type": "text"}}, FakeLLM(), Tools())() is None


def test_a_schema_leaves_only_what_fits():
    assert letters(spell(strict(SCHEMA), '{"colour":"')) == {"r", "b"}
    assert letters(spell(strict(SCHEMA), '{"colour":"red"')) == {","}
    end = spell(strict(SCHEMA), '{"colour":"blue","n":12}')
    assert end[EOS] and not letters(end)
    assert not spell(strict(SCHEMA), '{"colour": "blue", "n": 12')[EOS]


def test_no_endless_whitespace():
    assert letters(spell({"response_format": {"type": "json_object"}}, "")) == {"{"}
    assert letters(spell(strict(SCHEMA), '{"colour":')) == {" ", '"'}
    assert letters(spell(strict(SCHEMA), '{"colour": ')) == {'"'}


def test_llama_servers_fields():
    assert letters(spell({"json_schema": SCHEMA}, '{"colour":"')) == {"r", "b"}
    end = spell({"grammar": 'root ::= "yes" | "no"'}, "yes")
    assert end[EOS] and not letters(end)


def test_each_answer_has_a_mask_of_its_own():
    make = constrain.mask_for(strict(SCHEMA), FakeLLM(), Tools())
    one, other = make(), make()
    one.take(ord("{"))
    assert letters(other.allowed()) == {"{"}


@pytest.mark.parametrize(
    "body",
    [
        strict({"type": "object", "properties": {"a": {"$ref": "#/nowhere"}}, "required": ["a"]}),
        strict({"type": "nothing"}),
        strict({"not": {"type": "string"}}),
        {"grammar": "root ::= ("},
        {"grammar": "nothing"},
        strict({"type": "string", "pattern": "("}),
        strict({"type": "string", "maxLength": 5}) | {"grammar": 'root ::= "x"'},
        strict({"description": "x" * 300_000}),
    ],
    ids=lambda body: json.dumps(body)[:40],
)
def test_what_cannot_be_enforced_is_refused(body):
    """Failing open, as others do, would be an answer that looks right and is not."""
    with pytest.raises(BadRequest):
        constrain.mask_for(body, FakeLLM(), Tools())


def test_a_grammar_too_large_is_refused_in_bounded_time():
    huge = {"type": "object", "properties": {f"p{i}": {"type": "string"} for i in range(9000)}}
    deep = {"anyOf": [{"type": "string", "pattern": "(a|b)*a" + "(a|b)" * 40}]}
    for schema in (huge, deep):
        try:
            mask = constrain.mask_for(strict(schema), FakeLLM(), Tools())()
            assert mask.allowed().any()
        except BadRequest as refusal:
            assert len(refusal.message) < 500


def tools_of(choice):
    return Tools.read({"tools": [WEATHER, TIME], "tool_choice": choice})


def test_a_tool_that_must_be_called():
    required = tools_of("required")
    assert letters(spell({}, '<tool_call>\n{"name":"', required)) == {"w", "t"}
    named = tools_of({"type": "function", "function": {"name": "weather"}})
    assert letters(spell({}, '<tool_call>\n{"name":"', named)) == {"w"}
    call = '<tool_call>\n{"name":"weather","arguments":{"city":"Rome","days":2}}\n</tool_call>'
    end = spell({}, call, named)
    assert end[EOS] and not letters(end)


@pytest.mark.parametrize("none", [{}, {"parameters": None}, {"parameters": {}}])
def test_a_tool_without_parameters_is_called_with_none(none):
    tool = {"type": "function", "function": {"name": "time"} | none}
    tools = Tools.read({"tools": [tool], "tool_choice": "required"})
    call = '<tool_call>\n{"name":"time","arguments":{'
    assert letters(spell({}, call, tools)) == {"}"}


def test_choices_that_no_tool_fits():
    for body in ({"tool_choice": "required"}, {"tools": [TIME], "tool_choice": FUNCTION}):
        with pytest.raises(BadRequest):
            Tools.read(body)
    assert Tools.read({"tools": [TIME], "tool_choice": "none"}).shown is None
    assert Tools.read({"tools": []}).shown is None


FUNCTION = {"type": "function", "function": {"name": "other"}}


def test_an_answer_over_http_follows_its_schema(home):
    with serving(FakeLibrary(), ["fake"]) as site:
        said = {"messages": [{"role": "user", "content": "hi"}]}
        url = site.note.url + "/v1/chat/completions"
        small = SCHEMA | {"properties": SCHEMA["properties"] | {"n": {"enum": [7]}}}
        answer = httpx.post(url, json=said | strict(small) | {"n": 2}).json()
        for choice in answer["choices"]:
            found = json.loads(choice["message"]["content"])
            assert found["colour"] in ("red", "blue") and isinstance(found["n"], int)
        refused = httpx.post(url, json=said | strict({"type": "nothing"}))
        assert refused.status_code == 400
