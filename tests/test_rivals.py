"""The benchmark beside other runners: a rival in its own process, its settings, the page."""

import argparse
import sys
from contextlib import ExitStack
from pathlib import Path
from types import SimpleNamespace

import pytest

from localllm.bench.grid import Case
from localllm.bench.measure import Row

RIVAL = """
import json, sys
if sys.argv[1].endswith("foreign.gguf"):
    sys.exit("no such thing")
print(json.dumps({"about": "rival 1", "settings": ["on", "off"]}), flush=True)
for line in sys.stdin:
    asked = json.loads(line)
    slow = (asked["setting"] == 0) == (asked["kind"] == "pp")
    print(json.dumps({"seconds": asked["tokens"] * (2 if slow else 1)}), flush=True)
"""


@pytest.fixture
def rivals(monkeypatch):
    monkeypatch.syspath_prepend(str(Path(__file__).parents[1] / "benchmarks"))
    import rivals

    return rivals


@pytest.fixture
def enter(rivals, tmp_path, monkeypatch):
    """enter(path) -> (rivals, notes), where llama.cpp has one setting and ik is a small script."""

    class Peers:
        def __init__(self, *_):
            steady = SimpleNamespace(flash=True, prepare=lambda case: None, run=lambda case: 7.0)
            self.sides, self.close = [steady], lambda: None

    (tmp_path / "rival_ik.py").write_text(RIVAL)
    monkeypatch.setattr(rivals, "Peers", Peers)
    monkeypatch.setattr(rivals, "HERE", tmp_path)
    monkeypatch.setattr(rivals, "about_llama_cpp", lambda folder: "peer 1")
    words = argparse.Namespace(ik=sys.executable, openvino=None, kept=None, peer_from=None)
    with ExitStack() as stack:
        yield lambda path: stack.enter_context(rivals.sides(path, CASES, 2, words))


CASES = [Case("pp", 20), Case("tg", 3)]


def test_each_test_is_run_with_a_rivals_fastest_setting(enter):
    found, about = enter(Path("m.gguf"))
    assert about == {"llama.cpp": "peer 1", "ik_llama.cpp": "rival 1"}
    ik = found["ik_llama.cpp"]
    for case, seconds, setting in zip(CASES, (20, 3), ("off", "on"), strict=True):
        ik.prepare(case)
        assert (ik.run(case), ik.chosen) == (seconds, setting)
    assert found["llama.cpp"].run(CASES[0]) == 7


def test_a_rival_that_cannot_load_a_model_takes_no_part(enter):
    found, about = enter(Path("foreign.gguf"))
    assert list(found) == list(about) == ["llama.cpp"]


def test_the_page_keeps_what_was_not_measured_anew(rivals):
    def line(model, kind, peers):
        chosen = SimpleNamespace(chosen="flash")
        row = Row(model, Case(kind, 64), 2, [1.0, 1.0], peers, [1e9])
        return rivals.cells(row, dict.fromkeys(rivals.RIVALS[: len(peers)], chosen))

    first = rivals.page("", [line("gemma3:270m", "pp", [[2.0]])], ["ours 1", "ik 1"])
    assert "| 64.0 ± 0.0 | 32.0 · **2.00** · flash |  |  | 1.0 |" in first
    both = rivals.page(first, [line("smollm2", "tg", [[4.0], [2.0], [0.5]])], ["ours 1", "ov 1"])
    again = rivals.page(both, [line("gemma3:270m", "pp", [[8.0]])], ["ours 2"])
    rows = [row for row in again.splitlines() if row.startswith("|")]
    assert len(rows) == 4 and rows[2].startswith("| smollm2 | tg64 |")  # in the catalog's order
    assert "**2.00** · flash | 128.0 · **0.50** · flash" in rows[2] and "**8.00**" in rows[3]
    notes = [row for row in again.splitlines() if row.startswith("* ")]
    assert notes == ["* ours 2", "* ik 1", "* ov 1"]
