"""Runs a grid of cases, ours and the peer's in turn, and keeps what each took."""

import math
import statistics
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from localllm.bench.costs import Costs
from localllm.bench.grid import Case

PAUSE = 0.3  # seconds between two sides: threads of the one before stop spinning
REPEATS = 3
LONG = 20.0  # seconds of a case's runs after which there are no more of them, unless asked for
SLOW, WORSE = 1.0, 1.5  # a warm-up of so many seconds, and times the best peer's: out of the race


class Side(Protocol):
    """Somebody who can run a case."""

    def prepare(self, case: Case) -> None: ...
    def run(self, case: Case) -> float: ...


@dataclass
class Row:
    """One case's result. tokens_per_second is the median of the runs, stddev their spread."""

    model: str
    case: Case
    threads: int
    seconds: list[float] = field(default_factory=list)
    peers: list[list[float]] = field(default_factory=list)  # seconds of each; none: left out
    bandwidths: list[float] = field(default_factory=list)  # bytes/s, measured beside each run
    bytes_read: int = 0
    least_seconds: float = 0.0  # what multiply-adds alone would take

    @property
    def rates(self) -> list[float]:
        return [self.case.total / seconds for seconds in self.seconds]

    @property
    def tokens_per_second(self) -> float:
        return statistics.median(self.rates)

    @property
    def stddev(self) -> float:
        return statistics.stdev(self.rates) if len(self.rates) > 1 else 0.0

    @property
    def peer_tokens_per_second(self) -> float | None:
        """The median of the better peer."""
        medians = [statistics.median(seconds) for seconds in self.peers if seconds]
        return self.case.total / min(medians) if medians else None

    @property
    def bandwidth(self) -> float:
        """Bytes a second that a plain read got, in the same minute."""
        return statistics.median(self.bandwidths) if self.bandwidths else 0.0

    @property
    def bandwidth_percent(self) -> float | None:
        """The bytes that generation must read, held against what memory gave; prompts: None."""
        if self.case.kind == "pp" or not self.bandwidths:
            return None
        return 100 * self.bytes_read / statistics.median(self.seconds) / self.bandwidth

    @property
    def peak_percent(self) -> float | None:
        """The time that multiply-adds alone would take, of the time it took."""
        return 100 * self.least_seconds / statistics.median(self.seconds) or None


def measure(
    name: str,
    cases: Sequence[Case],
    threads: int,
    ours: Side,
    peers: Sequence[Side],
    repeats: int | None,
    costs: Costs,
    rates: Mapping[str, float],
    bandwidth: Callable[[], float],
    progress: Callable[[str, int, int], None],
    alike: bool = True,
) -> Iterator[Row]:
    """A row for each case, as soon as it is done; each side has warmed up before.

    repeats: None is REPEATS, but no more once they have taken LONG; rates: multiply-adds/s of each
    block format; bandwidth: measures memory now, bytes/s; alike: the peers are settings of one
    program, of which those that are far behind when they warm up take no part.
    """
    for case in cases:
        row = Row(name, case, threads, peers=[[] for _ in peers])
        row.bytes_read = costs.bytes_read(case)
        needed = costs.multiply_adds(case)
        if needed.keys() <= rates.keys():
            row.least_seconds = sum(count / rates[kind] for kind, count in needed.items())
        racing = _warmed_up(case, ours, peers, progress, WORSE if alike else math.inf)
        for done in range(repeats or REPEATS):
            if repeats is None and sum(map(sum, [row.seconds, *row.peers])) > LONG:
                break
            progress(case.name, done, repeats or REPEATS)
            row.seconds.append(ours.run(case))
            row.bandwidths.append(bandwidth())
            for i in racing:
                time.sleep(PAUSE)
                row.peers[i].append(peers[i].run(case))
            if peers:
                time.sleep(PAUSE)
        yield row


def _warmed_up(
    case: Case,
    ours: Side,
    peers: Sequence[Side],
    progress: Callable[[str, int, int], None],
    worst: float,
) -> list[int]:
    """Every side ready, after a few passes; the peers not `worst` times as slow as the best."""
    taken = []
    for number, side in enumerate((ours, *peers)):
        progress(f"{case.name}: warming up", number, 1 + len(peers))
        side.prepare(case)
        taken.append(side.run(case.short))
    best = min(taken[1:], default=0.0)
    return [i for i, t in enumerate(taken[1:]) if t < SLOW or t <= worst * best]
