"""A small web on this machine: pages and files that can be ranged, redirected and broken off."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


@dataclass
class Page:
    body: bytes = b""
    kind: str = "application/octet-stream"
    status: int = 200
    headers: dict[str, str] = field(default_factory=dict)
    breaks: list[int] = field(default_factory=list)  # after how many bytes each next answer ends
    ranges: bool = True
    authorization: str = ""  # what must be sent to see it


@dataclass
class Web:
    address: str
    pages: dict[str, Page] = field(default_factory=dict)
    asked: list[tuple[str, dict[str, str]]] = field(default_factory=list)

    def add(self, path: str, body: bytes | str = b"", **rest) -> str:
        data = body.encode() if isinstance(body, str) else body
        self.pages[path] = Page(data, **rest)
        return self.address + path

    def ranges(self) -> list[str]:
        return [headers.get("range", "") for _, headers in self.asked]


@contextmanager
def serving() -> Iterator[Web]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), _Handler)
    server.daemon_threads = True
    web = server.web = Web(f"http://127.0.0.1:{server.server_port}")  # type: ignore[attr-defined]
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield web
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


class _Handler(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        web: Web = self.server.web  # type: ignore[attr-defined]
        headers = {key.lower(): value for key, value in self.headers.items()}
        web.asked.append((self.path, headers))
        page = web.pages.get(self.path.partition("?")[0], Page(status=404))
        if page.authorization and headers.get("authorization") != page.authorization:
            page = Page(status=401)
        self._answer(page, headers)

    def _answer(self, page: Page, headers: dict[str, str]) -> None:
        start, status = 0, page.status
        wanted = headers.get("range", "")
        same = headers.get("if-range", "") in ("", page.headers.get("ETag", ""))
        if status == 200 and wanted and page.ranges and same:
            start, status = int(wanted.removeprefix("bytes=").rstrip("-")), 206
            if start >= len(page.body):
                start, status, page = 0, 416, Page(status=416)
        body = page.body[start:]
        self.send_response(status)
        self.send_header("Content-Type", page.kind)
        self.send_header("Content-Length", str(len(body)))
        if status == 206:
            end = len(page.body)
            self.send_header("Content-Range", f"bytes {start}-{end - 1}/{end}")
        for name, value in page.headers.items():
            self.send_header(name, value)
        self.end_headers()
        cut = page.breaks.pop(0) if page.breaks else len(body)
        self.wfile.write(body[:cut])
        self.close_connection = True

    def log_message(self, *_: object) -> None:
        pass
