"""/health, /props, /slots and /metrics: how the server and its models are."""

import time
from typing import Any

from prometheus_client import CONTENT_TYPE_LATEST
from starlette.responses import Response

from localllm.errors import Unavailable
from localllm.server import fields
from localllm.server.endpoint import Call, Endpoint, Field
from localllm.server.native import settings
from localllm.server.stream import dumps, json_response


async def health(call: Call) -> Response:
    """200 when requests are answered; 503 while a model that was named at the start loads, when
    it could not be loaded, and on the way out. `status` says which."""
    pool, gate = call.site.pool, call.site.gate
    if gate.closed:
        raise Unavailable("Shutting down")
    states = {name: _state(pool, name) for name in pool.pinned}
    for word, message in (("failed", "Model failed to load"), ("loading", "Loading model")):
        if word in states.values():
            error = {"code": 503, "message": message, "type": "unavailable_error", "param": None}
            said: dict[str, Any] = {"status": word, "models": states, "error": error}
            return Response(dumps(said), 503, {"Retry-After": "2"}, "application/json")
    return json_response({"status": "ok", "models": states})


def _state(pool: Any, name: str) -> str:
    entry = pool.entries.get(name)
    if entry is not None:
        return entry.state
    return "failed" if name in pool.failed else "not-loaded"


async def props(call: Call) -> Response:
    """Of one model (`?model=`), what an editor wants to know: the context above all."""
    autoload = call.request.query_params.get("autoload", "true") != "false"
    pool = call.site.pool
    name = await pool.resolve(call.request.query_params.get("model"))
    if not autoload and (name not in pool.entries or pool.entries[name].state != "ready"):
        raise Unavailable(f"The model '{name}' is not loaded.")
    async with pool.use(name) as llm:
        tokenizer, template = llm.tokenizer, llm.template
        return json_response(
            {
                "default_generation_settings": {"n_ctx": llm.context, "params": settings(llm, {})},
                "total_slots": call.site.settings.running,
                "model_alias": llm.name,
                "chat_template": template.source if template else "",
                "system_message": llm.system or "",
                "chat_template_caps": {"tools": bool(template and template.supports_tools)},
                "bos_token": _token(tokenizer, tokenizer.bos),
                "eos_token": _token(tokenizer, tokenizer.eos),
                "modalities": {"vision": False, "audio": False},
                "build_info": "localllm",
            }
        )


def _token(tokenizer: Any, id: int | None) -> str:
    return next((text for text, known in tokenizer.special_tokens.items() if known == id), "")


async def slots(call: Call) -> Response:
    """The requests that are under way, oldest first; nothing of what they say."""
    now = time.monotonic()
    return json_response(
        [
            {
                "id": index,
                "request": record.id,
                "model": record.model,
                "is_processing": record.running,
                "n_decoded": record.completion_tokens,
                "stream": record.stream,
                "seconds": round(now - record.began, 3),
            }
            for index, record in enumerate(list(call.site.records.values()))
            if record.path in ANSWERING
        ]
    )


ANSWERING = {
    "/v1/chat/completions", "/chat/completions", "/v1/completions", "/completion", "/completions",
    "/infill", "/v1/embeddings", "/embeddings",
}  # fmt: skip


async def metrics(call: Call) -> Response:
    """For Prometheus."""
    return Response(call.site.metrics.text(), media_type=CONTENT_TYPE_LATEST)


MODEL = Field("model", fields.NAME, "Which model; by default the one that answers by default.")
AUTOLOAD = Field("autoload", {"enum": ["true", "false"]}, "false: do not load it for this.")
ROUTES = [
    Endpoint("GET", "/health", health, "Is the server ready?", open=True),
    Endpoint("GET", "/props", props, "About one model.", query=(MODEL, AUTOLOAD)),
    Endpoint("GET", "/slots", slots, "Requests under way."),
    Endpoint("GET", "/metrics", metrics, "Numbers for Prometheus.", answer="text/plain"),
]
ROUTES.append(ROUTES[0].at("/v1/health"))
