"""What one rendering of a chat template may use: steps, time, letters, nesting."""

import time
from typing import Any

STEPS = 250_000
SECONDS = 0.5  # of this thread's own CPU time, so that a busy machine fails nobody
LETTERS = 1 << 26  # made in all, also those thrown away; a place in a list counts as eight
NODES = 100_000  # of one nested value that is compared, sorted or written out
DEPTH = 64
CALLS = 48  # macros and recursive loops inside each other
WIDTH = 1000  # of padding
BITS = 4096  # of a whole number
_SIZED = (list, tuple, set, frozenset)
_VIEWS: Any = (type({}.keys()), type({}.values()), type({}.items()))


class TooMuch(Exception):
    """A template went beyond its budget; the message says in what."""


class Budget:
    """Counts down for one rendering; `letters` is what the messages themselves hold."""

    def __init__(self, letters: int = 0):
        self._steps = STEPS + letters // 4
        self._letters = LETTERS + 16 * letters
        self._ends = time.thread_time() + SECONDS + letters / 4e6
        self._calls = 0

    def tick(self) -> None:
        """One more step; called for every block entered, every call, every operator."""
        self._steps -= 1
        if self._steps < 0:
            raise TooMuch("takes too many steps")
        if self._steps % 4 == 0 and time.thread_time() > self._ends:
            raise TooMuch("takes too long")

    def take(self, letters: int) -> None:
        """Account for letters, or places in a list, before they are made where that is possible."""
        self._letters -= letters
        if self._letters < 0:
            raise TooMuch("makes too much text")

    def enter(self) -> None:
        """One call deeper."""
        self.tick()
        self._calls += 1
        if self._calls > CALLS:
            raise TooMuch("calls itself too deeply")

    def leave(self) -> None:
        """Back from a call."""
        self._calls -= 1

    def weigh(self, *values: Any) -> int:
        """Letters it takes to write values, nested ones counted each time they are reached.

        Done before values are given to code that cannot be stopped: a list that holds one list
        many times, and so on downwards, is small in memory and endless to walk.
        """
        letters, nodes, rows = 0, 0, [values]
        depth = [0]
        while rows:
            row, level = rows.pop(), depth.pop()
            nodes += len(row)
            if nodes > NODES or level > DEPTH:
                raise TooMuch("nests its values too deeply")
            for value in row:
                if isinstance(value, str):
                    letters += len(value)
                elif (inner := _inside(value)) is not None:
                    rows.append(inner)
                    depth.append(level + 1)
        self._steps -= nodes // 8
        return letters + 8 * nodes


def _inside(value: Any) -> Any:
    """What a value holds, or None where it holds nothing."""
    if isinstance(value, dict):
        return (*value.keys(), *value.values()) if len(value) <= NODES else range(NODES + 1)
    if isinstance(value, _SIZED):
        return value
    if isinstance(value, _VIEWS):
        return tuple(value) if len(value) <= NODES else range(NODES + 1)
    return None
