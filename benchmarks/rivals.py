"""Measures models beside the fastest C++ runners, in turns, and writes benchmarks/RIVALS.md.

    python benchmarks/rivals.py [MODEL ...] [--ik PYTHON] [--openvino PYTHON --kept FOLDER]
        [--peer-from FOLDER] [-p 512] [-n 64] [-r 5]

Needs `pip install '.[bench]'`, a machine that does nothing else meanwhile, and an environment for
each rival, of which PYTHON is the interpreter:

    python -m venv ov && ov/bin/pip install openvino-genai openvino-tokenizers
    python -m venv ik && ik/bin/pip install ik-llama-cpp-python    # for AVX2; for this machine:
    pip download --no-deps --no-binary :all: ik-llama-cpp-python && tar xf ik_llama*.tar.gz
    cmake -S ik_llama*/vendor/ik_llama.cpp -B build -DCMAKE_BUILD_TYPE=Release -DGGML_NATIVE=ON
    cmake --build build --target llama
    export IK_LLAMA_CPP_LIB_PATH=$PWD/build/src/libllama.so

Before its turns each rival runs every test with each of its settings; only the fastest takes part.
Rows of the page that are not measured stay.

What passes between this program and a rival's (`rival_ik.py`, `rival_openvino.py`; their end is
`rival_loop.py`), a line each:
first {"about", "settings": [names]}; then {"setting": index, "kind": "pp" or "tg", "tokens"} is
asked, and {"seconds"} answered.
"""

import argparse
import json
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from datetime import date
from pathlib import Path
from statistics import median
from typing import Any

from cpu import peer as about_llama_cpp

from localllm import __version__, catalog, machine
from localllm.bench.costs import Costs
from localllm.bench.grid import Case, grid
from localllm.bench.measure import Row, Side, measure
from localllm.bench.ours import Ours
from localllm.bench.peer import Peers
from localllm.bench.session import extent, opened
from localllm.probe import Memory

MODELS = ["smollm2", "gemma3:270m", "qwen2.5-coder:0.5b", "qwen2.5-coder:1.5b"]
HERE = Path(__file__).parent
PAGE = HERE / "RIVALS.md"
RIVALS = ["llama.cpp", "ik_llama.cpp", "OpenVINO"]
HEAD = ["model", "test", "localllm", *RIVALS, "GB/s", "date"]
RULE = ["---"] * len(HEAD)
ABOVE = """# Beside the fastest C++ runners

Written by `python benchmarks/rivals.py`. Tokens/s, medians of runs that take turns. Of a rival: its
tokens/s with its fastest setting · how many times as fast localllm is · that setting. Empty: not
measured, or it cannot load the model. GB/s: what a plain read of memory got meanwhile.
"""
UNMEASURED = Costs({}, {}, weight_bytes=0, kv_bytes=0)
TRIED = 1.5  # seconds of runs after which it is known how fast a setting is


class Fastest:
    """The settings of one rival: each test is run with the one that does it fastest."""

    def __init__(self, settings: dict[str, Side]):
        self.settings, self.chosen = settings, next(iter(settings))

    def prepare(self, case: Case) -> None:
        best = {}
        for name, side in self.settings.items():
            side.prepare(case)
            side.run(case.short)
            taken = [side.run(case)]
            while sum(taken) < TRIED:
                taken.append(side.run(case))
            best[name] = min(taken)
        self.chosen = min(best, key=lambda name: best[name])

    def run(self, case: Case) -> float:
        return self.settings[self.chosen].run(case)


class Remote:
    """A rival in a process of its own."""

    def __init__(self, *command: str):
        self.process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        answer = self._answer()
        self.about, self.names = answer.get("about"), answer.get("settings", [])

    def _answer(self) -> dict[str, Any]:
        """Nothing, when it has ended."""
        assert self.process.stdout
        return json.loads(self.process.stdout.readline() or "{}")

    def seconds(self, **request: Any) -> float:
        assert self.process.stdin
        print(json.dumps(request), file=self.process.stdin, flush=True)
        return float(self._answer()["seconds"])

    def close(self) -> None:
        assert self.process.stdin
        self.process.stdin.close()
        self.process.wait()


@dataclass
class Setting:
    """One of a remote rival's settings, as a side of a benchmark."""

    home: Remote
    index: int

    def prepare(self, case: Case) -> None:
        """There is nothing to do: no test has anything before it."""

    def run(self, case: Case) -> float:
        return self.home.seconds(setting=self.index, kind=case.kind, tokens=case.tokens)


