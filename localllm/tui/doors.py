"""What the full-screen chat needs of the parts below it, opened only when it is asked for.

The functions import what they use: numba and the model must not hold up the first frame.
"""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from localllm import paths

Progress = Callable[[str, int, int], None]  # stage, done, total


@dataclass(frozen=True)
class Choice:
    """A model that can be chosen: sizes in bytes; fits None where nobody can say."""

    name: str
    size: int
    quant: str
    installed: bool
    fits: bool | None
    verdict: str = ""


@dataclass(frozen=True)
class Doors:
    """The parts below, as functions; a test brings its own.

    open(name, progress) -> an LLM; choices() -> every model known, installed ones first;
    pull(name, progress) fetches one, and whatever progress raises ends it.
    """

    open: Callable[[str, Progress], Any]
    choices: Callable[[], list[Choice]]
    pull: Callable[[str, Progress], None]
    history: Path
    files: Path
    default: str = "smollm2"


def real() -> Doors:
    """The doors to the parts below."""
    return Doors(_open, _choices, _pull, paths.data() / "chats.db", Path.cwd())


def _open(name: str, progress: Progress) -> Any:
    from localllm.llm import LLM  # numba

    return LLM.open(name, progress=progress)


def _choices() -> list[Choice]:
    return []


def _pull(name: str, progress: Progress) -> None:
    pass
