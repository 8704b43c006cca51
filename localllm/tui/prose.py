"""A Markdown text that grows: only its last block is ever parsed and laid out again."""

from markdown_it.tree import SyntaxTreeNode

from localllm.tui.typeset import BLANK, Line, parse, typeset


class Prose:
    """`lines(width)` after any number of `put`s; blocks before the last are kept as laid out."""

    def __init__(self, text: str = ""):
        self._tail = ""  # the source from the last block on
        self._blocks: list[SyntaxTreeNode] = []
        self._settled: list[Line] = []  # the lines of all blocks but the last, at _width
        self._count = 0  # blocks that _settled holds
        self._last: list[Line] | None = None  # the lines of the last block
        self._width = 0
        self.put(text)

    def put(self, text: str) -> None:
        """Add to the end."""
        if not text:
            return
        self._tail += text
        blocks = parse(self._tail)
        if self._blocks:
            self._blocks.pop()
        self._blocks += blocks
        if len(blocks) > 1 and blocks[-1].map:
            rows = self._tail.splitlines(keepends=True)
            self._tail = "".join(rows[blocks[-1].map[0] :])
        self._last = None

    def lines(self, width: int) -> list[Line]:
        """The whole text for a screen of that width."""
        if width != self._width:
            self._settled, self._count, self._last, self._width = [], 0, None, width
        settled = self._blocks[self._count : -1]
        if settled:
            self._settled += [*typeset(settled, width), BLANK]
            self._count += len(settled)
        if self._last is None:
            self._last = typeset(self._blocks[-1:], width)
        return self._settled + self._last
