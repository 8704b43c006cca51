"""Where a pass spends its time: each kind of operation, what it moves, how far from its bound."""

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from localllm.bench.grid import Case
from localllm.bench.ours import Ours
from localllm.errors import Unsupported

WORTH = 0.02  # share of a pass below which an operation is not worth naming


@dataclass(frozen=True)
class Operation:
    """All operations of one name in one pass. seconds: of the caller's thread, waiting included."""

    name: str
    layers: Mapping[int, float]  # seconds by layer; -1 is outside the layers
    bytes: int  # of weights
    products: int  # multiply-adds
    waited: float  # seconds that threads stood still for each other

    @property
    def seconds(self) -> float:
        return sum(self.layers.values())

    def least(self, bandwidth: float, rate: float) -> float:
        """Seconds that moving the bytes, or the multiply-adds alone, would take."""
        return max(self.bytes / bandwidth, self.products / rate)


def profile(ours: Ours, case: Case) -> list[Operation]:
    """Run a case once; its operations in order of appearance.

    Raises Unsupported on a device that counts no time by operation.
    """
    model: Any = ours.model
    if not hasattr(model, "table"):
        raise Unsupported("Only the CPU's kernels are timed one by one.", "Use --device cpu.")
    ours.prepare(case)
    ours.run(case)
    model.table.clock[:] = 0
    ours.run(case)
    ticks = model.table.clock.copy()  # (operations, threads)
    return _grouped(model.steps, ticks * _tick(model), case)


def _tick(model: Any) -> float:
    """Seconds of a tick of the clock: the last pass is walked once more, and timed from outside."""
    model.table.clock[:] = 0
    since = time.perf_counter()
    model.team.run(model.table, model.batch.fields)
    elapsed = time.perf_counter() - since
    return elapsed / float(model.table.clock[:, 0].sum())


def _grouped(steps: Sequence[Any], seconds: np.ndarray, case: Case) -> list[Operation]:
    """Steps of one name together; a step reads its weights in each of the case's passes."""
    passes = case.tokens if case.kind == "tg" else 1
    names: dict[str, list[int]] = {}
    for i, step in enumerate(steps):
        names.setdefault(step.name, []).append(i)
    found = []
    for name, members in names.items():
        layers: dict[int, float] = {}
        for i in members:
            layers[steps[i].layer] = layers.get(steps[i].layer, 0.0) + float(seconds[i, 0])
        spread = seconds[members].max(axis=1) - seconds[members].min(axis=1)
        rows = case.batch * passes if name == "logits" else case.total
        found.append(
            Operation(
                name,
                layers,
                bytes=passes * sum(steps[i].bytes for i in members),
                products=rows * sum(steps[i].products for i in members),
                waited=float(spread.sum()),
            )
        )
    return found


def records(operations: Sequence[Operation], bandwidth: float, rate: float) -> list[dict[str, Any]]:
    """Each operation as plain data, the slowest first; None where there is nothing to tell.

    Times in microseconds, of one run of the case; bound_us is the least they could be.
    """
    whole = sum(op.seconds for op in operations)
    found = []
    for op in sorted(operations, key=lambda op: -op.seconds):
        low, middle, high = np.percentile(list(op.layers.values()), [0, 50, 100]) * 1e6
        least = op.least(bandwidth, rate)
        values = {
            "us": op.seconds * 1e6,
            "share_percent": 100 * op.seconds / whole,
            "us_a_layer_least": float(low),
            "us_a_layer_median": float(middle),
            "us_a_layer_most": float(high),
            "us_waited": op.waited * 1e6,
            "gb_per_second": op.bytes / op.seconds / 1e9 or None,
            "g_multiply_adds_per_second": op.products / op.seconds / 1e9 or None,
            "bound_us": least * 1e6 or None,
            "bound_percent": 100 * least / op.seconds or None,
        }
        rounded = {name: None if v is None else round(v, 2) for name, v in values.items()}
        found.append({"operation": op.name, "layers": len(op.layers), **rounded})
    return found


def scaling(profiles: Mapping[int, Sequence[Operation]]) -> list[list[str]]:
    """Rows of text, the head first: what operations cost by number of threads, slowest first.

    "times": how many times as fast the last number of threads is as the first.
    """
    counts = list(profiles)
    costs = [{op.name: op.seconds * 1e6 for op in profiles[count]} for count in counts]
    whole = {"all": [sum(cost.values()) for cost in costs]}
    each = {name: [cost[name] for cost in costs] for name in costs[0]}
    order = dict(sorted(each.items(), key=lambda item: -item[1][-1]))
    rows = [["operation", *(f"us, {_threads(count)}" for count in counts), "times"]]
    for name, times in {**order, **whole}.items():
        rows.append([name, *(f"{us:.0f}" for us in times), f"{times[0] / times[-1]:.2f}"])
    return rows


def _threads(count: int) -> str:
    return f"{count} thread" + "s" * (count > 1)


def furthest(operations: Sequence[Operation], bandwidth: float, rate: float) -> str:
    """Which operation loses most against its bound, in a sentence."""
    whole = sum(op.seconds for op in operations)
    known = [op for op in operations if op.least(bandwidth, rate) and op.seconds > WORTH * whole]
    if not known:
        return "No operation with a bound takes long enough to be named."
    worst = max(known, key=lambda op: op.seconds - op.least(bandwidth, rate))
    lost = worst.seconds - worst.least(bandwidth, rate)
    return (
        f"{worst.name} is furthest from its bound: {lost * 1e6:.0f} us of {whole * 1e6:.0f} "
        f"({lost / whole:.0%}) could be gained there."
    )
