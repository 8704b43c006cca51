"""Finds wheels in simple indexes and in folders, as pip would: JSON, HTML, http and file."""

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from html.parser import HTMLParser
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urljoin, urlsplit
from urllib.request import url2pathname

from packaging.version import InvalidVersion, Version

from localllm.errors import LocalLLMError, NotFound, Unavailable
from localllm.sources.pip_config import PipConfig
from localllm.sources.web import host_of, split_credentials

MAX_PAGE = 32 << 20
ACCEPT = (
    "application/vnd.pypi.simple.v1+json, application/vnd.pypi.simple.v1+html; q=0.2, "
    "text/html; q=0.01"
)
_WHEEL = re.compile(r"(?P<project>[^-/\\]+)-(?P<version>[^-/\\]+)(-\d[^-/\\]*)?(-[^-/\\]+){3}\.whl")


@dataclass(frozen=True)
class Wheel:
    """A wheel and where it is; `size` in bytes and `sha256` where the index tells them."""

    project: str
    version: Version
    filename: str
    url: str
    sha256: str = ""
    size: int = 0
    yanked: bool = False

    @property
    def path(self) -> Path | None:
        """The file, where the wheel is on this machine."""
        return local_path(self.url)


def normal(project: str) -> str:
    """A project's name as indexes spell it (PEP 503)."""
    return re.sub(r"[-_.]+", "-", project).lower()


def find(project: str, version: str | None, config: PipConfig) -> Wheel:
    """The wheel of that version, or the newest; folders first, then indexes, in pip's order.

    Raises NotFound, or Unavailable where a place that might have it could not be asked.
    """
    best: Wheel | None = None
    failure: LocalLLMError | None = None
    for place in _places(project, config):
        try:
            found = [wheel for wheel in _wheels(place, config) if wheel.project == normal(project)]
        except NotFound:
            continue
        except Unavailable as error:
            failure = error
            continue
        best = _best([*found, *([best] if best else [])], version)
        if best and version:
            return best
    if best:
        return best
    if failure:
        raise failure
    what = f"{project} {version}" if version else project
    places = ", ".join([host_of(url) or url for url in config.indexes] + list(config.find_links))
    raise NotFound(f"No wheel of {what} in {places or 'any index'}.", "pip looks there as well.")


def local_path(url: str) -> Path | None:
    """The path that a file: address or a plain path stands for; None for other addresses."""
    parts = urlsplit(url)
    if parts.scheme == "file":
        host = f"//{parts.netloc}" if parts.netloc not in ("", "localhost") else ""
        return Path(url2pathname(host + parts.path))
    if parts.scheme in ("http", "https"):
        return None
    return Path(url).expanduser()


def _places(project: str, config: PipConfig) -> Iterator[str]:
    yield from config.find_links
    for index in config.indexes:
        yield f"{index.rstrip('/')}/{normal(project)}/"


def _best(wheels: list[Wheel], version: str | None) -> Wheel | None:
    if version:
        wanted = _version(version)
        return next((wheel for wheel in wheels if wheel.version == wanted), None)
    kept = [wheel for wheel in wheels if not wheel.yanked]
    final = [wheel for wheel in kept if not wheel.version.is_prerelease]
    return max(final or kept, key=lambda wheel: wheel.version, default=None)


def _version(text: str) -> Version:
    try:
        return Version(text)
    except InvalidVersion:
        raise NotFound(f"{text!r} is no version of a package.") from None


def _wheels(place: str, config: PipConfig) -> list[Wheel]:
    """Every wheel that a page, or a folder, or a page in a folder links to."""
    path = local_path(place)
    if path is None:
        return _remote(place, config)
    try:
        if path.is_dir() and not (path / "index.html").is_file():
            files = sorted(path.glob("*.whl"))
            return _known(_wheel(file.name, file.resolve().as_uri(), file) for file in files)
        page = path / "index.html" if path.is_dir() else path
        with page.open("rb") as file:
            body = file.read(MAX_PAGE)
    except OSError:
        raise NotFound(f"There is no index at {path}.") from None
    return _links(body, "text/html", page.resolve().as_uri())


