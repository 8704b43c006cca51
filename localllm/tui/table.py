"""A Markdown table with its columns lined up."""

import re

from localllm.tui.inline import styled
from localllm.tui.terminal import BOLD, DIM, RESET, cells

RULE = re.compile(r"^\|?\s*:?-+:?\s*(\|\s*:?-+:?\s*)*\|?\s*$")
SGR = re.compile("\x1b\\[[0-9;]*m")


def drawn(lines: list[str], width: int) -> str:
    """The table, or its lines as they are when it is wider than the terminal."""
    rows = [_row(line) for line in lines if not RULE.match(line)]
    columns = max(map(len, rows), default=0)
    rows = [row + [""] * (columns - len(row)) for row in rows]
    widths = [max(_width(row[i]) for row in rows) for i in range(columns)]
    if not rows or sum(widths) + 3 * (columns - 1) > width:
        return "".join(line + "\n" for line in lines)
    out = []
    for number, row in enumerate(rows):
        padded = [
            cell + " " * (size - _width(cell)) for cell, size in zip(row, widths, strict=True)
        ]
        if number == 0 and len(rows) < len(lines):
            padded = [BOLD + cell.replace(RESET, RESET + BOLD) + RESET for cell in padded]
        out.append(f"{DIM} │ {RESET}".join(padded).rstrip())
        if number == 0 and len(rows) < len(lines):
            out.append(DIM + "─┼─".join("─" * size for size in widths) + RESET)
    return "\n".join(out) + "\n"


def _row(line: str) -> list[str]:
    """The cells of a line, styled."""
    line = line.strip().removeprefix("|")
    parts = re.split(r"(?<!\\)\|", line.removesuffix("|"))
    return [styled(part.strip().replace("\\|", "|")) for part in parts]


def _width(cell: str) -> int:
    return cells(SGR.sub("", cell))
