"""Measures the catalog's models beside llama.cpp and writes benchmarks/RESULTS.md.

    python benchmarks/cpu.py [--peer-from FOLDER] [MODEL ...] [-- options of `localllm bench`]

Needs `pip install '.[bench]'` and a machine that does nothing else meanwhile. Every figure is the
median of runs that take turns; memory bandwidth is measured beside each of them. The page has a
section for each instruction set, of which only the one measured is written anew. AVX2 against AVX2,
on a machine that has more:

    CMAKE_ARGS="-DGGML_NATIVE=OFF -DGGML_AVX2=ON -DGGML_FMA=ON -DGGML_F16C=ON -DGGML_AVX512=OFF" \
        pip install --target avx2 --no-binary llama-cpp-python llama-cpp-python
    NUMBA_CPU_NAME=haswell NUMBA_CPU_FEATURES=+avx2,+fma,+f16c,+sse4.2,+ssse3 \
        python benchmarks/cpu.py --peer-from avx2
"""

import argparse
import json
import re
import subprocess
import sys
from datetime import date
from pathlib import Path
from typing import Any

from localllm.bench.peer import library
from localllm.bench.report import markdown

MODELS = ["smollm2", "gemma3:270m", "qwen2.5-coder:0.5b", "qwen2.5-coder:1.5b"]
OPTIONS = ["-p", "512", "-n", "64", "-r", "5"]
RESULTS = Path(__file__).with_name("RESULTS.md")


def localllm(*words: str) -> Any:
    """The JSON that a command prints; its errors go to the terminal."""
    command = [sys.executable, "-m", "localllm", *words, "--json"]
    return json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE).stdout)


def peer(folder: Path | None) -> str:
    """The peer's version, and what it was compiled for."""
    api = library(folder)
    parts = re.findall(r"(\w+) = 1", api.llama_print_system_info().decode())
    return f"llama-cpp-python {api.__version__} ({', '.join(parts)})"


def section(
    machine: dict[str, Any], peer: str, options: list[str], rows: list[dict[str, Any]]
) -> str:
    """One instruction set: the machine, what was compared, the table."""
    versions = ", ".join(f"{name} {number}" for name, number in machine["versions"].items())
    products = ", ".join(f"{k} {v / 1e9:.0f}" for k, v in machine["multiply_adds"].items())
    return "\n".join(
        [
            f"## {machine['instructions']}",
            "",
            f"Measured on {date.today()}.",
            "",
            f"* {machine['cpu']}, {machine['threads']} threads ({machine['threads_why']})",
            f"* memory {machine['bandwidth'] / 1e9:.1f} GB/s; products {products} G "
            "multiply-adds/s",
            f"* {versions}; {peer}, the better of flash attention on and off",
            f"* `localllm bench MODEL {' '.join(options)} --peer`",
            "",
            *markdown(rows),
            "",
        ]
    )


HEAD = """# Benchmarks

Written by `python benchmarks/cpu.py`, a section for each instruction set.

t/s: the median, and the spread of the runs. % of bandwidth: bytes that generation must read,
against what a plain read got in the same minute (the column GB/s). % of multiply-adds: against the
format's own loop in the cache; attention is left out.
"""


def page(old: str, new: str) -> str:
    """The page with one section put in the place of the one of its name, or behind the others."""
    sections = {text.split("\n")[0]: text.strip() for text in old.split("\n## ")[1:]}
    sections[new.split("\n")[0].removeprefix("## ")] = new.removeprefix("## ").strip()
    return HEAD + "".join(f"\n## {text}\n" for text in sections.values())


def main(arguments: list[str]) -> None:
    cut = arguments.index("--") if "--" in arguments else len(arguments)
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("models", nargs="*", default=MODELS)
    parser.add_argument("--peer-from", type=Path, help="folder of another build of llama_cpp")
    words = parser.parse_args(arguments[:cut])
    options = arguments[cut + 1 :] or OPTIONS
    side = ["--peer-from", str(words.peer_from)] if words.peer_from else ["--peer"]
    about, machine = peer(words.peer_from), localllm("doctor")
    rows = [row for name in words.models for row in localllm("bench", name, *options, *side)]
    old = RESULTS.read_text(encoding="utf-8") if RESULTS.exists() else ""
    RESULTS.write_text(page(old, section(machine, about, options, rows)), encoding="utf-8")
    print(RESULTS.read_text(encoding="utf-8"))


if __name__ == "__main__":
    main(sys.argv[1:])