def _remote(place: str, config: PipConfig) -> list[Wheel]:
    host = urlsplit(place).hostname or ""
    local = host in ("localhost", "127.0.0.1", "::1")
    if urlsplit(place).scheme == "http" and not local and host not in config.trusted:
        raise Unavailable(f"pip's index {host_of(place)} is not https.", "Make it a trusted-host.")
    body, kind, url = config.web.read(place, MAX_PAGE, ACCEPT)
    wheels = _links(body, kind, url)
    secret = urlsplit(place).netloc.rpartition("@")[0]
    return [_with_credentials(wheel, place, secret) for wheel in wheels] if secret else wheels


def _with_credentials(wheel: Wheel, place: str, secret: str) -> Wheel:
    """An index's user and password also open the files on its own host, and only those."""
    here, there = urlsplit(split_credentials(place)[0]), urlsplit(wheel.url)
    if (here.scheme, here.netloc) != (there.scheme, there.netloc):
        return wheel
    url = there._replace(netloc=f"{secret}@{there.netloc}").geturl()
    return Wheel(**{**wheel.__dict__, "url": url})


def _links(body: bytes, kind: str, base: str) -> list[Wheel]:
    if "json" in kind:
        return _known(_json_link(each, base) for each in _json_files(body))
    page = _Page(base)
    page.feed(body.decode("utf-8", "replace"))
    return _known(_html_link(*link, page.base) for link in page.links)


def _json_files(body: bytes) -> list[Any]:
    try:
        files = json.loads(body)["files"]
    except (ValueError, KeyError, TypeError, RecursionError):
        raise Unavailable("The index does not answer as an index does.") from None
    return [each for each in files if isinstance(each, dict)] if isinstance(files, list) else []


def _json_link(file: dict[str, Any], base: str) -> Wheel | None:
    name, url, hashes = file.get("filename"), file.get("url"), file.get("hashes")
    if not isinstance(name, str) or not isinstance(url, str):
        return None
    digest = hashes.get("sha256") if isinstance(hashes, dict) else None
    size = file.get("size")
    return _wheel(
        name,
        _joined(base, url),
        sha256=digest if isinstance(digest, str) else "",
        size=size if isinstance(size, int) and size > 0 else 0,
        yanked=bool(file.get("yanked")),
    )


def _html_link(href: str, yanked: bool, base: str) -> Wheel | None:
    url, _, fragment = _joined(base, href).partition("#")
    digest = re.search(r"sha256=([0-9a-f]{64})", fragment)
    name = unquote(urlsplit(url).path.rpartition("/")[2])
    return _wheel(name, url, sha256=digest[1] if digest else "", yanked=yanked)


def _joined(base: str, url: str) -> str:
    """The absolute address; a page on the web never points into this machine's files."""
    whole = urljoin(base, url)
    if urlsplit(whole).scheme == "file" and urlsplit(base).scheme != "file":
        return ""
    return whole


def _wheel(
    name: str,
    url: str,
    file: Path | None = None,
    *,
    sha256: str = "",
    size: int = 0,
    yanked: bool = False,
) -> Wheel | None:
    match = _WHEEL.fullmatch(name)
    if match is None or urlsplit(url).scheme not in ("http", "https", "file"):
        return None
    try:
        version = Version(match["version"])
    except InvalidVersion:
        return None
    path = local_path(url)
    if path is not None and path.is_file():
        size = path.stat().st_size
    return Wheel(normal(match["project"]), version, name, url, sha256.lower(), size, yanked)


def _known(wheels: Iterator[Wheel | None] | Any) -> list[Wheel]:
    return [wheel for wheel in wheels if wheel is not None]


class _Page(HTMLParser):
    """The links of an HTML page, and the address they are relative to."""

    def __init__(self, base: str):
        super().__init__()
        self.base, self.links = base, list[tuple[str, bool]]()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        values = dict(attrs)
        href = values.get("href")
        if tag == "base" and href:
            self.base = urljoin(self.base, href)
        elif tag == "a" and href:
            self.links.append((href, "data-yanked" in values))
