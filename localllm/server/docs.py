"""docs/api.md, made from the endpoints' declarations; a test holds the two together."""

from pathlib import Path

from localllm.server.application import endpoints
from localllm.server.endpoint import Endpoint, Field
from localllm.server.schema import Schema

HEAD = """# The HTTP API

`localllm serve` answers on http://127.0.0.1:11435. The same list, to try out, is at `/docs`;
programs find it at `/openapi.json`. This file is written by `python -m localllm.server.docs`.

* A field that is not listed is refused with a 400 that names it. A `null` is the same as no field.
* Fields under *Ignored* are accepted because clients send them; they change nothing in the answer.
* Errors are `{"error": {"message", "type", "code", "param", "status"}}`. 429 and 503 have
  `Retry-After`. That of a prompt too long also has `n_prompt_tokens` and `n_ctx`.
* Streams are server-sent events; in a stream that has begun an error is one event. Lines that begin
  with a colon are comments, sent when nothing else has been for 15 seconds.
* A client that goes away cancels its request.
* With `--api-key` every path but `/`, `/docs`, `/openapi.json` and `/health` wants
  `Authorization: Bearer KEY` or `X-Api-Key: KEY`.
* The Host header must name this machine (more names: `--allow-host`), an Origin must be the
  server's own (more: `--allow-origin`), and a POST must be `application/json`.
"""


def page() -> str:
    """All of docs/api.md."""
    shown = [endpoint for endpoint in endpoints() if not endpoint.hidden]
    hidden = [f"`{e.path}`" for e in endpoints() if e.hidden and not e.path.startswith("/control")]
    also = f"\nAlso there, under their other names or for people: {', '.join(hidden)}.\n"
    return HEAD + also + "".join(map(_section, shown))


def _section(endpoint: Endpoint) -> str:
    lines = [f"\n## {endpoint.method} {endpoint.path.replace(':path', '')}\n", endpoint.help]
    fields = (endpoint.body.fields if endpoint.body else ()) + endpoint.query
    honoured = [field for field in fields if not field.ignored]
    if honoured:
        lines += ["", "| field | values | |", "| --- | --- | --- |", *map(_row, honoured)]
    ignored = [field for field in fields if field.ignored]
    if ignored:
        lines += ["", "Ignored:", ""]
        lines += [f"* `{field.name}`: {field.help}" for field in ignored]
    return "\n".join(lines) + "\n"


def _row(field: Field) -> str:
    name = f"`{field.name}`" + (" (required)" if field.required else "")
    cells = (name, values(field.schema), field.help)
    return "| " + " | ".join(cell.replace("|", "\\|").replace("\n", " ") for cell in cells) + " |"


def values(schema: Schema) -> str:
    """What a field takes, in words."""
    if "anyOf" in schema:
        return " or ".join(dict.fromkeys(values(choice) for choice in schema["anyOf"]))
    if "enum" in schema:
        return ", ".join(f"`{value}`" for value in schema["enum"])
    kinds = schema.get("type", "anything")
    text = " or ".join([kinds] if isinstance(kinds, str) else kinds)
    if "items" in schema:
        return f"{text} of {values(schema['items'])}"
    return text + _bounds(schema)


def _bounds(schema: Schema) -> str:
    low, high = schema.get("minimum"), schema.get("maximum")
    if low is None:
        return ""
    if high is None or high >= 2**31 - 1:
        return f", {_plain(low)} or more"
    return f", {_plain(low)} to {_plain(high)}"


def _plain(number: float) -> str:
    return f"{number:g}"


if __name__ == "__main__":
    folder = Path(__file__).parents[2] / "docs"
    folder.mkdir(exist_ok=True)
    (folder / "api.md").write_text(page(), encoding="utf-8")
