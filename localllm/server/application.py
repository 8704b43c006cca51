"""The ASGI application: collects the routes, checks bodies, logs, and answers errors as HTTP."""

import asyncio
import importlib
import logging
import pkgutil
import time
from collections.abc import Awaitable, Callable
from typing import Any

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import ASGIApp, Receive, Scope, Send

from localllm.errors import LocalLLMError
from localllm.server import failure, log, openapi, routes
from localllm.server.endpoint import Call, Endpoint
from localllm.server.guard import Guard
from localllm.server.record import Record
from localllm.server.site import Site
from localllm.server.stream import unless_gone

LOG = logging.getLogger("localllm.server")
LARGE = 64 * 1024  # bytes of a body; reading them takes a few ms
Answer = Callable[[Request], Awaitable[Response]]


def endpoints() -> list[Endpoint]:
    """Those of every module in `routes`, the fixed paths before those with a name in them."""
    found: list[Endpoint] = []
    for module in pkgutil.iter_modules(routes.__path__):
        found += importlib.import_module(f"{routes.__name__}.{module.name}").ROUTES
    return sorted(found, key=lambda endpoint: "{" in endpoint.path)


def application(site: Site) -> ASGIApp:
    """Everything that answers, behind the guard."""
    all_of_them = endpoints()
    site.openapi = openapi.document(all_of_them, site.settings.api_key is not None)
    app = Starlette(
        routes=[Route(e.path, _answer(site, e), methods=[e.method]) for e in all_of_them],
        exception_handlers={HTTPException: _http_error},  # type: ignore[dict-item]
    )
    key = site.settings.api_key
    keys = [site.note.token()] + ([key] if key else [])
    open_paths = {endpoint.path for endpoint in all_of_them if endpoint.open}
    return _Logged(Guard(app, site.settings, keys, open_paths), site)


def _answer(site: Site, endpoint: Endpoint) -> Answer:
    """The endpoint as Starlette wants it: its body read and checked, its errors told."""

    async def answer(request: Request) -> Response:
        record: Record = request.scope["localllm.record"]
        request.scope["localllm.route"] = endpoint.path
        try:
            raw = await request.body()
            call = Call(request, await _read(site, endpoint, raw), site, record)
            found = await unless_gone(request.receive, endpoint.handle(call))
            return found or Response(status_code=499)
        except ClientDisconnect:
            return Response(status_code=499)
        except LocalLLMError as error:
            told = failure.response(error)
            if told.status_code == 500:
                LOG.error("Request %s failed: %s", record.id, error, exc_info=error)
            return told
        except Exception as error:
            LOG.exception("Request %s failed.", record.id)
            return failure.response(error)

    return answer


async def _read(site: Site, endpoint: Endpoint, raw: bytes) -> dict[str, Any]:
    """The checked body; a large one is read in a thread, so that no stream stands still for it."""
    if not endpoint.body:
        return {}
    if len(raw) < LARGE:
        return endpoint.body.read(raw)
    return await asyncio.get_running_loop().run_in_executor(site.threads, endpoint.body.read, raw)


async def _http_error(request: Request, error: HTTPException) -> Response:
    """No such path, or not with this method."""
    words = {404: ("There is nothing at this path.", "not_found")}
    words[405] = ("This path does not take this method.", "method_not_allowed")
    message, code = words.get(error.status_code, ("This request cannot be answered.", "refused"))
    answer = failure.response(failure.Refused(error.status_code, message, code))
    if error.headers:
        answer.headers.update(error.headers)
    return answer


class _Logged:
    """Outermost: gives a request its record, and when it is over logs and counts it."""

    def __init__(self, app: ASGIApp, site: Site):
        self.app, self.site = app, site

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return await self.app(scope, receive, send)
        record = Record(scope["method"], scope["path"])
        record.client = (scope.get("client") or ("",))[0]
        scope["localllm.record"] = record
        self.site.records[record.id] = record

        async def noting(message: dict) -> None:  # type: ignore[type-arg]
            if message["type"] == "http.response.start":
                record.status = message["status"]
                message["headers"] = [*message["headers"], (b"x-request-id", record.id.encode())]
            await send(message)

        try:
            await self.app(scope, receive, noting)  # type: ignore[arg-type]
        finally:
            del self.site.records[record.id]
            log.write(record)
            route = scope.get("localllm.route", "none")
            self.site.metrics.done(record, route, time.monotonic() - record.began)
