"""The checks of JSON bodies: each keyword refuses what it should, and names the field."""

import json

import pytest

from localllm.errors import BadRequest
from localllm.server import schema
from localllm.server.endpoint import DEPTH, Body, Field, parse
from localllm.server.schema import WrongField

NUMBER = {"type": "number", "minimum": 0, "maximum": 2}
ONE = {"type": "object", "properties": {"is": {"enum": [1]}}, "required": ["is"]}
TWO = {"type": "object", "properties": {"is": {"enum": [2]}, "two": {"type": "string"}},
       "required": ["is", "two"]}  # fmt: skip


@pytest.mark.parametrize(
    ("value", "declared"),
    [
        (1, {"type": "integer"}),
        (2.0, {"type": "integer"}),
        (0.5, NUMBER),
        ("x", {"enum": ["x", "y"]}),
        (None, {"type": ["string", "null"]}),
        ([1, 2], {"type": "array", "items": {"type": "integer"}, "maxItems": 2}),
        ({"a": 1}, {"properties": {"a": NUMBER}, "additionalProperties": False}),
        ("b", {"anyOf": [{"type": "integer"}, {"type": "string"}]}),
        (object(), {}),
    ],
)
def test_right_values_pass(value, declared):
    assert schema.check(value, declared) is None


@pytest.mark.parametrize(
    ("value", "declared", "param"),
    [
        (True, {"type": "integer"}, "x"),
        (1.5, {"type": "integer"}, "x"),
        (3, NUMBER, "x"),
        (-1, NUMBER, "x"),
        (True, {"enum": [1]}, "x"),
        ("long", {"type": "string", "maxLength": 3}, "x"),
        ([], {"type": "array", "minItems": 1}, "x"),
        ([1, "a"], {"type": "array", "items": {"type": "integer"}}, "x[1]"),
        ({"b": 1}, {"properties": {"a": {}}, "additionalProperties": False}, "x.b"),
        ({}, {"type": "object", "required": ["a"]}, "x.a"),
        ({"a": 5}, {"type": "object", "additionalProperties": NUMBER}, "x.a"),
        ({"a": 1, "b": 2}, {"type": "object", "maxProperties": 1}, "x"),
        ([1, None], {"anyOf": [{"type": "string"}, {"type": "array", "items": NUMBER}]}, "x[1]"),
        ({}, {"anyOf": [{"type": "string"}, {"type": "array"}]}, "x"),
        ([True], {"anyOf": [{"type": "string"}, {"type": "integer"}]}, "x"),
        ({"is": 2}, {"anyOf": [ONE, TWO]}, "x.two"),
        ({"is": 2, "two": 0}, {"anyOf": [ONE, TWO]}, "x.two"),
        ({"is": 3}, {"anyOf": [ONE, TWO]}, "x.is"),
    ],
)
def test_wrong_values_are_named(value, declared, param):
    with pytest.raises(WrongField) as caught:
        schema.check(value, declared, "x")
    assert caught.value.param == param


@pytest.mark.parametrize("value", ["y" * 10_000, [1] * 10_000, 10**4000, {"k" * 5000: 1}])
def test_a_message_never_repeats_a_huge_value(value):
    with pytest.raises(WrongField) as caught:
        schema.check(value, {"type": "boolean", "additionalProperties": False}, "x")
    assert len(str(caught.value)) < 200


@pytest.mark.parametrize(
    "raw",
    [
        b"", b"{", b"\xff\xfe", b"nothing", b'{"a": NaN}', b'{"a": 1e999}', b'{"a": -Infinity}',
        b'{"a": "\\ud800"}', b'{"\\udfff": 1}', b"[" * 100_000, b"1" * 5000,
        b"[" * (DEPTH + 1) + b"]" * (DEPTH + 1),
    ],
    ids=lambda raw: str(raw[:12]),
)  # fmt: skip
def test_what_is_not_json_is_refused(raw):
    with pytest.raises(BadRequest):
        parse(raw)


def test_deep_but_bounded_json_is_read():
    value = json.loads("[" * (DEPTH - 1) + "]" * (DEPTH - 1))
    assert parse(json.dumps(value).encode()) == value
    assert parse(b'"\\ud83d\\ude00"') == "\N{GRINNING FACE}"


def test_null_is_the_same_as_no_field():
    body = Body((Field("a", NUMBER, ""), Field("b", NUMBER, "", required=True)))
    assert body.read(b'{"a": null, "b": 1}') == {"b": 1}
    with pytest.raises(WrongField, match="Field 'b': Is required"):
        body.read(b'{"b": null}')
    with pytest.raises(WrongField, match="an object"):
        body.read(b"[]")


def test_nulls_further_in_are_no_members_either_but_for_those_of_a_users_schema():
    choices = {"anyOf": [{"type": "string"}, {"type": "array", "items": {"anyOf": [TWO]}}]}
    body = Body((Field("a", choices, ""), Field("free", {"type": "object"}, "")))
    wanted = {"is": 2, "two": "2", "else": None}
    raw = {"a": [wanted | {"is": 2}], "free": {"enum": [None], "default": None}, "new": None}
    assert body.read(json.dumps(raw).encode()) == {"a": [wanted], "free": raw["free"]}
    with pytest.raises(WrongField, match=r"'a\[0\].two': Is required"):
        body.read(b'{"a": [{"is": 2, "two": null}]}')


def test_of_two_choices_the_one_that_fits_the_type_complains():
    with pytest.raises(WrongField, match="Must be a string or an integer, not True"):
        schema.check(True, {"anyOf": [{"type": "string"}, {"type": "integer"}, {"type": "string"}]})
    texts = {"anyOf": [{"type": "string"}, {"type": "array", "maxItems": 2}]}
    with pytest.raises(WrongField, match="at most 2 items"):
        schema.check([1, 2, 3], texts, "x")
