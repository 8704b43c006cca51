"""HTTP for downloads: short connects, careful redirects, credentials for their own host only."""

import base64
import http.client
import ipaddress
import netrc
import os
import ssl
import urllib.error
import urllib.request
from dataclasses import dataclass
from functools import lru_cache
from typing import Any
from urllib.parse import unquote, urlsplit, urlunsplit

import certifi

from localllm import paths
from localllm.errors import NotFound, Unavailable

CONNECT, READ = 5.0, 30.0  # seconds without an answer
REDIRECTS = 5


@dataclass(frozen=True)
class Web:
    """How to reach hosts: a file of certificates, a proxy, hosts that need no certificate."""

    cert: str | None = None
    proxy: str | None = None
    trusted: frozenset[str] = frozenset()

    def open(self, url: str, headers: dict[str, str] | None = None) -> Any:
        """The answer to a GET, to be read and closed.

        Raises NotFound (404, 410) or Unavailable, also when the user forbade the network.
        """
        plain, secret = split_credentials(url)
        if paths.offline():
            raise Unavailable(
                f"Not asking {host_of(plain)}: localllm is set to work offline.",
                "Unset LOCALLLM_OFFLINE and HF_HUB_OFFLINE to download.",
            )
        request = urllib.request.Request(
            plain, headers={"User-Agent": "localllm", **(headers or {})}
        )
        if secret:
            request.add_header("Authorization", secret)
        try:
            return self._opener(plain).open(request)
        except urllib.error.HTTPError as error:
            error.close()
            kind = _KINDS.get(error.code, Unavailable)
            raise kind(
                f"{host_of(plain)} answers {error.code} {error.reason} for {plain}."
            ) from None
        except (OSError, http.client.HTTPException, ValueError) as error:
            raise Unavailable(f"Cannot reach {host_of(plain)}: {_reason(error)}.", HINT) from error

    def read(self, url: str, limit: int, accept: str) -> tuple[bytes, str, str]:
        """(body, content type, final address) of a page of at most `limit` bytes."""
        with self.open(url, {"Accept": accept}) as answer:
            try:
                body = answer.read(limit + 1)
            except (OSError, http.client.HTTPException) as error:
                raise Unavailable(f"{host_of(url)} broke off: {_reason(error)}.", HINT) from error
            if len(body) > limit:
                raise Unavailable(f"The page {answer.url} is larger than {limit} bytes.")
            return body, answer.headers.get_content_type(), answer.url

    def _opener(self, url: str) -> urllib.request.OpenerDirector:
        proxies = {"http": self.proxy, "https": self.proxy} if self.proxy else None
        context = _context(self.cert, (urlsplit(url).hostname or "") in self.trusted)
        opener = urllib.request.OpenerDirector()
        for handler in (
            urllib.request.ProxyHandler(proxies),
            urllib.request.UnknownHandler(),
            urllib.request.HTTPDefaultErrorHandler(),
            urllib.request.HTTPErrorProcessor(),
            _Http(),
            _Https(context=context),
            _Redirects(),
        ):
            opener.add_handler(handler)
        return opener


@lru_cache(maxsize=8)
def _context(cert: str | None, trusted: bool) -> ssl.SSLContext:
    """The system's certificates and certifi's, or only those the user names; slow to read."""
    if cert:
        return ssl.create_default_context(cafile=cert)
    context = ssl.create_default_context()
    context.load_verify_locations(certifi.where())
    if trusted:
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    return context


class NoSuchRange(Unavailable):
    """The server has no such part of the file (416)."""


_KINDS = {404: NotFound, 410: NotFound, 416: NoSuchRange}
HINT = "Check the network; what is already on this machine works without it."


def split_credentials(url: str) -> tuple[str, str]:
    """`url` without user and password, and the Authorization header they or ~/.netrc make."""
    parts = urlsplit(url)
    host = parts.netloc.rpartition("@")[2]
    user, password = parts.username, parts.password
    if user is None:
        user, password = _netrc(parts.hostname or "")
    plain = urlunsplit(parts._replace(netloc=host))
    if user is None:
        return plain, ""
    pair = f"{unquote(user)}:{unquote(password or '')}".encode()
    return plain, "Basic " + base64.b64encode(pair).decode("ascii")


def host_of(url: str) -> str:
    """The host of `url`, without credentials."""
    return urlsplit(url).netloc.rpartition("@")[2]


def origin(url: str) -> tuple[str, str]:
    """What credentials belong to."""
    parts = urlsplit(url)
    return parts.scheme, parts.netloc.rpartition("@")[2].lower()


class _Quick:
    """A connection that gives up soon on connecting, and late on an answer."""

    timeout: Any
    sock: Any

    def connect(self) -> None:
        self.timeout = CONNECT
        super().connect()  # type: ignore[misc]
        self.sock.settimeout(READ)


class _HttpConnection(_Quick, http.client.HTTPConnection):
    pass


class _HttpsConnection(_Quick, http.client.HTTPSConnection):
    pass


class _Http(urllib.request.HTTPHandler):
    def http_open(self, req: urllib.request.Request) -> Any:
        return self.do_open(_HttpConnection, req)


class _Https(urllib.request.HTTPSHandler):
    def __init__(self, context: ssl.SSLContext):
        super().__init__(context=context)
        self.context = context

    def https_open(self, req: urllib.request.Request) -> Any:
        return self.do_open(_HttpsConnection, req, context=self.context)


class _Redirects(urllib.request.HTTPRedirectHandler):
    max_redirections = REDIRECTS

    def redirect_request(
        self, req: Any, fp: Any, code: int, msg: str, headers: Any, newurl: str
    ) -> urllib.request.Request | None:
        old, new = urlsplit(req.full_url), urlsplit(newurl)
        safe = new.scheme == "https" or (new.scheme == "http" and old.scheme == "http")
        inward = _inside(new.hostname or "") and not _inside(old.hostname or "")
        if not safe or inward or "@" in new.netloc:
            raise OSError(f"it redirects to {new.scheme}://{new.hostname}, which is not safe")
        request = super().redirect_request(req, fp, code, msg, headers, newurl)
        if request is not None and origin(req.full_url) != origin(newurl):
            request.remove_header("Authorization")
        return request


def _inside(host: str) -> bool:
    """Is `host` this machine or a private address, where no public page may send us?"""
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return host.lower() == "localhost" or host.lower().endswith(".localhost")
    return not address.is_global


def _netrc(host: str) -> tuple[str | None, str | None]:
    try:
        found = netrc.netrc(os.environ.get("NETRC")).authenticators(host)
    except (OSError, netrc.NetrcParseError, ValueError):
        return None, None
    return (found[0], found[2]) if found and found[0] else (None, None)


def _reason(error: BaseException) -> str:
    inner = getattr(error, "reason", None)
    text = str(inner if isinstance(inner, BaseException | str) else error)
    return text or type(error).__name__
