"""One paragraph of streaming Markdown: styles, and lines broken between words."""

from localllm.tui.terminal import BOLD, CYAN, ITALIC, RESET, cells, is_wide

MARKERS = "*_`"


class Inline:
    """Text goes in piece by piece, styled and wrapped text comes out; half words are held back.

    A run of markers is understood when the character after it is known, so nothing that was
    printed is ever taken back.
    """

    def __init__(self, width: int, indent: str = "", column: int = 0, style: str = ""):
        self.width, self.indent, self.base = width, indent, style
        self._column, self._gap = column, ""
        self._word, self._word_cells = style, 0
        self._run, self._before, self._escaped = "", " ", False
        self._bold = self._italic = False
        self._code = 0  # length of the backtick run that opened a code span

    def push(self, text: str) -> str:
        """What can be printed after this much text."""
        return "".join(self._take(char) for char in text)

    def close(self) -> str:
        """The held back rest, and the end of all styles."""
        out = self._take_run(" ") if self._run else ""
        return out + self._flush() + RESET

    def _take(self, char: str) -> str:
        if self._run and char != self._run[0]:
            out = self._take_run(char)
            return out + self._take(char)
        if self._escaped:
            self._escaped = False
            if char.isalnum() or char.isspace():
                self._show("\\")
        elif char == "\\" and not self._code:
            self._escaped = True
            return ""
        elif char in MARKERS and (not self._code or char == "`"):
            self._run += char
            return ""
        if char.isspace():
            return self._space(char)
        return self._show(char)

    def _show(self, char: str) -> str:
        self._before = char
        self._word += char
        self._word_cells += cells(char)
        return self._flush() if is_wide(char) or self._word_cells >= self.width else ""

    def _space(self, char: str) -> str:
        out = self._flush()
        self._gap, self._before = self._gap + " ", char
        return out

    def _flush(self) -> str:
        """The word so far, on a new line if it does not fit on this one."""
        if not self._word_cells:
            word, self._word = self._word, ""
            return word
        out = self._gap
        if self._column + len(self._gap) + self._word_cells > self.width:
            out, self._column = "\n" + self.indent, len(self.indent)
        else:
            self._column += len(self._gap)
        out += self._word
        self._column += self._word_cells
        self._word, self._word_cells, self._gap = "", 0, ""
        return out

    def _take_run(self, after: str) -> str:
        """Act on a finished run of markers, knowing the characters around it."""
        run, self._run = self._run, ""
        if run[0] == "`":
            return self._take_ticks(run)
        size = min(len(run), 3)
        opens = not after.isspace() and (run[0] == "*" or not self._before.isalnum())
        closes = not self._before.isspace() and (run[0] == "*" or not after.isalnum())
        bold, italic = size >= 2, size != 2
        starts = (bold and not self._bold) or (italic and not self._italic)
        if len(run) > 3 or not (opens if starts else closes):
            return "".join(self._show(char) for char in run)
        self._bold ^= bold
        self._italic ^= italic
        self._restyle()
        return ""

    def _take_ticks(self, run: str) -> str:
        if self._code and len(run) != self._code:
            return "".join(self._show(char) for char in run)
        self._code = 0 if self._code else len(run)
        self._restyle()
        return ""

    def _restyle(self) -> None:
        bold, italic, code = self._bold and BOLD, self._italic and ITALIC, self._code and CYAN
        self._word += RESET + self.base + "".join(s for s in (bold, italic, code) if s)


def styled(text: str, style: str = "") -> str:
    """A finished piece of Markdown on one line."""
    line = Inline(width=1 << 30, style=style)
    return line.push(text) + line.close()
