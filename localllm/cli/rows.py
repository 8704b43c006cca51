"""Records put on stdout one by one, as they come: lines of text, CSV, or one JSON array."""

import csv
import json
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

Record = Mapping[str, Any]
Write = Callable[[Record], None]


@contextmanager
def json_array() -> Iterator[Write]:
    """One document: an object a line, whole also when something ends it early."""
    narrow, count = "utf" not in sys.stdout.encoding.lower(), 0

    def write(record: Record) -> None:
        nonlocal count
        text = json.dumps(record, ensure_ascii=narrow)
        print(",\n" if count else "[\n", text, sep="", end="", flush=True)
        count += 1

    try:
        yield write
    finally:
        if count:
            print("\n]", flush=True)


@contextmanager
def csv_lines() -> Iterator[Write]:
    """The names of the first record's values, then a line for each record."""
    writer: csv.DictWriter | None = None

    def write(record: Record) -> None:
        nonlocal writer
        if writer is None:
            writer = csv.DictWriter(sys.stdout, list(record), lineterminator="\n")
            writer.writeheader()
        writer.writerow(record)
        sys.stdout.flush()

    yield write


@contextmanager
def text_lines(head: Sequence[str], line: Callable[[Record], str]) -> Iterator[Write]:
    """Lines above the first record, then one for each."""
    above = list(head)

    def write(record: Record) -> None:
        print(*above, line(record), sep="\n", flush=True)
        above.clear()

    yield write
