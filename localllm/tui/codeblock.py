"""A fenced code block as it streams: each line appears at once, and in colour when it is whole."""

from pygments import highlight
from pygments.formatters import Terminal256Formatter, TerminalFormatter
from pygments.lexer import Lexer
from pygments.lexers import get_lexer_by_name
from pygments.util import ClassNotFound

from localllm.tui.terminal import CLEAR_BELOW, DIM, RESET, cells

SEEN = 100  # lines before the newest that the lexer is shown
TALLEST = 5  # rows of a line that is still redrawn


class CodeBlock:
    """Lines of one block; the rules around it carry its language."""

    def __init__(self, language: str, width: int, colours: int = 256):
        self.width = width
        self._lexer = _lexer(language)
        self._formatter = Terminal256Formatter() if colours >= 256 else TerminalFormatter()
        self._lines: list[str] = []
        self.partial = ""
        label = f" {language} " if language else ""
        self.opening = f"{DIM}───{label}{'─' * max(0, min(width, 60) - 3 - len(label))}{RESET}\n"
        self.closing = f"{DIM}{'─' * min(width, 60)}{RESET}\n"

    def push(self, text: str) -> str:
        """A piece of the line that is not yet whole, as it is."""
        text = text.expandtabs(4)
        self.partial += text
        return text

    def end_line(self) -> str:
        """The line again, highlighted, over the plain one."""
        line, self.partial = self.partial, ""
        self._lines = [*self._lines[-SEEN:], line]
        rows = max(1, -(-cells(line) // self.width))
        if self._lexer is None or rows > TALLEST:
            return "\n"
        coloured = highlight("\n".join(self._lines), self._lexer, self._formatter)
        back = "\r" + (f"\x1b[{rows - 1}A" if rows > 1 else "") + CLEAR_BELOW
        return back + coloured.rstrip("\n").split("\n")[-1] + RESET + "\n" if line else "\n"


def _lexer(language: str) -> Lexer | None:
    try:
        return get_lexer_by_name(language, stripnl=False, ensurenl=False) if language else None
    except ClassNotFound:
        return None
