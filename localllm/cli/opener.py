"""Opens the models of run and chat: in a server of the user's own that has them, else here."""

from collections.abc import Callable
from typing import Any

from localllm import paths
from localllm.cli.options import opening

Progress = Callable[[str, int, int], None]
DEFAULTS = opening(None, None, "auto", "f16", "auto")


def opener(options: dict[str, Any], local: bool) -> Callable[[str, Progress], Any]:
    """open(name, progress) -> an LLM, or a server's model with the face of one.

    options: of LLM.open, as `opening` gives them. No server is asked with local, nor where the
    user wants a model opened in some way of their own.
    """
    shares = not local and options == DEFAULTS

    def open_llm(name: str, progress: Progress) -> Any:
        served = from_server(name) if shares else None
        if served is not None:
            return served
        progress("starting", 0, 1)  # a word while Numba is imported
        from localllm.llm import LLM

        return LLM.open(name, progress=progress, **options)

    return open_llm


def from_server(model: str) -> Any:
    """The model in a server of this user's that has proven itself; None where there is none."""
    if not any((paths.data() / "servers").glob("*.json")):
        return None  # and nothing is imported to find that out
    from localllm.server.remote import find

    return find(model)
