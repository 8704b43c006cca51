"""Tools as a request names them, and how a model's answer is told apart from its calls."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from localllm.errors import BadRequest
from localllm.server.choice import Piece, Splitter


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


class Plain:
    """Everything is text."""

    def push(self, text: str) -> Iterable[Piece]:
        return (Piece("text", text),) if text else ()

    def flush(self) -> Iterable[Piece]:
        return ()


def splitter(llm: Any, tools: Tools) -> Splitter:
    return Plain()
