"""/, /docs and /openapi.json: the pages for people, each one file that fetches nothing else."""

from importlib.resources import files

from starlette.responses import Response

from localllm.server.endpoint import Call, Endpoint
from localllm.server.stream import json_response


async def chat(call: Call) -> Response:
    """A small chat."""
    return _page("index.html")


async def docs(call: Call) -> Response:
    """The API, readable and to try out."""
    return _page("docs.html")


async def openapi(call: Call) -> Response:
    """The API as OpenAPI 3.1."""
    return json_response(call.site.openapi)


def _page(name: str) -> Response:
    text = (files("localllm.server") / "static" / name).read_bytes()
    return Response(text, media_type="text/html")


ROUTES = [
    Endpoint("GET", "/", chat, "A small chat page.", open=True, hidden=True),
    Endpoint("GET", "/docs", docs, "This API as a page.", open=True, hidden=True),
    Endpoint("GET", "/openapi.json", openapi, "This API for programs.", open=True, hidden=True),
]
