"""How results are put: answers that come in pieces, tables, JSON, sizes and times."""

import json
import re
import sys
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, TextIO

# Control characters a terminal might obey: all of C0 and C1 but tab and newline.
CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")


def say(text: str) -> None:
    """A remark beside the result: to stderr."""
    print(text, file=sys.stderr, flush=True)


def write_text(text: str, out: TextIO | None = None) -> None:
    """Model text as it comes. A terminal gets no escape sequences, a file gets every character."""
    out = out or sys.stdout
    out.write(CONTROL.sub("", text) if out.isatty() else text)
    out.flush()


def write_json(value: Any) -> None:
    """One JSON document on stdout."""
    narrow = "utf" not in sys.stdout.encoding.lower()
    json.dump(value, sys.stdout, ensure_ascii=narrow, indent=2 if sys.stdout.isatty() else None)
    sys.stdout.write("\n")


def write_table(head: Sequence[str], rows: Iterable[Sequence[Any]]) -> None:
    """Columns of text, numbers to the right."""
    rows = [[_cell(value) for value in row] for row in rows]
    right = [bool(rows) and all(_numeric(row[i]) for row in rows) for i in range(len(head))]
    widths = [max(len(row[i]) for row in [list(head), *rows]) for i in range(len(head))]
    for row in [[text.upper() for text in head], *rows]:
        cells = zip(row, widths, right, strict=True)
        line = "  ".join(t.rjust(w) if r else t.ljust(w) for t, w, r in cells)
        print(line.rstrip())


def write_pairs(pairs: Mapping[str, Any]) -> None:
    """A name and its value on each line."""
    width = max(map(len, pairs))
    for name, value in pairs.items():
        print(f"{name.ljust(width)}  {_cell(value)}")


def _cell(value: Any) -> str:
    if value is None:
        return "-"
    return CONTROL.sub("", f"{value:.2f}" if isinstance(value, float) else str(value))


def _numeric(text: str) -> bool:
    return text[:1].isdigit() or text == "-"


def stats_line(usage: Mapping[str, int], timings: Mapping[str, float]) -> str:
    """Counts and speeds of one answer, in a line."""
    guesses = ""
    if timings.get("draft_n"):
        guesses = f" ({timings['draft_n_accepted']:.0f} of {timings['draft_n']:.0f} guesses right)"
    return (
        f"prompt {usage['prompt_tokens']} tokens ({usage['cached_tokens']} cached) "
        f"{timings['prompt_per_second']:.1f} t/s · "
        f"answer {usage['completion_tokens']} tokens {timings['predicted_per_second']:.1f} t/s"
        f"{guesses} · "
        f"first token after {timings['ttft_ms'] / 1000:.2f} s · "
        f"loaded in {timings['load_ms'] / 1000:.2f} s"
    )
