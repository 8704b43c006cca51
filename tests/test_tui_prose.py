"""Markdown laid out for the full-screen chat; growing piece by piece changes nothing."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from textual.content import Content

from localllm.tui.grid import fitted, table
from localllm.tui.prose import Prose
from localllm.tui.typeset import typeset


def rows(source: str, width: int = 40) -> list[str]:
    return [line.text.plain.rstrip() for line in Prose(source).lines(width)]


def styles(source: str) -> dict[str, str]:
    """The style of each styled piece of text."""
    found = {}
    for line in Prose(source).lines(60):
        for span in line.text.spans:
            found[line.text.plain[span.start : span.end]] = str(span.style)
    return found


@pytest.mark.parametrize(
    "source, expected",
    [
        ("# One\ntwo", ["One", "", "two"]),
        ("two\nlines", ["two", "lines"]),
        ("- a\n- b\n  - c", ["• a", "• b", "  • c"]),
        ("- a\n\n- b", ["• a", "", "• b"]),
        ("9. nine\n10. ten", ["9. nine", "10. ten"]),
        ("> a\n> b", ["▌ a", "▌ b"]),
        ("a\n\n---\nb", ["a", "", "─" * 40, "", "b"]),
        ("see [here](http://x.y)", ["see here (http://x.y)"]),
        ("<http://x.y>", ["http://x.y"]),
        ("a <b>x</b>", ["a <b>x</b>"]),
        ("<div>\nx\n</div>", ["<div>", "x", "</div>"]),
        ("|a|b|\n|-|-|\n|long one|x|", ["a        │ b", "─────────┼──", "long one │ x"]),
        ("", []),
    ],
)
def test_blocks(source, expected):
    assert rows(source) == expected


def test_a_list_item_hangs_under_its_text():
    assert rows("1. " + "word " * 12, 30)[1].startswith("   word")


def test_emphasis_is_styled():
    found = styles("**b** *i* `c` ~~s~~")
    assert found["b"] == "bold" and found["i"] == "italic" and found["s"] == "strike"
    assert "warning" in found["c"]


def test_code_has_a_bar_with_its_language_and_keeps_the_source_for_copying():
    lines = Prose("```python\nx = 1\n\ty\n```").lines(30)
    assert lines[0].text.plain.split() == ["python", "copy"]
    assert lines[0].code == "x = 1\n\ty"
    assert [line.text.plain.rstrip() for line in lines[1:]] == [" x = 1", "     y"]
    assert all(line.text.cell_length == 30 for line in lines)


def test_an_open_code_block_is_code_already():
    assert rows("```\nx")[1:] == [" x"]


SAMPLE = """# Head

Some *text* that is long enough to be wrapped at least once on the narrow screen.

1. one
2. two

   more of two
3. three

```py
def f():
    return "a line that is longer than the screen is wide, so it is folded"
```
after

| a | b |
|---|---|
| 中文字符 | a cell with quite a few words in it, more than fit |

> quoted

last
"""


@pytest.mark.parametrize("size", [1, 3, 7])
def test_growing_piece_by_piece_changes_nothing(size):
    prose = Prose()
    for start in range(0, len(SAMPLE), size):
        prose.put(SAMPLE[start : start + size])
        prose.lines(40)
    assert prose.lines(40) == Prose(SAMPLE).lines(40)
    assert prose.lines(25) == Prose(SAMPLE).lines(25)


@given(st.text(alphabet="ab *_`#-|>~1.\n[](:中", max_size=80), st.integers(12, 40))
def test_no_line_is_wider_than_the_screen(text, width):
    for line in Prose(text).lines(width):
        assert line.text.cell_length <= width or text.count(">") + text.count("-") > 3


@given(st.lists(st.integers(0, 60), min_size=1, max_size=6), st.integers(20, 80))
def test_columns_give_way_until_the_table_fits(widths, width):
    got = fitted(widths, width)
    room = width - 3 * (len(widths) - 1)
    assert sum(got) <= room or max(got) <= 3
    assert all(0 < now <= max(1, before) for now, before in zip(got, widths, strict=True))


def test_a_ragged_table_is_filled_up():
    lines = table([[Content("a"), Content("b")], [Content("c")]], 20)
    assert [line.plain for line in lines] == ["a │ b", "──┼──", "c │  "]


def test_nothing_typesets_to_nothing():
    assert typeset([], 40) == []


def test_growing_lays_out_the_last_block_only(monkeypatch):
    prose, sizes = Prose("para\n\n" * 200), []
    prose.lines(40)
    real = typeset
    monkeypatch.setattr(
        "localllm.tui.prose.typeset",
        lambda nodes, width: sizes.append(len(nodes)) or real(nodes, width),
    )
    for word in ["one ", "two ", "\n\nthree"]:
        prose.put(word)
        prose.lines(40)
    assert sum(sizes) <= 6
