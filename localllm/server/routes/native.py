"""/completion and /infill, as llama-server has them and editors call them."""

import functools
from typing import Any

from starlette.responses import Response

from localllm.server import ask, fields, fim, native
from localllm.server.endpoint import Body, Call, Endpoint, Field

COMPLETION = Body(
    (
        fields.MODEL,
        Field("prompt", fields.MIXED, "A text, token ids, or a list of both.", required=True),
        *native.LIMITS,
    )
)
EXTRA = {
    "type": "array",
    "items": {
        "type": "object",
        "properties": {"text": fields.TEXT, "filename": fields.TEXT, "time": fields.ANY},
        "required": ["text"],
    },
    "maxItems": 1024,
}
INFILL = Body(
    (
        fields.MODEL,
        Field("input_prefix", fields.TEXT, "The text before the gap.", required=True),
        Field("input_suffix", fields.TEXT, "The text after the gap."),
        Field("input_extra", EXTRA, "Other files: `filename` and `text`."),
        Field("prompt", fields.TEXT, "What is already in the gap: added to the prefix."),
        *native.LIMITS,
    )
)
ROOM = 256  # tokens kept for what fills the gap, where the request sets no limit


def _prompt(body: dict[str, Any], llm: Any) -> list[int]:
    return ask.checked(ask.mixed(body["prompt"], llm), llm, "prompt")


def _gap(body: dict[str, Any], llm: Any) -> list[int]:
    before = body["input_prefix"] + body.get("prompt", "")
    wanted = ask.most_tokens(body, "n_predict", "max_tokens")
    room = min(ROOM if wanted is None else wanted, llm.context // 2) + 4  # the gap's own tokens
    extra = body.get("input_extra", ())
    return fim.prompt(llm, before, body.get("input_suffix", ""), extra, llm.context - room)


async def complete(call: Call) -> Response:
    """Go on from a prompt, answered in llama-server's form."""
    return await native.answer(call, functools.partial(_prompt, call.body))


async def fill(call: Call) -> Response:
    """Fill the gap between two texts. Text far from the gap is left out where it is too much."""
    return await native.answer(call, functools.partial(_gap, call.body))


ROUTES = [
    Endpoint(
        "POST", "/completion", complete, "Go on from a prompt (llama-server).", COMPLETION,
        example={"prompt": "Once upon a time", "n_predict": 32},
    ),
    Endpoint(
        "POST", "/infill", fill, "Fill the gap between two texts (llama-server).", INFILL,
        example={"input_prefix": "def add(a, b):\n    return ", "input_suffix": "\n"},
    ),
]  # fmt: skip
ROUTES.append(ROUTES[0].at("/completions"))
