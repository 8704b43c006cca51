"""Counts the instructions of a product's hot loop in assembly; python loops.py records them.

The loop is the one that LLVM emits for a tile of weights times 8 tokens. What is counted does not
depend on the machine that runs this, only on LLVM.
"""

import json
import re
import sys
from pathlib import Path

RECORD = Path(__file__).parent / "data" / "loops.json"
TARGETS = ("avx512-vnni", "avx2", "neon-dotprod")
LABEL = re.compile(r"^(\.L\w+):")
JUMP = re.compile(r"^\s+(?:j[a-z]+|b(?:\.[a-z]+)?|cbn?z|tbn?z)\s.*?(\.L\w+)\s*$")
DOT = re.compile(r"^\s+(?:\{vex\}\s+)?(vpdpbusd|vpmaddubsw|sdot|smmla|vfn?madd\w+ps|fmla)\b")
STACK = re.compile(r"\((?:%rsp|%rbp)|\[(?:sp|x29)")
VECTOR = re.compile(r"%[xyz]mm\d|\b[qv]\d+\b")


def body(assembly: str, symbol: str) -> list[str]:
    """The lines of a function, without directives."""
    lines = assembly.splitlines()
    begin = lines.index(f"{symbol}:") + 1
    end = next(n for n in range(begin, len(lines)) if lines[n].startswith(".Lfunc_end"))
    return [line for line in lines[begin:end] if LABEL.match(line) or re.match(r"\s+[a-z{]", line)]


def loops(lines: list[str]) -> list[list[str]]:
    """Every stretch of code that a jump back repeats, without its labels."""
    places = {m[1]: n for n, line in enumerate(lines) if (m := LABEL.match(line))}
    spans = []
    for n, line in enumerate(lines):
        jump = JUMP.match(line)
        if jump and places.get(jump[1], n) < n:
            spans.append(lines[places[jump[1]] : n + 1])
    return [[line for line in span if not LABEL.match(line)] for span in spans]


def dots(lines: list[str]) -> int:
    """How many multiply: integer dot products, or multiply-adds of floats."""
    return sum(bool(DOT.match(line)) for line in lines)


def count(assembly: str, symbol: str) -> dict[str, int]:
    """Of the loop whose instructions are products most of all: these, spills, and all."""
    hot = max(loops(body(assembly, symbol)), key=lambda lines: dots(lines) / len(lines))
    integer = [line for line in hot if re.search(r"pdp|maddubs|sdot|smmla", line)]
    spills = [line for line in hot if STACK.search(line) and VECTOR.search(line)]
    return {"dots": len(integer) or dots(hot), "spills": len(spills), "all": len(hot)}


def measure(kept: Path) -> dict[str, dict[str, dict[str, int]]]:
    """Target -> format -> counts; compiles what `kept` lacks."""
    from crosscompile import cross

    from quant.formats import supported

    found: dict[str, dict[str, dict[str, int]]] = {}
    for target in TARGETS:
        folder = cross(target, [f"tile8:{name}" for name in supported()], kept)
        found[target] = {
            name: count((folder / f"{name}.s").read_text(), f"kernel_{name}")
            for name in supported()
        }
    return found


def llvm_version() -> str:
    """What the counts depend on."""
    import llvmlite.binding

    return ".".join(map(str, llvmlite.binding.llvm_version_info))


if __name__ == "__main__":
    kept = Path(sys.argv[1])
    kept.mkdir(parents=True, exist_ok=True)
    record = {"llvm": llvm_version(), "loops": measure(kept)}
    rows = json.dumps(record, indent=1, sort_keys=True)
    flat = re.sub(r"\{\s+(\"all[^}]*?)\s+\}", lambda m: "{" + " ".join(m[1].split()) + "}", rows)
    RECORD.write_text(flat + "\n")
