"""/control: how `run`, `ps` and `stop` know this server as the user's own, and steer it."""

import hmac
import os
import time
from typing import Any

from starlette.responses import Response

from localllm.server.endpoint import Body, Call, Endpoint, Field
from localllm.server.failure import Refused
from localllm.server.stream import json_response

NONCE = {"type": "string", "minLength": 32, "maxLength": 128}
PROVE = Body((Field("nonce", NONCE, "Something fresh.", required=True),))


async def prove(call: Call) -> Response:
    """The HMAC of a nonce: who can check it knows the secret already."""
    return json_response({"proof": call.site.note.proof(call.body["nonce"])})


async def stop(call: Call) -> Response:
    """Drain and end."""
    _own(call)
    call.site.stop()
    return json_response({"stopping": True})


async def status(call: Call) -> Response:
    """What `ps` shows."""
    _own(call)
    site = call.site
    return json_response(
        {
            "pid": os.getpid(),
            "uptime": round(time.time() - site.started, 1),
            "models": [_model(entry, site.pool.keep_alive) for entry in site.pool.entries.values()],
            "running": site.gate.running,
            "waiting": site.gate.waiting,
        }
    )


def _model(entry: Any, keep_alive: float) -> dict[str, Any]:
    idle = None if entry.users else round(time.monotonic() - entry.used, 1)
    ready = entry.state == "ready"
    return {
        "name": entry.name,
        "state": entry.state,
        "requests": entry.users,
        "idle_seconds": idle,
        "keep_alive": None if entry.pinned else keep_alive,
        "context_length": entry.llm.context if ready else None,
    }


def _own(call: Call) -> None:
    """Only who has read the note may steer, with an API key or without."""
    shown = call.request.headers.get("authorization", "").removeprefix("Bearer ")
    if not hmac.compare_digest(shown.encode("utf-8", "replace"), call.site.note.token().encode()):
        raise Refused(403, "Only the user who started this server may do that.", "not_yours")


ROUTES = [
    Endpoint("POST", "/control/prove", prove, "Prove to know the note's secret.", PROVE, open=True,
             hidden=True, example={"nonce": "0" * 32}),
    Endpoint("POST", "/control/stop", stop, "Drain and end.", Body(()), open=True, hidden=True),
    Endpoint("GET", "/control/status", status, "Models and requests.", open=True, hidden=True),
]  # fmt: skip
