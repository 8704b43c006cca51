"""/tokenize, /detokenize and /apply-template: what a model makes of text, without running it."""

import asyncio
from collections.abc import Callable
from typing import Any

from starlette.responses import Response

from localllm.errors import BadRequest
from localllm.server import ask, fields, messages
from localllm.server.dialect import Tools
from localllm.server.endpoint import Body, Call, Endpoint, Field
from localllm.server.routes import chat
from localllm.server.stream import json_response

TOKENIZE = Body(
    (
        fields.MODEL,
        Field("content", fields.MIXED, "The text to split up, or texts and ids.", required=True),
        Field("add_special", fields.FLAG, "Put BOS in front, where the model has it so."),
        Field("parse_special", fields.FLAG, "May the text become special tokens? Default true."),
        Field("with_pieces", fields.FLAG, "Give each token's text beside its id."),
    )
)
DETOKENIZE = Body(
    (
        fields.MODEL,
        Field("tokens", fields.TOKENS, "The ids to join.", required=True),
        Field("special", fields.FLAG, "Have control tokens a text? Default true."),
    )
)
SHOWN = ("messages", "tools", "tool_choice", "chat_template_kwargs", "reasoning_effort")
TEMPLATE = Body(
    (
        fields.MODEL,
        *(field for field in chat.BODY.fields if field.name in SHOWN),
        Field("add_generation_prompt", fields.FLAG, "Open the answer's turn. Default true."),
        fields.ignored("response_format", fields.OBJECT, "It bounds the answer, not the prompt."),
        fields.ignored("parallel_tool_calls", fields.FLAG, "It bounds the answer, not the prompt."),
    )
)


async def tokenize(call: Call) -> Response:
    """Text to token ids."""
    body = call.body

    def work(llm: Any) -> dict[str, Any]:
        special, bos = body.get("parse_special", True), body.get("add_special", False)
        ids = ask.mixed(body["content"], llm, special, bos)
        ids = ask.checked(ids, llm, "content") if ids else []
        return {"tokens": [_piece(llm, id) for id in ids] if body.get("with_pieces") else ids}

    return await _with_model(call, work)


def _piece(llm: Any, id: int) -> dict[str, Any]:
    """A token that is no whole text is shown as its bytes."""
    data = llm.tokenizer.token_bytes(id, special=True)
    try:
        return {"id": id, "piece": data.decode()}
    except UnicodeDecodeError:
        return {"id": id, "piece": list(data)}


async def detokenize(call: Call) -> Response:
    """Token ids to text."""
    given, special = call.body["tokens"], call.body.get("special", True)

    def work(llm: Any) -> dict[str, Any]:
        ids = ask.prompts(given, llm, "tokens")[0] if given else []
        return {"content": llm.detokenize(ids, special)}

    return await _with_model(call, work)


async def apply_template(call: Call) -> Response:
    """A conversation as the text that the model is given."""
    body = call.body

    def work(llm: Any) -> dict[str, str]:
        if llm.template is None:
            raise BadRequest(f"{llm.name} is a base model: it has no chat template.")
        parts = llm.template.render(
            messages.plain(body["messages"], llm.system),
            Tools.read(body).shown,
            add_generation_prompt=body.get("add_generation_prompt", True),
            **chat.template_options(body),
        )
        return {"prompt": "".join(part.text for part in parts)}

    return await _with_model(call, work)


async def _with_model(call: Call, work: Callable[[Any], dict[str, Any]]) -> Response:
    async with call.site.pool.use(call.body.get("model")) as llm:
        call.record.model = llm.name
        loop = asyncio.get_running_loop()
        found = await loop.run_in_executor(call.site.threads, work, llm)
        return json_response(found)


ROUTES = [
    Endpoint("POST", "/tokenize", tokenize, "Text to token ids.", TOKENIZE,
             example={"content": "Hello!"}),
    Endpoint("POST", "/detokenize", detokenize, "Token ids to text.", DETOKENIZE,
             example={"tokens": [1, 2, 3]}),
    Endpoint("POST", "/apply-template", apply_template, "A conversation as one text.", TEMPLATE,
             example={"messages": [{"role": "user", "content": "Hello!"}]}),
]  # fmt: skip
