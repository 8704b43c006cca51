"""Streaming Markdown for a terminal that only scrolls: nothing printed is redrawn but one line.

A line is held back until its first characters tell what it is; then it streams.
"""

import re

from localllm.tui import table
from localllm.tui.codeblock import CodeBlock
from localllm.tui.inline import Inline
from localllm.tui.terminal import BOLD, DIM, MAGENTA, RESET, printable

FENCE = re.compile(r"^[ \t]*(`{3,}|~{3,})[ \t]*([^\s`]*)[^`]*$")
HEADING = re.compile(r"^(#{1,6})[ \t]+")
BULLET = re.compile(r"^(\s*)([-*+]|\d{1,9}[.)])[ \t]+")
RULE = re.compile(r"^ {0,3}([-*_])[ \t]*(\1[ \t]*){2,}$")
QUOTE = re.compile(r"^ {0,3}>[ \t]?")
MAY_CLOSE = re.compile(r"^\s*(`*|~*)\s*$")  # the end of a code block, perhaps
UNDECIDED = re.compile(r"^\s*([#>|`~*_=+-]*|\d{0,9}[.)]?|[-*_ \t]+|[#>]+[ \t]*)\s*$")


class Renderer:
    """Give it pieces of Markdown, print what it returns."""

    def __init__(self, width: int = 80, colours: int = 256):
        self.width, self.colours = max(20, width), colours
        self._start = ""  # a line whose kind is not known yet
        self._line: Inline | None = None  # the paragraph, heading or item that is streaming
        self._code: CodeBlock | None = None
        self._fence = ""
        self._table: list[str] = []

    def push(self, text: str) -> str:
        """What to print after this piece."""
        out = []
        for part in printable(text).splitlines(keepends=True):
            body = part.rstrip("\n")
            if body:
                out.append(self._text(body))
            if part.endswith("\n"):
                out.append(self._end_line())
        return "".join(out)

    def close(self) -> str:
        """What is still held back, with the cursor on a fresh line."""
        pending = self._start or self._line or (self._code and self._code.partial)
        out = self._end_line() if pending else ""
        out += self._end_table()
        if self._code:
            out, self._code = out + self._code.closing, None
        return out

    def _text(self, text: str) -> str:
        if self._line:
            return self._line.push(text)
        if self._code:
            return self._code_text(self._code, text)
        self._start += text
        is_open = UNDECIDED.match(self._start) or FENCE.match(self._start)
        return "" if is_open or self._start.lstrip().startswith("|") else self._begin_line()

    def _code_text(self, code: CodeBlock, text: str) -> str:
        if not code.partial:
            self._start += text
            if MAY_CLOSE.match(self._start):
                return ""
            text, self._start = self._start, ""
        return code.push(text)

    def _begin_line(self) -> str:
        """The line's kind is known: print its mark and let the rest stream."""
        text, self._start = self._start, ""
        before = indent = style = ""
        if found := HEADING.match(text):
            style = BOLD + (MAGENTA if len(found[1]) <= 2 else "")
        elif found := BULLET.match(text):
            mark = "•" if found[2] in "-*+" else found[2]
            before = f"{found[1]}{mark} "
            indent = " " * len(before)
        elif found := QUOTE.match(text):
            before, indent, style = f"{DIM}│ ", "│ ", DIM
        text = text[found.end() :] if found else text
        self._line = Inline(self.width, indent, len(indent), style)
        return self._end_table() + before + self._line.push(text)

    def _end_line(self) -> str:
        if self._line:
            out, self._line = self._line.close() + "\n", None
            return out
        text, self._start = self._start, ""
        if self._code:
            return self._end_code_line(self._code, text)
        if text.lstrip().startswith("|"):
            self._table.append(text)
            return ""
        out = self._end_table()
        if found := FENCE.match(text):
            self._fence = found[1]
            self._code = CodeBlock(found[2], self.width, self.colours)
            return out + self._code.opening
        if RULE.match(text):
            return f"{out}{DIM}{'─' * min(self.width, 60)}{RESET}\n"
        if not text.strip():
            return out + "\n"
        self._start = text
        out += self._begin_line()
        return out + self._end_line()

    def _end_code_line(self, code: CodeBlock, held: str) -> str:
        mark = held.strip()
        if mark.startswith(self._fence) and not mark.strip(self._fence[0]):
            self._code = None
            return code.closing
        return (code.push(held) if held else "") + code.end_line()

    def _end_table(self) -> str:
        lines, self._table = self._table, []
        return table.drawn(lines, self.width) if lines else ""
