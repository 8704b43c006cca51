"""/v1/embeddings: texts as vectors, made by any model that can answer."""

import base64
from typing import Any

import numpy as np
from starlette.responses import Response

from localllm.server import ask, fields
from localllm.server.endpoint import Body, Call, Endpoint, Field
from localllm.server.pump import Reply
from localllm.server.running import running
from localllm.server.schema import WrongField
from localllm.server.stream import json_response

INPUTS = 2048  # of one request, as at OpenAI
INPUT = {
    "anyOf": [
        fields.TEXT,
        fields.TOKENS | {"items": {"anyOf": [fields.TEXT, fields.TOKEN, fields.TOKENS]}},
    ]
}
BODY = Body(
    (
        fields.MODEL,
        Field("input", INPUT, "A text, texts, token ids, or lists of token ids. In a text nothing "
              "becomes a special token. One that is longer than the context is refused, not cut.",
              required=True),
        Field("encoding_format", {"enum": ["float", "base64"]},
              "Numbers, or the bytes of little-endian 32-bit floats as base64."),
        Field("dimensions", fields.number(1, fields.MANY, "integer"),
              "Keep only so many numbers of each vector and scale it to length 1 again. Good only "
              "for models that were trained for it; more than the model's width is refused."),
        Field("pooling", {"enum": ["mean", "last"]},
              "What of the last hidden rows makes the vector: the mean over all tokens, or the "
              "last token's. By default what the model's file says, else `mean`."),
        Field("cache_prompt", fields.FLAG, "False: neither use nor fill the prefix cache. A mean "
              "never uses it, for it needs every token's row."),
        *fields.IGNORED,
    )
)  # fmt: skip


async def embed(call: Call) -> Response:
    """Turn texts into vectors of length 1."""
    body = call.body

    def begin(llm: Any) -> list[Reply]:
        if "dimensions" in body and body["dimensions"] > llm.model.width:
            raise WrongField("dimensions", f"The model's vectors have {llm.model.width} numbers.")
        return [
            llm.embedding(
                _inputs(body["input"], llm),
                pooling=body.get("pooling", ""),
                dimensions=int(body["dimensions"]) if "dimensions" in body else None,
                client=ask.client(call),
                cache=body.get("cache_prompt", True),
            )
        ]

    async with running(call, begin) as run:
        async for _ in run.batches():
            pass
        vectors = run.replies[0].vectors  # type: ignore[attr-defined]
        shown = _base64 if body.get("encoding_format") == "base64" else np.ndarray.tolist
        data = [
            {"object": "embedding", "index": index, "embedding": shown(vector)}
            for index, vector in enumerate(vectors)
        ]
        tokens = call.record.prompt_tokens
        usage = {"prompt_tokens": tokens, "total_tokens": tokens}
        answer = {"object": "list", "data": data, "model": call.record.model, "usage": usage}
        return json_response(answer)


def _inputs(given: Any, llm: Any) -> list[Any]:
    """Each text, or list of checked ids. Raises WrongField for an empty one, or too many."""
    if isinstance(given, str) or not all(isinstance(one, str | list) for one in given):
        given = [given]
    if not given or not all(given):
        raise WrongField("input", "Must not be empty.")
    if len(given) > INPUTS:
        raise WrongField("input", f"Must have at most {INPUTS} texts, not {len(given)}.")
    return [one if isinstance(one, str) else ask.checked(one, llm, "input") for one in given]


def _base64(vector: np.ndarray) -> str:
    return base64.b64encode(vector.astype("<f4").tobytes()).decode()


ROUTES = [
    Endpoint(
        "POST", "/v1/embeddings", embed, "Turn texts into vectors.", BODY,
        example={"input": "The quick brown fox"},
    ),
]  # fmt: skip
ROUTES.append(ROUTES[0].at("/embeddings"))
