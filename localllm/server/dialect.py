"""Tools as a request names them, and how a model's answer is told apart from its calls."""

import json
from dataclasses import dataclass
from typing import Any

from localllm.errors import BadRequest
from localllm.text.parts import DIALECTS, Dialect, Parts, dialect_of, opens_thinking

FORMS = {  # a dialect's name -> what stands before and after a call, the key of its arguments
    "hermes": ("<tool_call>\n", "\n</tool_call>", "arguments"),
    "mistral": ("[TOOL_CALLS][", "]", "arguments"),
    "llama3": ("", "", "parameters"),
}


NOTHING = {"type": "object", "properties": {}, "additionalProperties": False}  # none, at OpenAI


@dataclass(frozen=True)
class Tools:
    """shown: what the template is given, None for nothing. must: the calls of which one has to be
    made; empty leaves it to the model. parallel: may there be several."""

    shown: list[dict[str, Any]] | None = None
    must: tuple[dict[str, Any], ...] = ()
    parallel: bool = True

    @classmethod
    def read(cls, body: dict[str, Any]) -> "Tools":
        """Raises BadRequest for a choice that no tool fits."""
        tools, choice = body.get("tools") or [], body.get("tool_choice", "auto")
        parallel = body.get("parallel_tool_calls", True)
        if choice == "none" or (choice == "auto" and not tools):
            return cls(parallel=parallel)
        if not tools:
            raise BadRequest("tool_choice asks for a tool, and there are none.")
        must: tuple[dict[str, Any], ...] = ()
        if choice == "required":
            must = tuple(tool["function"] for tool in tools)
        elif isinstance(choice, dict):
            name = choice["function"]["name"]
            must = tuple(t["function"] for t in tools if t["function"]["name"] == name)
            if not must:
                raise BadRequest(f"tool_choice names '{name[:100]}', which is not among the tools.")
        return cls(tools, must, parallel)


def dialect(llm: Any, tools: Tools) -> Dialect | None:
    """How the model marks its calls. Of one that knows none, a call that must be is Hermes'."""
    if not tools.shown:
        return None
    known = dialect_of(llm.template.source) if llm.template else None
    return known or (DIALECTS[0] if tools.must else None)


def splitter(llm: Any, tools: Tools, prompt: str) -> Parts:
    """What tells an answer's text, thinking and calls apart. prompt: its last letters."""
    names = [tool["function"]["name"] for tool in tools.shown or ()]
    return Parts(dialect(llm, tools), names, opens_thinking(prompt))


def call_grammar(tools: Tools, dialect: Dialect, options: dict[str, Any]) -> str:
    """Lark for one call of one of the functions that must be called, as the dialect writes it.

    options: how JSON is spaced, for llguidance.
    """
    opening, closing, key = FORMS[dialect.name]
    calls = " | ".join(f"call_{i}" for i in range(len(tools.must)))
    head = f"{json.dumps(opening)} " if opening else ""
    tail = f" {json.dumps(closing)}" if closing else ""
    lines = [f"start: {head}({calls}){tail}"]
    for i, function in enumerate(tools.must):
        arguments = function.get("parameters") or NOTHING
        schema = {
            "type": "object",
            "properties": {"name": {"const": function["name"]}, key: arguments},
            "required": ["name", key],
            "additionalProperties": False,
            "x-guidance": options,
        }
        lines.append(f"call_{i}: %json {json.dumps(schema)}")
    return "\n".join(lines)
