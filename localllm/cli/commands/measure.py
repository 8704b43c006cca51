"""bench and doctor: how fast this machine is, and why."""

from collections.abc import Sequence
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
    repeats: Annotated[int, typer.Option("-r", min=1, help="Runs of each test.")] = 3,
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
    8 sequences each, behind 4096 others).
    """
    from localllm import catalog, machine
    from localllm.bench import report, session
    from localllm.bench.grid import grid, numbers

    cases = grid(*(numbers(text) for text in (prompts, generate, depths, batches)))
    counts = numbers(threads) if threads else [machine.threads().count]
    if not 1 <= min(counts) <= max(counts) <= machine.MOST_THREADS:
        raise BadRequest(f"--threads takes numbers from 1 to {machine.MOST_THREADS}.")
    lines: list[dict[str, Any]] = []
    with Waiting() as waiting:
        found = catalog.resolve(model, pull=True, progress=partial(waiting, f"pulling {model}"))
        options: dict[str, Any] = {"device": device, "kv_type": kv_type, "progress": waiting}
        if profile:
            profiles(found.name, found.path, cases, counts, options)
            return
        for count in counts:
            done = session.bench(
                found.name, found.path, cases, count,
                repeats=repeats, peer=peer, peer_folder=peer_from, **options,
            )  # fmt: skip
            lines.extend(report.record(row) for row in done)
    if json:
        write_json(lines)
    elif csv:
        print(report.as_csv(lines), end="")
    else:
        print("\n".join(report.markdown(lines)))


def profiles(
    name: str, path: Path, cases: Sequence[Any], counts: Sequence[int], options: dict[str, Any]
) -> None:
    """Print where passes spend their time; of several counts of threads, how it scales."""
    from localllm.bench import session
    from localllm.bench.profile import scaling

    found: dict[Any, dict[int, Any]] = {case: {} for case in cases}
    for count in counts:
        for each in session.profiles(path, cases, count, **options):
            options["progress"].clear()
            print(f"{name} {each.case.name}, {count} threads")
            write_table(each.rows[0], each.rows[1:])
            print(f"{each.remark}\n")
            found[each.case][count] = each.operations
    for case, by_count in found.items() if len(counts) > 1 else ():
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
