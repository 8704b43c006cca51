"""A conversation: a tree of turns, of which one path from the first to a leaf is shown."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any


@dataclass
class Turn:
    """One message. Turns with the same parent are branches: the same question asked again."""

    id: int
    parent: int | None
    role: str  # "user" or "assistant"
    content: str
    model: str = ""  # who answered
    stats: dict[str, Any] = field(default_factory=dict)  # usage and timings of the answer
    done: bool = True  # False: still streaming, or cut off by a crash


@dataclass
class Conversation:
    """Every turn by its id, and the leaf whose path is the conversation as shown."""

    id: int
    title: str = ""
    model: str = ""
    system: str = ""
    leaf: int | None = None
    turns: dict[int, Turn] = field(default_factory=dict)

    def add(self, turn: Turn) -> None:
        """Put a turn into the tree and show it last."""
        self.turns[turn.id] = turn
        self.leaf = turn.id

    def path(self, end: int | None = None) -> list[Turn]:
        """The turns from the first to `end`, or to the leaf."""
        return list(self._upwards(self.leaf if end is None else end))[::-1]

    def _upwards(self, at: int | None) -> Iterator[Turn]:
        seen: set[int] = set()  # a damaged file could hold a loop
        while at is not None and at in self.turns and at not in seen:
            seen.add(at)
            yield self.turns[at]
            at = self.turns[at].parent

    def branches(self, turn: int) -> list[int]:
        """The turn and its alternatives, oldest first."""
        parent = self.turns[turn].parent
        return sorted(t.id for t in self.turns.values() if t.parent == parent)

    def newest_leaf(self, turn: int) -> int:
        """The leaf reached from a turn by always taking the newest reply."""
        newest: dict[int | None, int] = {}
        for each in self.turns.values():
            newest[each.parent] = max(each.id, newest.get(each.parent, each.id))
        seen = {turn}
        while (below := newest.get(turn)) is not None and below not in seen:
            turn = below
            seen.add(turn)
        return turn

    def messages(self, end: int | None = None) -> list[dict[str, str]]:
        """What the model is given: the system prompt, if any, and the turns up to `end`."""
        head = [{"role": "system", "content": self.system}] if self.system else []
        return head + [{"role": t.role, "content": t.content} for t in self.path(end)]
