"""One benchmark of one model with one thread count, from its file to its rows."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from localllm import models
from localllm.batch import PAGE
from localllm.bench.costs import costs
from localllm.bench.grid import Case
from localllm.bench.measure import Row, measure
from localllm.bench.ours import Ours
from localllm.bench.peer import Peers
from localllm.bench.profile import Operation, furthest, profile, records
from localllm.gguf import GGUF
from localllm.machinecode import keep
from localllm.probe import Memory, product_rate
from quant.formats import supported

ROWS = 512
Progress = Callable[[str, int, int], None]


def bench(
    name: str,
    path: Path,
    cases: Sequence[Case],
    threads: int,
    *,
    repeats: int | None = None,
    peer: bool = False,
    peer_folder: Path | None = None,
    device: str = "cpu",
    kv_type: str = "f16",
    progress: Progress,
) -> Iterator[Row]:
    """Rows of all cases, as they are done. peer_folder: which build of the peer, if not the
    installed one."""
    longest, batch = extent(cases)
    with opened(path, cases, threads, device, kv_type, progress) as (gguf, model):
        peers = None
        if peer or peer_folder:
            peers = Peers(path, longest, batch, threads, kv_type, peer_folder)
        kv_bytes = models.estimate(gguf, context=longest, kv_type=kv_type).page_bytes // PAGE
        needs = costs(gguf, kv_bytes)
        try:
            yield from measure(
                name, cases, threads, Ours(model), peers.sides if peers else [], repeats,
                needs, rates(gguf, threads), Memory(threads).bandwidth, progress,
            )  # fmt: skip
        finally:
            if peers:
                peers.close()


@dataclass(frozen=True)
class Profile:
    """A case's operations, also as plain data, slowest first, and which of them loses most."""

    case: Case
    operations: list[Operation]
    records: list[dict[str, Any]]
    remark: str


def profiles(
    path: Path,
    cases: Sequence[Case],
    threads: int,
    *,
    device: str = "cpu",
    kv_type: str = "f16",
    progress: Progress,
) -> Iterator[Profile]:
    """Of each case."""
    with opened(path, cases, threads, device, kv_type, progress) as (gguf, model):
        memory, rate, ours = Memory(threads), min(rates(gguf, threads).values()), Ours(model)
        for case in cases:
            operations, bandwidth = profile(ours, case), memory.bandwidth()
            yield Profile(
                case,
                operations,
                records(operations, bandwidth, rate),
                furthest(operations, bandwidth, rate),
            )


def extent(cases: Sequence[Case]) -> tuple[int, int]:
    """(tokens a sequence holds at most, sequences at most)."""
    return max(case.length for case in cases), max(case.batch for case in cases)


def rates(gguf: GGUF, threads: int) -> dict[str, float]:
    """Multiply-adds a second of the loop of every block format in the file's matrices."""
    matrices = (tensor for tensor in gguf.tensors.values() if len(tensor.shape) > 1)
    kinds = {tensor.type for tensor in matrices} & set(supported())
    return {kind: product_rate(kind, threads) for kind in sorted(kinds)}


@contextmanager
def opened(
    path: Path, cases: Sequence[Case], threads: int, device: str, kv_type: str, progress: Progress
) -> Iterator[tuple[GGUF, Any]]:
    """The file, and the model with pages for all cases."""
    longest, batch = extent(cases)
    keep()
    with GGUF.open(path) as gguf:
        model = models.load(
            gguf,
            device=device,
            threads=threads,
            context=longest,
            kv_type=kv_type,
            max_rows=max(ROWS, batch),
            pages=batch * -(-longest // PAGE),
            progress=progress,
        )
        try:
            yield gguf, model
        finally:
            model.close()
