"""Rows of a benchmark as JSON, CSV and Markdown."""

import csv
import io
from collections.abc import Callable, Sequence
from typing import Any

from localllm.bench.measure import Row

DIGITS = 2


def record(row: Row) -> dict[str, Any]:
    """One row as plain data; the peer's columns only when there was a peer."""
    values: dict[str, Any] = {
        "model": row.model,
        "test": row.case.name,
        "threads": row.threads,
        "tokens_per_second": round(row.tokens_per_second, DIGITS),
        "stddev": round(row.stddev, DIGITS),
    }
    if row.peer_tokens_per_second is not None:
        values["peer_tokens_per_second"] = round(row.peer_tokens_per_second, DIGITS)
        values["ratio"] = round(row.tokens_per_second / row.peer_tokens_per_second, DIGITS)
    values["bandwidth_percent"] = _rounded(row.bandwidth_percent)
    values["bandwidth_gb_per_second"] = round(row.bandwidth / 1e9, DIGITS)
    values["peak_percent"] = _rounded(row.peak_percent)
    return values


def _rounded(value: float | None) -> float | None:
    return None if value is None else round(value, 1)


def as_csv(records: Sequence[dict[str, Any]]) -> str:
    out = io.StringIO()
    writer = csv.DictWriter(out, list(records[0]), lineterminator="\n")
    writer.writeheader()
    writer.writerows(records)
    return out.getvalue()


COLUMNS: list[tuple[str, Callable[[dict[str, Any]], str]]] = [
    ("model", lambda r: r["model"]),
    ("test", lambda r: r["test"]),
    ("threads", lambda r: str(r["threads"])),
    ("t/s", lambda r: f"{r['tokens_per_second']:.1f} ± {r['stddev']:.1f}"),
    ("llama.cpp", lambda r: _number(r.get("peer_tokens_per_second"))),
    ("ratio", lambda r: _number(r.get("ratio"), 2)),
    ("% of bandwidth", lambda r: _number(r["bandwidth_percent"], 0)),
    ("GB/s", lambda r: _number(r["bandwidth_gb_per_second"])),
    ("% of multiply-adds", lambda r: _number(r["peak_percent"], 0)),
]


def _number(value: float | None, digits: int = 1) -> str:
    return "" if value is None else f"{value:.{digits}f}"


def markdown(records: Sequence[dict[str, Any]]) -> list[str]:
    """Lines of a table, columns that are all empty left out, text to the left."""
    cells = [[show(record) for _, show in COLUMNS] for record in records]
    kept = [i for i in range(len(COLUMNS)) if any(row[i] for row in cells)]
    head = [COLUMNS[i][0] for i in kept]
    rows = [[row[i] for i in kept] for row in cells]
    widths = [max(len(row[i]) for row in [head, *rows]) for i in range(len(kept))]
    line = ["-" * w if i < 2 else "-" * (w - 1) + ":" for i, w in enumerate(widths)]
    aligned = [
        [
            t.ljust(w) if i < 2 else t.rjust(w)
            for i, (t, w) in enumerate(zip(row, widths, strict=True))
        ]
        for row in [head, line, *rows]
    ]
    return ["| " + " | ".join(row) + " |" for row in aligned]
