"""Measures the catalog's models beside llama.cpp and writes benchmarks/RESULTS.md.

    python benchmarks/cpu.py [MODEL ...] [-- further options of `localllm bench`]

Needs `pip install '.[bench]'` and a machine that does nothing else meanwhile. Every figure is the
median of runs that take turns; memory bandwidth is measured beside each of them.
"""

import json
import subprocess
import sys
from datetime import date
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from localllm.bench.report import markdown

MODELS = ["smollm2", "gemma3:270m", "qwen2.5-coder:0.5b", "qwen2.5-coder:1.5b"]
OPTIONS = ["-p", "512", "-n", "64", "-r", "5", "--peer"]
RESULTS = Path(__file__).with_name("RESULTS.md")


def localllm(*words: str) -> Any:
    """The JSON that a command prints; its errors go to the terminal."""
    command = [sys.executable, "-m", "localllm", *words, "--json"]
    return json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE).stdout)


def peer() -> str:
    try:
        return f"llama-cpp-python {version('llama-cpp-python')}"
    except PackageNotFoundError:
        return "no peer installed"


def report(machine: dict[str, Any], options: list[str], rows: list[dict[str, Any]]) -> str:
    """The page: the machine, what was compared, the table."""
    versions = ", ".join(f"{name} {number}" for name, number in machine["versions"].items())
    products = ", ".join(f"{k} {v / 1e9:.0f}" for k, v in machine["multiply_adds"].items())
    return "\n".join(
        [
            "# Benchmarks",
            "",
            f"Written by `python benchmarks/cpu.py` on {date.today()}.",
            "",
            f"* {machine['cpu']}, {machine['instructions']}, {machine['threads']} threads "
            f"({machine['threads_why']})",
            f"* memory {machine['bandwidth'] / 1e9:.1f} GB/s; products {products} G "
            "multiply-adds/s",
            f"* {versions}; {peer()}, the better of flash attention on and off",
            f"* `localllm bench MODEL {' '.join(options)}`",
            "",
            *markdown(rows),
            "",
            "t/s: the median, and the spread of the runs. % of bandwidth: bytes that generation "
            "must read, against what a plain read got in the same minute (the column GB/s). "
            "% of multiply-adds: against the format's own loop in the cache; attention is left "
            "out.",
            "",
        ]
    )


def main(arguments: list[str]) -> None:
    cut = arguments.index("--") if "--" in arguments else len(arguments)
    names, options = arguments[:cut] or MODELS, arguments[cut + 1 :] or OPTIONS
    machine = localllm("doctor")
    rows = [row for name in names for row in localllm("bench", name, *options)]
    RESULTS.write_text(report(machine, options, rows), encoding="utf-8")
    print(RESULTS.read_text(encoding="utf-8"))


if __name__ == "__main__":
    main(sys.argv[1:])
