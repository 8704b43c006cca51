"""The form that a request wants its answer to have, as masks for the engine."""

from collections.abc import Callable
from typing import Any

from localllm.errors import BadRequest
from localllm.request import Mask
from localllm.server import guide
from localllm.server.dialect import Tools, call_grammar, dialect


def mask_for(
    body: dict[str, Any], llm: Any, tools: Tools, thinking: bool = False
) -> Callable[[], Mask | None]:
    """What makes a fresh mask for each answer; None where the request asks for no form.

    thinking: the prompt has opened the model's reasoning, which is left free.
    Raises BadRequest for two forms at once, and for one that cannot be enforced.
    """
    form = body.get("response_format", {"type": "text"})
    asked = {
        "response_format": form["type"] != "text",
        "json_schema": "json_schema" in body,
        "grammar": bool(body.get("grammar")),
        "tool_choice": bool(tools.must),
    }
    wanted = [name for name, there in asked.items() if there]
    if len(wanted) > 1:
        raise BadRequest(f"{wanted[0]} and {wanted[1]} cannot both say what the answer looks like.")
    if not wanted:
        return lambda: None
    make = guide.masks(llm, _grammar(wanted[0], form, body, tools, llm))
    return (lambda: guide.Later(make(), llm.tokenizer.token_bytes)) if thinking else make


def _grammar(
    wanted: str, form: dict[str, Any], body: dict[str, Any], tools: Tools, llm: Any
) -> str:
    if wanted == "grammar":
        return guide.of_gbnf(body["grammar"])
    if wanted == "json_schema":
        return guide.of_schema(body["json_schema"])
    if wanted == "tool_choice":
        how = dialect(llm, tools)
        assert how is not None, "a call that must be has a dialect"
        return guide.of_lark(call_grammar(tools, how, guide.SPACING))
    if form["type"] == "json_schema":
        return guide.of_schema(form["json_schema"]["schema"])
    return guide.of_schema(form.get("schema", {"type": "object"}))
