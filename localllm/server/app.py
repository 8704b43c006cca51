"""`serve`, as the command line calls it: installed models behind the API, logged to stderr."""

import logging
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from localllm.server.library import Installed
from localllm.server.lifetime import run
from localllm.server.settings import PORT, Settings


def serve(
    models: Sequence[str] = (),
    host: str = "127.0.0.1",
    port: int = PORT,
    api_key: str | None = None,
    insecure: bool = False,
    *,
    options: Mapping[str, Any] | None = None,
    ready: Callable[[str], None] = lambda url: None,
    **settings: Any,
) -> None:
    """Serve until SIGTERM, SIGINT or `localllm stop`; then let running requests end.

    models: loaded at the start and kept; installed ones are loaded when asked for. options: for
    LLM.open (context, threads, ...). settings: further fields of Settings. ready: called with the
    URL once requests are taken. Raises BadRequest for an address that would be open to others
    without a key, Unavailable for one that cannot be had.
    """
    wanted = Settings(host, port, api_key, insecure, **settings)
    library = Installed(models, options or {})
    _log_to_stderr()
    try:
        run(wanted, library, library.named, ready)
    finally:
        library.close()


def _log_to_stderr() -> None:
    """One line a request and what goes wrong; uvicorn only when it warns."""
    handler = logging.StreamHandler(sys.stderr)
    ours, theirs = logging.getLogger("localllm.server"), logging.getLogger("uvicorn.error")
    ours.setLevel(logging.INFO)
    theirs.setLevel(logging.WARNING)
    for logger in (ours, theirs):
        logger.addHandler(handler)
        logger.propagate = False
