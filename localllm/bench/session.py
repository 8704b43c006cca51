"""One benchmark of one model with one thread count, from its file to its rows."""

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from localllm import models
from localllm.batch import PAGE
from localllm.bench.costs import costs
from localllm.bench.grid import Case
from localllm.bench.measure import Row, measure
from localllm.bench.ours import Ours
from localllm.bench.peer import Peers
from localllm.gguf import GGUF
from localllm.machinecode import keep
from localllm.probe import Memory, product_rate
from quant.formats import supported

ROWS = 512


def bench(
    name: str,
    path: Path,
    cases: Sequence[Case],
    threads: int,
    *,
    repeats: int = 3,
    peer: bool = False,
    device: str = "cpu",
    kv_type: str = "f16",
    progress: Callable[[str, int, int], None],
) -> Iterator[Row]:
    """Rows of all cases, as they are done."""
    longest = max(case.length for case in cases)
    batch = max(case.batch for case in cases)
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
        peers = Peers(path, longest, batch, threads, kv_type) if peer else None
        kv_bytes = models.estimate(gguf, context=longest, kv_type=kv_type).page_bytes // PAGE
        needs = costs(gguf, kv_bytes)
        kinds = {*needs.layers, *needs.head} & set(supported())
        rates = {kind: product_rate(kind, threads) for kind in sorted(kinds)}
        try:
            yield from measure(
                name, cases, threads, Ours(model), peers.sides if peers else [], repeats,
                needs, rates, Memory(threads).bandwidth, progress,
            )  # fmt: skip
        finally:
            model.close()
            if peers:
                peers.close()
