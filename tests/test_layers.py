"""The house's own rules: imports point down, files stay short, and --help stays light."""

import ast
import graphlib
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import localllm
import quant

ROOTS = [Path(quant.__file__).parent, Path(localllm.__file__).parent]
LONGEST = 400  # lines of a file, at the very most: aim at a hundred


def modules() -> dict[str, Path]:
    """Every module of ours by its dotted name."""
    return {
        ".".join(path.relative_to(root.parent).with_suffix("").parts).removesuffix(
            ".__init__"
        ): path
        for root in ROOTS
        for path in root.rglob("*.py")
    }


MODULES = modules()


def imported(name: str) -> Iterator[str]:
    """Our modules that a module imports, at the top or inside a function.

    `from package import module` is the module; importing a module is not importing the packages
    it lies in, whose __init__ files are checked for themselves.
    """
    for node in ast.walk(ast.parse(MODULES[name].read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names if alias.name in MODULES)
        elif isinstance(node, ast.ImportFrom) and (home := absolute(name, node)) in MODULES:
            parts = [f"{home}.{alias.name}" for alias in node.names]
            whole = any(part not in MODULES for part in parts)
            yield from [part for part in parts if part in MODULES] + [home] * whole


def absolute(name: str, node: ast.ImportFrom) -> str:
    """The dotted name that `from ..x import` means inside the module `name`."""
    if not node.level:
        return node.module or ""
    up = node.level - (MODULES[name].name == "__init__.py")
    package = name.rsplit(".", up)[0] if up else name
    return f"{package}.{node.module}" if node.module else package


GRAPH = {name: set(imported(name)) - {name} for name in MODULES}


def reached(prefix: str) -> set[str]:
    """Everything that the modules under a prefix import, and what those import."""
    todo = [n for n in MODULES if n == prefix or n.startswith(prefix + ".")]
    seen: set[str] = set()
    while todo:
        for name in GRAPH[todo.pop()] - seen:
            seen.add(name)
            todo.append(name)
    return seen


def test_imports_form_a_dag():
    graphlib.TopologicalSorter(GRAPH).prepare()  # CycleError names the loop


@pytest.mark.parametrize(
    ("low", "high"),
    [
        ("quant", "localllm"),
        ("localllm.errors", "localllm"),
        ("localllm.gguf", "localllm.models"),
        ("localllm.text", "localllm.models"),
        ("localllm.text", "localllm.engine"),
        ("localllm.cache", "localllm.engine"),
        ("localllm.kernels", "localllm.models"),
        ("localllm.backends", "localllm.engine"),
        ("localllm.models", "localllm.engine"),
        ("localllm.models", "localllm.text"),
        ("localllm.engine", "localllm.models"),
        ("localllm.engine", "localllm.text"),
        ("localllm.engine", "localllm.kernels"),
        ("localllm.engine", "quant"),
        ("localllm.engine", "localllm.llm"),
        ("localllm.llm", "localllm.cli"),
        ("localllm.llm", "localllm.server"),
        ("localllm.llm", "localllm.tui"),
        ("localllm.server", "localllm.tui"),
        ("localllm.server", "localllm.cli"),
        ("localllm.tui", "localllm.server"),
        ("localllm.tui", "localllm.cli"),
    ],
)
def test_low_never_imports_high(low, high):
    wrong = [n for n in reached(low) if n == high or n.startswith(high + ".")]
    assert [n for n in wrong if n != low and not n.startswith(low + ".")] == []


@pytest.mark.parametrize("name", sorted(MODULES))
def test_a_file_is_one_sentence_and_fits_on_a_few_screens(name):
    source = MODULES[name].read_text(encoding="utf-8")
    assert ast.get_docstring(ast.parse(source)), "the first line says the file's one job"
    assert len(source.splitlines()) <= LONGEST


def run(code: str) -> str:
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    return done.stdout


HELP = """
import sys
from localllm.__main__ import main
sys.argv = ["localllm", *{words!r}]
try:
    main()
except SystemExit:
    pass
print("LOADED", *sorted({{name.partition(".")[0] for name in sys.modules}}))
"""


@pytest.mark.parametrize("words", [["--help"], ["run", "--help"], ["--version"]])
def test_help_loads_neither_numba_nor_textual(words):
    loaded = run(HELP.format(words=words)).rpartition("LOADED")[2].split()
    assert not {"numba", "llvmlite", "textual", "torch", "tokenizers", "numpy"} & set(loaded)


def test_importing_localllm_costs_nothing():
    loaded = run("import sys, localllm; print(*sys.modules)").split()
    assert not {"numba", "numpy", "typer", "localllm.llm"} & set(loaded)


def test_public_names_are_complete():
    assert set(localllm.__all__) == set(localllm.HOMES)
    with pytest.raises(AttributeError):
        localllm.nothing  # noqa: B018
