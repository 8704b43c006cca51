"""Doors to nowhere: models that are fakes, for the full-screen chat's tests."""

from pathlib import Path

from fakes_tui import FakeLLM

from localllm.errors import NotFound
from localllm.sampling import Sampling
from localllm.tui.doors import Choice, Doors

CHOICES = [
    Choice("fake", 98_000_000, "Q4_1", True, True, "0.2 GB needed, 3 GB free"),
    Choice("other", 1_117_000_000, "Q4_K_M", True, True),
    Choice("far", 491_000_000, "Q4_K_M", False, True),
    Choice("huge", 40_000_000_000, "Q8_0", False, False, "40 GB needed, 3 GB free"),
]


def fake_doors(folder: Path, *llms: FakeLLM, pull=None) -> Doors:
    """Doors behind which are the given models; files and the history live in `folder`."""
    by_name = {llm.name: llm for llm in llms}
    for llm in llms:
        llm.defaults = llm.defaults or Sampling()

    def open(name, progress):
        progress("loading", 1, 2)
        if name not in by_name:
            raise NotFound(f"There is no model {name}.", "Pull it first.")
        return by_name[name]

    def nothing(name, progress):
        pass

    files = folder / "files"
    files.mkdir(exist_ok=True)
    return Doors(open, lambda: CHOICES, pull or nothing, folder / "chats.db", files, "fake")
