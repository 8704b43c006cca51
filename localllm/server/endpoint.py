"""An endpoint as data: method, path, body, help. Its route, checks and page come from it."""

import dataclasses
import json
import math
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from localllm.errors import BadRequest
from localllm.server.record import Record
from localllm.server.schema import Schema, check, without_nulls
from localllm.server.site import Site

DEPTH = 64  # lists and objects inside each other


@dataclass(frozen=True)
class Field:
    """One field of a JSON body: the values it takes, what it does, or why it is ignored."""

    name: str
    schema: Schema
    help: str
    required: bool = False
    ignored: bool = False


@dataclass(frozen=True)
class Body:
    """The fields that one endpoint takes. A null is the same as no field."""

    fields: tuple[Field, ...]

    def schema(self) -> Schema:
        """As OpenAPI shows it."""
        properties = {f.name: {**f.schema, "description": f.help} for f in self.fields}
        required = [f.name for f in self.fields if f.required]
        rest: Schema = {"required": required} if required else {}
        return {"type": "object", "properties": properties, "additionalProperties": False} | rest

    def read(self, raw: bytes) -> dict[str, Any]:
        """The checked fields of a request. Raises BadRequest (WrongField where one is to blame)."""
        value, schema = parse(raw), self.schema()
        if isinstance(value, dict):
            value = {name: item for name, item in value.items() if item is not None}
        value = without_nulls(value, schema)
        check(value, schema)
        return value


@dataclass
class Call:
    """One request on its way through a route."""

    request: Request
    body: dict[str, Any]
    site: Site
    record: Record


Handler = Callable[[Call], Awaitable[Response]]


@dataclass(frozen=True)
class Endpoint:
    """One path and what answers there. `open`: needs no key and is safe to show to anyone."""

    method: str
    path: str
    handle: Handler
    help: str
    body: Body | None = None
    query: tuple[Field, ...] = ()
    open: bool = False
    hidden: bool = False  # not in the OpenAPI page
    answer: str = "application/json"
    example: dict[str, Any] = field(default_factory=dict)

    def at(self, path: str) -> "Endpoint":
        """The same under another path, which the OpenAPI page leaves out."""
        return dataclasses.replace(self, path=path, hidden=True)


def parse(raw: bytes) -> Any:
    """JSON from a stranger: bounded depth, no NaN, no halves of surrogate pairs."""
    try:
        value = json.loads(raw.decode("utf-8"), parse_constant=_no_constant, parse_float=_finite)
    except (ValueError, RecursionError) as error:
        reason = str(error) if isinstance(error, json.JSONDecodeError) else "not what JSON allows"
        raise BadRequest(f"The body is not JSON: {reason}.") from None
    _bounded(value, raw)
    return value


def _bounded(value: Any, raw: bytes) -> None:
    level, depth = [value], 0
    while level:
        depth += 1
        if depth > DEPTH:
            raise BadRequest(f"The body nests lists and objects more than {DEPTH} deep.")
        inner = (item for item in level if isinstance(item, dict | list))
        level = [v for item in inner for v in (item.values() if isinstance(item, dict) else item)]
        level = [item for item in level if isinstance(item, dict | list)]
    if b"\\u" in raw:
        try:
            json.dumps(value, ensure_ascii=False).encode()
        except UnicodeEncodeError:
            raise BadRequest("The body holds half of a surrogate pair, which is no text.") from None


def _no_constant(name: str) -> None:
    raise ValueError(f"{name} is no JSON number")


def _finite(digits: str) -> float:
    value = float(digits)
    if not math.isfinite(value):
        raise ValueError(f"{digits} is too large")
    return value
