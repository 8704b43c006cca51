"""A chat's messages as clients send them -> as templates want them."""

from typing import Any

from localllm.errors import BadRequest
from localllm.server.endpoint import parse
from localllm.server.schema import Schema, WrongField

ROLES = {"developer": "system", "function": "tool"}  # newer and older names
CALL: Schema = {
    "type": "object",
    "properties": {
        "id": {"type": ["string", "null"]},
        "type": {"enum": ["function"]},
        "function": {
            "type": "object",
            "properties": {
                "name": {"type": "string", "minLength": 1, "maxLength": 256},
                "arguments": {"type": ["string", "object", "null"]},
            },
            "required": ["name"],
        },
    },
    "required": ["function"],
}
PART: Schema = {
    "type": "object",
    "properties": {"type": {"type": "string"}, "text": {"type": "string"}},
    "required": ["type"],
}
MESSAGE: Schema = {
    "type": "object",
    "properties": {
        "role": {"enum": ["system", "developer", "user", "assistant", "tool", "function"]},
        "content": {
            "anyOf": [
                {"type": ["string", "null"]},
                {"type": "array", "items": PART, "maxItems": 1024},
            ]
        },
        "name": {"type": ["string", "null"], "maxLength": 256},
        "tool_call_id": {"type": ["string", "null"], "maxLength": 256},
        "tool_calls": {
            "anyOf": [{"type": "null"}, {"type": "array", "items": CALL, "maxItems": 128}]
        },
        "reasoning_content": {"type": ["string", "null"]},
    },
    "required": ["role"],
}
MESSAGES: Schema = {"type": "array", "items": MESSAGE, "minItems": 1, "maxItems": 4096}
TOOL: Schema = {
    "type": "object",
    "properties": {
        "type": {"enum": ["function"]},
        "function": {
            "type": "object",
            "properties": {
                "name": {"type": "string", "minLength": 1, "maxLength": 256},
                "description": {"type": ["string", "null"]},
                "parameters": {"type": ["object", "null"]},
                "strict": {"type": ["boolean", "null"]},
            },
            "required": ["name"],
        },
    },
    "required": ["type", "function"],
}
TOOLS: Schema = {"type": "array", "items": TOOL, "maxItems": 128}

CHOICE: Schema = {
    "anyOf": [
        {"enum": ["none", "auto", "required"]},
        {
            "type": "object",
            "properties": {
                "type": {"enum": ["function"]},
                "function": {
                    "type": "object",
                    "properties": {"name": {"type": "string"}},
                    "required": ["name"],
                },
            },
            "required": ["type", "function"],
        },
    ]
}


def plain(messages: list[dict[str, Any]], system: str | None = None) -> list[dict[str, Any]]:
    """Text parts joined, older role names replaced, a call's arguments as an object.

    system: the model's own system message, for a chat without one. Members that are not named
    here reach the template as they are.
    """
    said = [_message(message, f"messages[{i}]") for i, message in enumerate(messages)]
    own = system and all(message["role"] != "system" for message in said)
    return [{"role": "system", "content": system}, *said] if own else said


def _message(message: dict[str, Any], at: str) -> dict[str, Any]:
    said = {name: value for name, value in message.items() if value is not None}
    said["role"] = ROLES.get(said["role"], said["role"])
    said["content"] = _text(said.get("content", ""), f"{at}.content")
    if calls := said.pop("tool_calls", None):
        said["tool_calls"] = [_call(call) for call in calls]
    return said


def _text(content: Any, at: str) -> str:
    if isinstance(content, str):
        return content
    texts = []
    for i, part in enumerate(content):
        if part["type"] not in ("text", "input_text", "output_text") or "text" not in part:
            raise WrongField(f"{at}[{i}]", "Only parts of type 'text' are understood.")
        texts.append(part["text"])
    return "".join(texts)


def _call(call: dict[str, Any]) -> dict[str, Any]:
    """Clients send arguments as JSON in a string; templates write them as JSON themselves."""
    function = dict(call["function"])
    arguments = function.get("arguments") or {}
    if isinstance(arguments, str):
        try:
            arguments = parse(arguments.encode())
        except BadRequest:
            pass  # a model once wrote it so: it is shown to it as it was
    return {**call, "type": "function", "function": function | {"arguments": arguments}}
