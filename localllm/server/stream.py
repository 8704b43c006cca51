"""Server-sent events, and noticing that a client has gone."""

import asyncio
import json
from collections.abc import AsyncGenerator, Awaitable
from typing import Any, TypeVar

from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from localllm.errors import LocalLLMError
from localllm.server import failure
from localllm.server.log import LOG

PING = b": ping\n\n"  # a comment: every listed client skips it
DONE = b"data: [DONE]\n\n"
HEADERS = {"Cache-Control": "no-cache", "X-Accel-Buffering": "no"}
T = TypeVar("T")


def event(value: Any) -> bytes:
    """One event: `data: `, the value on one line, an empty line."""
    line = json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    return f"data: {line}\n\n".encode("utf-8", "replace")


def dumps(value: Any) -> bytes:
    """A whole body."""
    return json.dumps(value, ensure_ascii=False).encode("utf-8", "replace")


def json_response(value: Any) -> Response:
    """A whole body as an answer."""
    return Response(dumps(value), media_type="application/json")


class EventStream(Response):
    """Sends what a generator yields, each piece at once; closes it when the client has gone."""

    media_type = "text/event-stream"

    def __init__(self, first: bytes, events: AsyncGenerator[bytes, None]):
        super().__init__(headers=HEADERS)
        del self.headers["content-length"]
        self._first, self._events = first, events

    @classmethod
    async def begin(cls, events: AsyncGenerator[bytes, None]) -> "EventStream":
        """Run up to the first event, so that what fails before it is an ordinary HTTP error."""
        return cls(await anext(events), events)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        writer = asyncio.ensure_future(self._write(send))
        watch = asyncio.ensure_future(_gone(receive))
        try:
            await asyncio.wait((writer, watch), return_when=asyncio.FIRST_COMPLETED)
        finally:
            watch.cancel()
            writer.cancel()
            await asyncio.wait((writer, watch))
            await self._events.aclose()
        if not writer.cancelled():
            writer.result()

    async def _write(self, send: Send) -> None:
        await send(
            {"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers}
        )
        await send({"type": "http.response.body", "body": self._first, "more_body": True})
        try:
            async for piece in self._events:
                await send({"type": "http.response.body", "body": piece, "more_body": True})
        except Exception as error:
            failed = failure.event(error)
            if not isinstance(error, LocalLLMError):
                LOG.exception("A stream broke off.")
            return await send({"type": "http.response.body", "body": failed, "more_body": False})
        await send({"type": "http.response.body", "body": b"", "more_body": False})


async def unless_gone(receive: Receive, work: Awaitable[T]) -> T | None:
    """The work's result; when the client goes first, the work is cancelled and None returned."""
    task, watch = asyncio.ensure_future(work), asyncio.ensure_future(_gone(receive))
    try:
        await asyncio.wait((task, watch), return_when=asyncio.FIRST_COMPLETED)
        return await task if task.done() else None
    finally:
        for one in (task, watch):
            one.cancel()
        await asyncio.wait((task, watch))


async def _gone(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
