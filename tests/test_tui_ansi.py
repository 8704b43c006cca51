"""Streaming Markdown in line mode: the screen is the same however the text was cut."""

import random
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from localllm.tui.ansi import Renderer
from localllm.tui.inline import styled
from localllm.tui.terminal import cells

ESCAPE = re.compile(r"\x1b\[([0-9;]*)([a-zA-Z])")

SAMPLE = """# Sorting in **Python**

Some *short* words with `code`, 2 * 3 * 4 and snake_case_name, wrapped where the line is full.

1. First **bold item** that is long enough to need a second line under its text
- x
  - nested

```python
def f(x):
    \"\"\"Several

    lines.\"\"\"
    return "a line that is longer than the terminal is wide, so that it takes two of its rows"
```

| name | size |
|------|-----:|
| **a** | 1 MB |
| 中文 | 2 |

> a quote

---
中文没有空格所以每个字之后都可以换行中文没有空格所以每个字之后都可以换行
"""


def screen(output: str, width: int) -> list[str]:
    """What a terminal shows: styles dropped, the redrawing of code lines carried out."""
    rows, at = [""], 0
    while at < len(output):
        if found := ESCAPE.match(output, at):
            at = found.end()
            if found[2] == "A":
                rows = rows[: -int(found[1])]
            elif found[2] in "JK":
                rows[-1] = ""
            continue
        char, at = output[at], at + 1
        if char == "\n":
            rows.append("")
        elif char != "\r":
            if cells(rows[-1]) + cells(char) > width:
                rows.append("")
            rows[-1] += char
    return [row.rstrip() for row in rows]


def render(pieces, width=60) -> str:
    renderer = Renderer(width)
    return "".join(map(renderer.push, pieces)) + renderer.close()


def test_each_part_looks_right():
    rows = screen(render([SAMPLE]), 60)
    assert rows[0] == "Sorting in Python"
    assert "Some short words with code, 2 * 3 * 4 and snake_case_name," in rows
    assert "1. First bold item that is long enough to need a second line" in rows
    assert "   under its text" in rows
    assert "• x" in rows and "  • nested" in rows
    assert "name │ size" in rows and "─────┼─────" in rows and "中文 │ 2" in rows
    assert "│ a quote" in rows
    assert "─── python " + "─" * 49 in rows
    assert '    return "a line that is longer than the terminal is wide,' in rows


@pytest.mark.parametrize("seed", range(30))
def test_cuts_do_not_matter(seed):
    chance = random.Random(seed)
    pieces, rest = [], SAMPLE
    while rest:
        size = chance.randint(1, 9)
        pieces.append(rest[:size])
        rest = rest[size:]
    assert screen(render(pieces), 60) == screen(render([SAMPLE]), 60)


@given(st.text(alphabet="ab *_`#-|>~1.\n\\中", max_size=60), st.integers(20, 40))
def test_any_text_is_shown_whole_and_alike(text, width):
    at_once = render([text], width)
    assert screen(render(list(text), width), width) == screen(at_once, width)
    letters = re.compile("[ab1中]")
    shown = letters.findall("".join(screen(at_once, width)))
    info = re.compile(r"^[ \t]*(```+|~~~+)[^`\n]*$", re.M)
    if not info.search(text):  # only a fence's own line may be left out
        assert shown == letters.findall(text)


def test_code_is_highlighted_line_by_line():
    renderer = Renderer(60)
    renderer.push("```python\n")
    assert renderer.push("def f") == "def f"
    assert renderer.push("():\n").endswith("\n")
    assert "\x1b[38;5;" in Renderer(60).push("```python\ndef f():\n")
    assert "\x1b[38;5;" not in Renderer(60, colours=16).push("```python\ndef f():\n")


def test_code_of_an_unknown_language_stays_plain():
    assert "x = 1\n" in render(["```nonesuch\nx = 1\n```\n"])


def test_an_open_block_is_closed_at_the_end():
    assert screen(render(["```py\nx"]), 60)[-3:] == ["x", "─" * 60, ""]


def test_a_table_wider_than_the_terminal_stays_as_written():
    line = "| " + "x" * 70 + " | y |\n"
    assert line in render([line + "|---|---|\n"])


def test_styled():
    assert (
        "\x1b[1m" in styled("**b**") and "\x1b[3m" in styled("*i*") and "\x1b[36m" in styled("`c`")
    )
    for text in ("2 * 3", "a_b_c", "5*", "****"):
        assert styled(text).replace("\x1b[0m", "") == text
