"""What a terminal is told: control codes of ours, none of the model's, and widths in cells."""

import re

from wcwidth import wcswidth, wcwidth

RESET, BOLD, DIM, ITALIC = "\x1b[0m", "\x1b[1m", "\x1b[2m", "\x1b[3m"
CYAN, YELLOW, MAGENTA, RED = "\x1b[36m", "\x1b[33m", "\x1b[35m", "\x1b[31m"
CLEAR_LINE, CLEAR_BELOW = "\r\x1b[K", "\x1b[J"

CONTROL = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f]")


def printable(text: str) -> str:
    """The text without control characters: a model must not be able to drive the terminal."""
    return CONTROL.sub("", text)


def cells(text: str) -> int:
    """Columns the text takes."""
    return len(text) if text.isascii() else max(0, wcswidth(text))


def is_wide(char: str) -> bool:
    """A character of two columns, after which a line may break."""
    return char > "\u10ff" and wcwidth(char) == 2
