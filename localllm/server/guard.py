"""Who may call: Host and Origin allow-lists, the key, JSON bodies only, a size for each."""

import asyncio
import hashlib
import hmac
import socket
from urllib.parse import urlsplit

import anyio
from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from localllm.server import failure
from localllm.server.failure import Refused
from localllm.server.settings import Settings, loopback, numeric

SAFE = {  # on every answer
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self' 'unsafe-inline'; style-src 'self' 'unsafe-inline'; "
        "img-src 'self' data:; connect-src 'self'; base-uri 'none'; form-action 'none'; "
        "frame-ancestors 'none'"
    ),
}
BODIES = ("POST", "PUT", "PATCH", "DELETE")


class Guard:
    """ASGI middleware in front of everything; `open_paths` need no key."""

    def __init__(self, app: ASGIApp, settings: Settings, keys: list[str], open_paths: set[str]):
        self.app, self.settings, self.open_paths = app, settings, open_paths
        self.keys = [_digest(key) for key in keys]
        self.locked = settings.api_key is not None
        self.names = (
            {"localhost", socket.gethostname().lower()}
            if not loopback(settings.host)
            else {"localhost"}
        )
        self.names |= {name.lower() for name in settings.hosts}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return await self.app(scope, receive, send)
        headers = Headers(scope=scope)
        origin = headers.get("origin")
        try:
            self._host(headers)
            foreign = self._origin(headers)
            if foreign and scope["method"] == "OPTIONS":
                return await Response(status_code=204, headers=_preflight(foreign))(
                    scope, receive, send
                )
            self._key(scope, headers)
            self._body(scope, headers)
        except Refused as error:
            allowed = origin if origin in self.settings.origins else None
            return await failure.response(error)(scope, receive, _safely(send, allowed))
        await self.app(scope, self._counted(receive), _safely(send, foreign))

    def _host(self, headers: Headers) -> None:
        """A name that the owner does not know means DNS rebinding (CVE-2024-28224).

        That needs a browser, and each sends a Host: without one it is HTTP/1.0, as probes speak it.
        """
        hosts = headers.getlist("host")
        if not hosts and "origin" not in headers:
            return
        name = _name(hosts[0]) if len(hosts) == 1 else ""
        known = name in self.names or loopback(name)
        if not known and not loopback(self.settings.host):
            known = numeric(name)  # rebinding needs a name, never an address
        if not known:
            hint = "Add the name with --allow-host if it is yours."
            raise Refused(403, "This Host header is not allowed.", "host_not_allowed", hint)

    def _origin(self, headers: Headers) -> str | None:
        """None for no page or our own; the origin itself for another that is allowed."""
        origin = headers.get("origin")
        if origin is None or origin == f"http://{headers.get('host')}":
            return None
        if origin not in self.settings.origins:
            hint = "Add the page with --allow-origin if you trust it."
            raise Refused(403, "This Origin is not allowed.", "origin_not_allowed", hint)
        return origin

    def _key(self, scope: Scope, headers: Headers) -> None:
        if not self.locked or scope["path"] in self.open_paths:
            return
        if not self.holds_key(headers):
            hint = "Send it as Authorization: Bearer KEY, or as X-Api-Key."
            raise Refused(401, "This server wants a key.", "invalid_api_key", hint)

    def holds_key(self, headers: Headers) -> bool:
        """Has the caller shown one of the keys? Takes the same time for every wrong one."""
        scheme, _, token = headers.get("authorization", "").partition(" ")
        shown = token.strip() if scheme.lower() == "bearer" else headers.get("x-api-key", "")
        matches = [hmac.compare_digest(_digest(shown), key) for key in self.keys]
        return any(matches)

    def _body(self, scope: Scope, headers: Headers) -> None:
        """Only JSON: a web page can send every other kind without asking first (CSRF)."""
        if scope["method"] not in BODIES:
            return
        kind = headers.get("content-type", "").partition(";")[0].strip().lower()
        if kind != "application/json":
            raise Refused(415, "Content-Type must be application/json.", "not_json")
        length = headers.get("content-length", "0")
        if not length.isdigit() or len(length) > 18 or int(length) > self.settings.body_bytes:
            raise self._too_large()

    def _too_large(self) -> Refused:
        return Refused(413, f"A body may have {self.settings.body_bytes} bytes.", "body_too_large")

    def _counted(self, receive: Receive) -> Receive:
        """Counts a body that came without a length, and gives it a time to arrive."""
        read, loop = 0, asyncio.get_running_loop()
        deadline, complete = loop.time() + self.settings.body_seconds, False

        async def counted() -> Message:
            nonlocal read, complete
            if complete:
                return await receive()
            try:
                with anyio.fail_after(max(0.0, deadline - loop.time())):
                    message = await receive()
            except TimeoutError:
                raise Refused(408, "The body took too long to arrive.", "body_too_slow") from None
            read += len(message.get("body", b""))
            complete = not message.get("more_body", False)
            if read > self.settings.body_bytes:
                raise self._too_large()
            return message

        return counted


def _safely(send: Send, foreign: str | None) -> Send:
    """Adds the headers that every answer has, and those for a page of another origin."""

    async def safely(message: Message) -> None:
        if message["type"] == "http.response.start":
            headers = MutableHeaders(scope=message)
            headers.update(SAFE)
            if foreign:
                headers.update({"Access-Control-Allow-Origin": foreign, "Vary": "Origin"})
            else:
                headers["Cross-Origin-Resource-Policy"] = "same-origin"
        await send(message)

    return safely


def _preflight(origin: str) -> dict[str, str]:
    return SAFE | {
        "Access-Control-Allow-Origin": origin,
        "Access-Control-Allow-Methods": "GET, POST",
        # * stands for all but Authorization: OpenAI's own client sends a dozen of X-Stainless-*
        "Access-Control-Allow-Headers": "*, Authorization, Content-Type, X-Api-Key",
        "Access-Control-Max-Age": "600",
        "Vary": "Origin",
    }


def _name(host: str) -> str:
    """The name in a Host header, without its port."""
    try:
        return (urlsplit(f"//{host}").hostname or "").lower()
    except ValueError:
        return ""


def _digest(key: str) -> bytes:
    return hashlib.sha256(key.encode("utf-8", "surrogateescape")).digest()
