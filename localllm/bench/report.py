"""Rows of a benchmark as plain data, and as lines of a Markdown table."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from localllm.bench.measure import Row

DIGITS = 2
Record = dict[str, Any]


def record(row: Row) -> Record:
    """One row as plain data; the peer's columns only when there was a peer."""
    values: Record = {
        "model": row.model,
        "test": row.case.name,
        "threads": row.threads,
        "runs": len(row.seconds),
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


@dataclass(frozen=True)
class Column:
    """A title, what stands below it, and how wide most of that is."""

    title: str
    show: Callable[[Record], str]
    width: int
    text: bool = False  # to the left

    @property
    def cells(self) -> int:
        return max(self.width, len(self.title))


def _number(name: str, digits: int = 1) -> Callable[[Record], str]:
    return lambda r: "" if r.get(name) is None else f"{r[name]:.{digits}f}"


def _speed(r: Record) -> str:
    spread = f" ± {r['stddev']:.1f}" if r["runs"] > 1 else ""
    return f"{r['tokens_per_second']:.1f}{spread}"


def _layers(r: Record) -> str:
    """Least, middle and most."""
    return " ".join(f"{r['us_a_layer_' + which]:.0f}" for which in ("least", "median", "most"))


NAMES = [
    Column("model", lambda r: r["model"], 18, text=True),
    Column("test", lambda r: r["test"], 13, text=True),
    Column("threads", lambda r: str(r["threads"]), 7),
    Column("t/s", _speed, 15),
]
PEER = [
    Column("llama.cpp", _number("peer_tokens_per_second"), 9),
    Column("ratio", _number("ratio", 2), 5),
]
SHARES = [
    Column("% of bandwidth", _number("bandwidth_percent", 0), 14),
    Column("GB/s", _number("bandwidth_gb_per_second"), 5),
    Column("% of multiply-adds", _number("peak_percent", 0), 18),
]
OPERATIONS = [
    Column("operation", lambda r: r["operation"], 9, text=True),
    Column("layers", lambda r: str(r["layers"]), 6),
    Column("us", _number("us", 0), 6),
    Column("share", lambda r: f"{r['share_percent']:.1f}%", 6),
    Column("us a layer", _layers, 10),
    Column("GB/s", _number("gb_per_second"), 5),
    Column("G/s", _number("g_multiply_adds_per_second", 0), 4),
    Column("% of bound", _number("bound_percent", 0), 10),
]


def columns(peer: bool) -> list[Column]:
    """Of a benchmark's table."""
    return [*NAMES, *(PEER if peer else ()), *SHARES]


def head(columns: Sequence[Column]) -> list[str]:
    """The two lines above rows that are written one by one, as they come."""
    rules = ["-" * c.cells if c.text else "-" * (c.cells - 1) + ":" for c in columns]
    return [_line([c.title for c in columns], columns), _line(rules, columns)]


def line(columns: Sequence[Column], record: Record) -> str:
    """One such row."""
    return _line([c.show(record) for c in columns], columns)


def markdown(records: Sequence[Record], columns: Sequence[Column] | None = None) -> list[str]:
    """A whole table: each column as wide as it must be, those that are all empty left out."""
    every = columns or [*NAMES, *PEER, *SHARES]
    kept = [c for c in every if any(c.show(r) for r in records)]
    fitted = [replace(c, width=max(len(c.show(r)) for r in records)) for c in kept]
    return [*head(fitted), *(line(fitted, r) for r in records)]


def _line(cells: Sequence[str], columns: Sequence[Column]) -> str:
    put = zip(cells, columns, strict=True)
    return (
        "| " + " | ".join(t.ljust(c.cells) if c.text else t.rjust(c.cells) for t, c in put) + " |"
    )
