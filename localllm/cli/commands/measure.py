"""bench and doctor: how fast this machine is, and why."""

from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import typer

from localllm.cli.options import Device, Json, KVType, Model
from localllm.cli.printing import write_json, write_table
from localllm.errors import BadRequest
from localllm.tui.waiting import Waiting

PANEL = "Machine"


def bench(
    model: Model,
    prompts: Annotated[
        str, typer.Option("-p", help="Prompt tokens: 512, 1,2,8 or 16-64+16.")
    ] = "512",
    generate: Annotated[str, typer.Option("-n", help="Tokens to generate, a list too.")] = "64",
    depths: Annotated[str, typer.Option("-d", help="Tokens that come before: 0,4096.")] = "0",
    batches: Annotated[str, typer.Option("-b", help="Sequences at once: 1,8.")] = "1",
    repeats: Annotated[
        int | None,
        typer.Option("-r", min=1, help="Runs of each test (3, or fewer of one that takes long)."),
    ] = None,
    threads: Annotated[str, typer.Option("--threads", "-t", help="Threads: 2, 1,2 or 1-8*2.")] = "",
    peer: Annotated[
        bool, typer.Option("--peer", help="Beside llama-cpp-python, in turns.")
    ] = False,
    peer_from: Annotated[
        Path | None, typer.Option("--peer-from", help="The same, of a build in that folder.")
    ] = None,
    profile: Annotated[
        bool, typer.Option("--profile", help="Where the time goes; by --threads, if a list.")
    ] = False,
    json: Json = False,
    csv: Annotated[bool, typer.Option("--csv", help="Print CSV.")] = False,
    device: Device = "cpu",
    kv_type: KVType = "f16",
) -> None:
    """Tokens a second of prompts (pp) and generation (tg); the median of the runs.

    Every combination of -p, -n, -d, -b and --threads is a row: pp512, tg64x8@d4096 (64 tokens of
    8 sequences each, behind 4096 others). A row appears when it is done; Ctrl-C keeps those that
    are. Without -r a test has three runs, but none begins once they have taken 20 seconds.
    """
    from localllm import catalog, machine
    from localllm.bench import report, session
    from localllm.bench.grid import grid, numbers
    from localllm.cli.rows import csv_lines, json_array, text_lines

    cases = grid(*(numbers(text) for text in (prompts, generate, depths, batches)))
    counts = numbers(threads) if threads else [machine.threads().count]
    if not 1 <= min(counts) <= max(counts) <= machine.MOST_THREADS:
        raise BadRequest(f"--threads takes numbers from 1 to {machine.MOST_THREADS}.")
    columns = report.columns(peer or peer_from is not None)
    lines = text_lines(report.head(columns), partial(report.line, columns))
    output = json_array() if json else csv_lines() if csv else lines
    with output as write, Waiting() as waiting:
        found = catalog.resolve(model, pull=True, progress=partial(waiting, f"pulling {model}"))
        options: dict[str, Any] = {"device": device, "kv_type": kv_type, "progress": waiting}
        records: Iterable[dict[str, Any]]
        if profile:
            done = profiles(found.path, cases, counts, options)
            if not json and not csv:
                show_profiles(found.name, done, waiting)
                return
            records = (
                {"model": found.name, "test": each.case.name, "threads": count, **record}
                for count, each in done
                for record in each.records
            )
        else:
            options |= {"repeats": repeats, "peer": peer, "peer_folder": peer_from}
            records = (
                report.record(row)
                for count in counts
                for row in session.bench(found.name, found.path, cases, count, **options)
            )
        for record in records:
            waiting.clear()
            write(record)


def profiles(
    path: Path, cases: Sequence[Any], counts: Sequence[int], options: dict[str, Any]
) -> Iterator[tuple[int, Any]]:
    """Threads, and where passes spend their time with so many."""
    from localllm.bench import session

    for count in counts:
        for each in session.profiles(path, cases, count, **options):
            yield count, each


def show_profiles(name: str, done: Iterable[tuple[int, Any]], waiting: Waiting) -> None:
    """Print a table for each; and of several counts of threads, how it scales."""
    from localllm.bench.profile import scaling
    from localllm.bench.report import OPERATIONS, markdown

    found: dict[Any, dict[int, Any]] = {}
    for count, each in done:
        waiting.clear()
        print(f"{name} {each.case.name}, {count} threads")
        print(*markdown(each.records, OPERATIONS), f"{each.remark}\n", sep="\n", flush=True)
        found.setdefault(each.case, {})[count] = each.operations
    for case, by_count in found.items():
        if len(by_count) > 1:
            rows = scaling(by_count)
            print(f"{name} {case.name}, as threads grow")
            write_table(rows[0], rows[1:])
            print()


def doctor(json: Json = False) -> None:
    """What this machine offers, which kernels it gets, what is slow and why."""
    from localllm.doctor import examine, lines

    report = examine()
    if json:
        write_json(report)
    else:
        print("\n".join(lines(report)))


COMMANDS = {"bench": bench, "doctor": doctor}
