"""The API as an OpenAPI 3.1 document, made from the endpoints' own declarations."""

import re
from typing import Any

import localllm
from localllm.server.endpoint import Endpoint, Field

ERROR = {
    "type": "object",
    "properties": {
        "error": {
            "type": "object",
            "properties": {
                "message": {"type": "string"},
                "type": {"type": "string"},
                "code": {"type": ["string", "integer", "null"]},
                "param": {"type": ["string", "null"]},
            },
            "required": ["message", "type", "param"],
        }
    },
    "required": ["error"],
}
STATUSES = {
    "400": "A field is wrong, or the prompt does not fit.",
    "404": "No such model.",
    "413": "The body is too large.",
    "415": "The body is not JSON.",
    "429": "Too many requests wait.",
    "503": "Not ready, or on the way out.",
}


def document(endpoints: list[Endpoint], locked: bool) -> dict[str, Any]:
    """locked: requests need a key."""
    paths: dict[str, Any] = {}
    for endpoint in endpoints:
        if not endpoint.hidden:
            path = re.sub(r":path}", "}", endpoint.path)
            paths.setdefault(path, {})[endpoint.method.lower()] = _operation(endpoint, locked)
    schemes = {"key": {"type": "http", "scheme": "bearer"}}
    version = getattr(localllm, "__version__", "0")
    return {
        "openapi": "3.1.0",
        "info": {"title": "localllm", "version": version, "description": "On this machine only."},
        "paths": paths,
        "components": {
            "schemas": {"Error": ERROR},
            **({"securitySchemes": schemes} if locked else {}),
        },
    }


def _operation(endpoint: Endpoint, locked: bool) -> dict[str, Any]:
    names = re.findall(r"{(\w+)", endpoint.path)
    operation: dict[str, Any] = {
        "operationId": endpoint.handle.__name__ + "_" + endpoint.path.strip("/").split("/")[-1],
        "summary": endpoint.help,
        "parameters": [_parameter(name, "path", True) for name in names]
        + [_parameter(f.name, "query", f.required, f) for f in endpoint.query],
        "responses": {
            "200": {"description": "The answer.", "content": _content(endpoint)},
            **{status: _failure(text) for status, text in STATUSES.items()},
        },
    }
    if endpoint.body:
        body = {"schema": nullable(endpoint.body.schema())}
        if endpoint.example:
            body["example"] = endpoint.example
        operation["requestBody"] = {"required": True, "content": {"application/json": body}}
    if locked and not endpoint.open:
        operation["security"] = [{"key": []}]
        operation["responses"]["401"] = _failure("No key, or a wrong one.")
    return operation


def _content(endpoint: Endpoint) -> dict[str, Any]:
    content: dict[str, Any] = {endpoint.answer: {}}
    if endpoint.body and any(field.name == "stream" for field in endpoint.body.fields):
        content["text/event-stream"] = {}
    return content


def nullable(schema: dict[str, Any]) -> dict[str, Any]:
    """A field that need not be there may also be null."""
    required = schema.get("required", ())
    return schema | {
        "properties": {
            name: one if name in required or not one.keys() - {"description"} else _or_null(one)
            for name, one in schema["properties"].items()
        }
    }


def _or_null(schema: dict[str, Any]) -> dict[str, Any]:
    schema = dict(schema)
    help = schema.pop("description", "")
    return {"anyOf": [schema, {"type": "null"}], "description": help}


def _parameter(name: str, place: str, required: bool, field: Field | None = None) -> dict[str, Any]:
    schema = field.schema if field else {"type": "string"}
    help = field.help if field else ""
    return {"name": name, "in": place, "required": required, "schema": schema, "description": help}


def _failure(description: str) -> dict[str, Any]:
    reference = {"schema": {"$ref": "#/components/schemas/Error"}}
    return {"description": description, "content": {"application/json": reference}}
