"""/v1/models: what a request may name."""

from typing import Any

from starlette.responses import Response

from localllm.server.endpoint import Call, Endpoint
from localllm.server.pool import Entry, Known
from localllm.server.stream import json_response


def shape(known: Known, entry: Entry | None) -> dict[str, Any]:
    """OpenAI's model object; `meta` as llama-server has it, once the model is loaded."""
    shown: dict[str, Any] = {
        "id": known.name,
        "object": "model",
        "created": known.created,
        "owned_by": "localllm",
        "state": "not-loaded" if entry is None else entry.state,
    }
    if entry is not None and entry.state == "ready":
        llm = entry.llm
        shown["meta"] = {
            "n_vocab": llm.model.vocab,
            "n_ctx": llm.context,
            "n_ctx_train": llm.metadata.get(f"{llm.model.architecture}.context_length"),
            "n_params": llm.model.parameters,
            "size": known.size,
        }
    return shown


async def listing(call: Call) -> Response:
    """Installed models, and those named when the server started."""
    pool = call.site.pool
    known = await pool.known()
    data = [shape(known[name], pool.entries.get(name)) for name in sorted(known)]
    return json_response({"object": "list", "data": data})


async def one(call: Call) -> Response:
    """One of them."""
    pool = call.site.pool
    known = await pool.find(call.request.path_params["id"])
    shown = shape(known, pool.entries.get(known.name))
    return json_response(shown)


ROUTES = [
    Endpoint("GET", "/v1/models", listing, "What a request may name as its model."),
    Endpoint("GET", "/v1/models/{id:path}", one, "One model."),
]
ROUTES += [ROUTES[0].at("/models"), ROUTES[0].at("/v1/models/")]
