"""What the full-screen chat needs of the parts below it, opened only when it is asked for.

The functions import what they use: numba and the model must not hold up the first frame.
"""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from localllm import paths
from localllm.errors import LocalLLMError

Progress = Callable[[str, int, int], None]  # stage, done, total
ROUGHLY = 1.2  # memory a model takes, by the size of its file


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


def real(open_llm: Callable[[str, Progress], Any]) -> Doors:
    """The doors to the parts below; how models are opened is the caller's to say."""
    return Doors(open_llm, _choices, _pull, paths.data() / "chats.db", Path.cwd())


def _choices() -> list[Choice]:
    """What is installed, and below it what the catalogue can bring here."""
    from localllm import catalog, machine, store

    free = machine.available_memory()
    here = {model.name: model for model in store.installed()}
    known = {name: entry for name, entry in catalog.entries().items() if entry.alias is None}
    choices = [_installed(model) for model in here.values()]
    choices += [_known(entry, free) for name, entry in known.items() if name not in here]
    return choices


def _installed(model: Any) -> Choice:
    """An installed model, with what opening it would really take."""
    from localllm import opening
    from localllm.gguf import GGUF
    from localllm.sources.choose import quant

    try:
        with GGUF.open(model.path) as gguf:
            fit = opening.plan(gguf, None, "f16")
        fits, verdict = fit.fits, str(fit)
    except LocalLLMError as error:
        fits, verdict = None, error.message
    return Choice(model.name, model.size, quant(model.path.name), True, fits, verdict)


def _known(entry: Any, free: int) -> Choice:
    """A model that can be pulled: only its size is known, so the verdict is a rough one."""
    from localllm.fit import SHARE, size
    from localllm.sources.choose import quant

    fits = entry.size * ROUGHLY <= SHARE * free if entry.size else None
    verdict = f"{entry.description} {size(free)} of memory are free.".strip()
    return Choice(entry.name, entry.size, quant(entry.file), False, fits, verdict)


def _pull(name: str, progress: Progress) -> None:
    from localllm import catalog

    catalog.pull(name, progress=lambda done, total: progress(f"pulling {name}", done, total))
