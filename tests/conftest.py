"""Fixtures that many tests share: where a real model is, and a home of its own for each test."""

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

FILES = {"gemma3:270m": "gemma3-270m", "qwen2.5-coder:0.5b": "qwen2.5-coder-0.5b"}


def _find(name: str) -> Path | None:
    """A real model by its short name: in LOCALLLM_TEST_MODELS, else among the installed ones."""
    folder = os.environ.get("LOCALLLM_TEST_MODELS")
    if folder:
        file = Path(folder) / f"{FILES.get(name, name).replace(':', '-')}.gguf"
        return file if file.is_file() else None
    from localllm import store

    installed = store.find(name)
    return Path(installed.path) if installed else None


@pytest.fixture(scope="session")
def model_path() -> Callable[[str], Path]:
    """model_path("smollm2") is the path of the real model; the test is skipped where it is not."""

    def path(name: str) -> Path:
        found = _find(name)
        if found is None:
            pytest.skip(f"needs the model {name}: localllm pull {name}, or LOCALLLM_TEST_MODELS")
        return found

    return path


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A LOCALLLM_HOME of the test's own, so that no test sees or changes the user's models."""
    monkeypatch.setenv("LOCALLLM_HOME", str(tmp_path / "home"))
    return tmp_path / "home"


@pytest.fixture(scope="session")
def kernel_folder(pytestconfig: pytest.Config) -> Path:
    """Where kernels that tests compile are kept between sessions, named after their sources."""
    import quant
    from localllm import kernels
    from localllm.backends import cpu
    from quant.jit import cache_in

    packages = [Path(package.__file__ or "").parent for package in (quant, kernels, cpu)]
    return cache_in(pytestconfig.cache.mkdir("kept") / "kernels", packages)


@pytest.fixture
def kept_kernels(kernel_folder: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """For tests that compile kernels: have them cached in a folder that all of them share."""
    from quant import jit

    monkeypatch.setattr(jit, "_folder", [kernel_folder])
    return kernel_folder


@pytest.fixture
def rng() -> Any:
    """Numbers that are the same in each run of a test."""
    import numpy as np

    return np.random.default_rng(3)


@pytest.fixture
def open_llm(kept_kernels: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., Any]]:
    """open_llm(path, ...) is LLM.open, with the tests' own folder of kernels; closed at the end."""
    from localllm import opening
    from localllm.llm import LLM

    monkeypatch.setattr(opening, "keep", lambda: kept_kernels)
    opened = []

    def open_one(path: Path, **options: Any) -> LLM:
        opened.append(LLM.open(str(path), **options))
        return opened[-1]

    yield open_one
    for llm in opened:
        llm.close()


@pytest.fixture
def call(home, monkeypatch):
    """call("run", "m", ..., stdin="") -> the command line's result; LLM.open gives call.llm."""
    from fakes import fake_llm
    from typer.testing import CliRunner

    from localllm.cli import app
    from localllm.llm import LLM

    def invoke(*words, stdin=""):
        monkeypatch.setattr(LLM, "open", lambda name, **options: invoke.llm)
        return CliRunner().invoke(app.build(), list(words), input=stdin)

    invoke.llm = fake_llm("An answer.")
    return invoke


@pytest.fixture
def a_server(home: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """A server of the user's own that has "m" loaded; remote.asked holds what it was asked for."""
    from fakes import fake_llm

    from localllm.server import remote

    (home / "data" / "servers").mkdir(parents=True)
    (home / "data" / "servers" / "1.json").write_text("a note")
    asked = []

    def find(name):
        asked.append(name)
        llm = fake_llm("From the server.")
        llm.server = "http://127.0.0.1:1"
        return llm if name == "m" else None

    monkeypatch.setattr(remote, "find", find)
    return asked
