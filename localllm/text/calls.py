"""Tool calls in the ways that models write them, read with patience for small mistakes."""

import json
import re
from collections.abc import Iterator
from typing import Any, NamedTuple

_XML_CALL = re.compile(r"<function=([^<>\s]+)\s*>(.*?)(?:</function>|$)", re.DOTALL)
_XML_VALUE = re.compile(r"<parameter=([^<>\s]+)\s*>(.*?)(?=</parameter>|<parameter=|$)", re.DOTALL)
_NAMED = re.compile(r"\s*([\w.-]{1,128})\s*(?:\[ARGS\])?\s*(?=\{)")
_CUT = re.compile(
    r'\{\s*"name"\s*:\s*"([^"\\]{1,128})"(?:\s*,\s*"(?:arguments|parameters)"\s*:\s*(\{.*))?',
    re.DOTALL,
)
_BETWEEN = re.compile(r"[\s;,]*")
_DECODER = json.JSONDecoder(strict=False)  # models write line breaks into strings


class Call(NamedTuple):
    """A function's name, and its arguments as a JSON object in text."""

    name: str
    arguments: str


def read_calls(text: str) -> list[Call]:
    """The calls in a text that holds nothing else; empty where it does not.

    Objects or lists of {"name", "arguments" or "parameters"}, also nested under "function";
    Mistral's name[ARGS]{...}; Qwen3-Coder's <function=name><parameter=key>value. Braces that are
    doubled, as templates write them, are taken for single ones.
    """
    text = text.strip()
    doubled = text.startswith("{{") and text.endswith("}}")
    try:
        if "<function=" in text:
            return _xml_calls(text)
        return list(_json_calls(text[1:-1] if doubled else text))
    except (ValueError, RecursionError):
        return []


def read_cut(text: str) -> list[Call]:
    """The JSON calls of a text that was cut short: whole ones, and one whose name is whole.

    That one's arguments are as much of the JSON as came, and may be nothing.
    """
    calls: list[Call] = []
    at = len(text) - len(text.lstrip(" \r\n\t["))
    try:
        while True:
            value, end = _DECODER.raw_decode(text, at)
            calls.append(_call(value))
            at = _skip(text, end)
    except (ValueError, RecursionError):
        cut = _CUT.match(text, at)
    return [*calls, Call(cut[1], cut[2] or "")] if cut else calls


def _json_calls(text: str) -> Iterator[Call]:
    at = _skip(text, 0)
    while at < len(text):
        named = _NAMED.match(text, at)
        value, at = _DECODER.raw_decode(text, named.end() if named else at)
        if named:
            yield Call(named[1], _arguments(value))
        else:
            yield from map(_call, value if isinstance(value, list) else [value])
        at = _skip(text, at)


def _skip(text: str, at: int) -> int:
    match = _BETWEEN.match(text, at)
    return match.end() if match else at


def _call(value: Any) -> Call:
    if isinstance(value, dict) and isinstance(value.get("function"), dict):
        value = value["function"]
    if not isinstance(value, dict):
        raise ValueError("a call is an object")
    name = value.get("name", value.get("function"))
    if not isinstance(name, str) or not name:
        raise ValueError("a call has a name")
    return Call(name, _arguments(value.get("arguments", value.get("parameters", {}))))


def _arguments(value: Any) -> str:
    if isinstance(value, str):
        value = _DECODER.decode(value or "{}")
    if not isinstance(value, dict | None):
        raise ValueError("arguments are an object")
    return json.dumps(value or {}, ensure_ascii=False)


def _xml_calls(text: str) -> list[Call]:
    calls = []
    for name, body in _XML_CALL.findall(text):
        values = {key: _value(raw.strip("\n")) for key, raw in _XML_VALUE.findall(body)}
        calls.append(Call(name, json.dumps(values, ensure_ascii=False)))
    return calls


def _value(text: str) -> Any:
    """A number, list, object and so on where it is one, else the text itself."""
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return text
