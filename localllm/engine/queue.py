"""The sequences that wait for a place, in an order that is fair to clients."""

from collections import Counter, deque
from collections.abc import Iterator

from localllm.engine.sequence import Sequence


class Queue:
    """First come, first served within a client; between clients, whoever has had the least.

    What a client has had is counted in tokens. One that comes, or comes back, starts level with
    the least served of the others: waiting saves up no credit (Sheng et al. 2024, "Fairness in
    serving large language models").
    """

    def __init__(self) -> None:
        self._count = 0  # kept, so that other threads may read it
        self._lines: dict[str, deque[Sequence]] = {}
        self._served: dict[str, int] = {}

    def __len__(self) -> int:
        return self._count

    def __iter__(self) -> Iterator[Sequence]:
        return (sequence for line in self._lines.values() for sequence in line)

    def add(self, sequence: Sequence, first: bool = False) -> None:
        """At the end of its client's line; at its head when it had a place before."""
        client = sequence.request.client
        self._served.setdefault(client, min(self._served.values(), default=0))
        line = self._lines.setdefault(client, deque())
        line.insert(0 if first else len(line), sequence)
        self._count += 1

    def next(self, running: list[Sequence]) -> Sequence | None:
        """Whose turn it is: of the client with the fewest running, then the least served."""
        places = Counter(sequence.request.client for sequence in running)
        heads = (line[0] for line in self._lines.values())
        return min(heads, key=lambda s: (places[s.request.client], *self.rank(s)), default=None)

    def rank(self, sequence: Sequence) -> tuple[int, int]:
        """Lower is sooner."""
        return self._served[sequence.request.client], sequence.serial

    def remove(self, sequence: Sequence) -> None:
        line = self._lines[sequence.request.client]
        line.remove(sequence)
        self._count -= 1
        if not line:
            del self._lines[sequence.request.client]

    def charge(self, sequence: Sequence, tokens: int) -> None:
        """Its client has had this many tokens computed."""
        self._served[sequence.request.client] += tokens

    def left(self, client: str, running: list[Sequence]) -> None:
        """A sequence of this client ended; forget the client when it was the last."""
        if client not in self._lines and all(s.request.client != client for s in running):
            self._served.pop(client, None)