@contextmanager
def sides(
    path: Path, cases: Sequence[Case], threads: int, words: argparse.Namespace
) -> Iterator[tuple[dict[str, Fastest], dict[str, str]]]:
    """The rivals that can run this model by name, and what they are."""
    longest, found, about = extent(cases)[0], {}, {}
    with ExitStack() as stack:
        peers = Peers(path, longest, 1, threads, "f16", words.peer_from)
        stack.callback(peers.close)
        found["llama.cpp"] = Fastest({"flash" if s.flash else "plain": s for s in peers.sides})
        about["llama.cpp"] = about_llama_cpp(words.peer_from)
        commands = {
            "ik_llama.cpp": (words.ik, "rival_ik.py", longest),
            "OpenVINO": (words.openvino, "rival_openvino.py", words.kept),
        }
        for name, (python, script, last) in commands.items():
            if not python:
                continue
            remote = Remote(python, str(HERE / script), str(path), str(threads), str(last))
            stack.callback(remote.close)
            if remote.about:
                about[name] = remote.about
                found[name] = Fastest({s: Setting(remote, i) for i, s in enumerate(remote.names)})
        yield found, about


def cells(row: Row, rivals: dict[str, Fastest]) -> list[str]:
    """A line of the page: a rival's tokens/s, how many times as fast we are, and its setting."""
    told = dict.fromkeys(RIVALS, "")
    for (name, rival), seconds in zip(rivals.items(), row.peers, strict=True):
        rate = row.case.total / median(seconds)
        told[name] = f"{rate:.1f} · **{row.tokens_per_second / rate:.2f}** · {rival.chosen}"
    ours = f"{row.tokens_per_second:.1f} ± {row.stddev:.1f}"
    speed = f"{row.bandwidth / 1e9:.1f}"
    return [row.model, row.case.name, ours, *told.values(), speed, f"{date.today()}"]


def page(old: str, lines: Sequence[Sequence[str]], notes: Sequence[str]) -> str:
    """The page with these lines in the place of those of the same model and test, and these notes
    in the place of those that begin with the same word."""
    told = {line.split()[1]: line for line in old.splitlines() if line.startswith("* ")}
    told |= {note.split()[0]: f"* {note}" for note in notes}
    table = [[c.strip() for c in line.split("|")[1:-1]] for line in old.splitlines()]
    rows = {tuple(r[:2]): r for r in table if len(r) == len(HEAD) and r not in (HEAD, RULE)}
    rows |= {tuple(line[:2]): list(line) for line in lines}
    order = {name: place for place, name in enumerate(MODELS)}
    sorted_rows = sorted(rows.values(), key=lambda r: (order.get(r[0], len(order)), r[1]))
    put = [HEAD, RULE, *sorted_rows]
    return "\n".join([ABOVE, *told.values(), "", *(f"| {' | '.join(row)} |" for row in put), ""])


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("models", nargs="*", default=MODELS)
    parser.add_argument("--ik", help="the Python that has ik-llama-cpp-python")
    parser.add_argument("--openvino", help="the Python that has openvino-genai")
    parser.add_argument("--kept", type=Path, default=Path("openvino"), help="OpenVINO's own files")
    parser.add_argument("--peer-from", type=Path, help="folder of another build of llama_cpp")
    parser.add_argument("-p", type=int, default=512, help="tokens of prompts; 0: none")
    parser.add_argument("-n", type=int, default=64, help="tokens of generation; 0: none")
    parser.add_argument("-r", type=int, default=5, help="runs")
    words = parser.parse_args()
    cases, threads = grid([words.p], [words.n], [0], [1]), machine.threads().count
    memory = Memory(threads)
    for name in words.models:
        path = catalog.resolve(name).path
        with (
            opened(path, cases, threads, "cpu", "f16", lambda *_: None) as (_, model),
            sides(path, cases, threads, words) as (rivals, about),
        ):
            rows = measure(
                name, cases, threads, Ours(model), list(rivals.values()), words.r, UNMEASURED, {},
                memory.bandwidth, lambda *_: None, alike=False,
            )  # fmt: skip
            for row in rows:
                line = cells(row, rivals)
                print(" | ".join(line), flush=True)
                ours = f"localllm {__version__} on {machine.cpu_name()}, {threads} threads"
                notes = [ours, *about.values()]
                old = PAGE.read_text(encoding="utf-8") if PAGE.exists() else ""
                PAGE.write_text(page(old, [line], notes), encoding="utf-8")


if __name__ == "__main__":
    main()
