"""Markdown as lines of styled text for a given width: one function for each kind of block.

Styles are Textual's, with the theme's variables, so that light and dark need nothing of ours.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from markdown_it import MarkdownIt
from markdown_it.tree import SyntaxTreeNode
from textual.content import Content
from textual.highlight import highlight

from localllm.tui.grid import table

NARROWEST = 8  # columns that even the deepest list leaves to its text
BAR, CODE = "$foreground 60% on $panel", "on $surface"
HEADINGS = {"h1": "bold $text-primary underline", "h2": "bold $text-primary"}
INLINE = {"strong": "bold", "em": "italic", "s": "strike", "link": "underline"}
COPY = " copy "


@dataclass(frozen=True)
class Line:
    """One row of the screen; `code` is on the row above a code block, for its copy button."""

    text: Content
    code: str = ""


BLANK = Line(Content(""))


def parse(source: str) -> list[SyntaxTreeNode]:
    """The top-level blocks; nesting is bounded by the parser."""
    parser = MarkdownIt("commonmark").enable(["table", "strikethrough"])
    return SyntaxTreeNode(parser.parse(source)).children


def typeset(nodes: Sequence[SyntaxTreeNode], width: int, tight: bool = False) -> list[Line]:
    """The blocks below each other, with a blank line between them unless they are tight."""
    lines: list[Line] = []
    for node in nodes:
        if lines and not tight:
            lines.append(BLANK)
        lines += BLOCKS.get(node.type, _paragraph)(node, max(NARROWEST, width))
    return lines


def plain(text: str, width: int, style: str = "") -> list[Line]:
    """A text as it is, wrapped."""
    return [Line(line) for line in Content(text).stylize(style).wrap(max(NARROWEST, width))]


def _paragraph(node: SyntaxTreeNode, width: int) -> list[Line]:
    """A paragraph, and whatever has no function of its own."""
    text = Content("").join(map(inline, node.children)) if node.children else Content(node.content)
    return [Line(line) for line in text.wrap(width)]


def _heading(node: SyntaxTreeNode, width: int) -> list[Line]:
    style = HEADINGS.get(node.tag, "bold")
    return [Line(line.text.stylize(style)) for line in _paragraph(node, width)]


def _list(node: SyntaxTreeNode, width: int) -> list[Line]:
    lines: list[Line] = []
    number = int(node.attrs.get("start", 1)) if node.type == "ordered_list" else None
    tight = all(child.hidden for item in node.children for child in item.children[:1])
    for item in node.children:
        mark = "• " if number is None else f"{number}. "
        number = number and number + 1
        if lines and not tight:
            lines.append(BLANK)
        below = typeset(item.children, width - len(mark), tight) or [BLANK]
        lines += _hung(below, Content.styled(mark, "$text-primary"), " " * len(mark))
    return lines


def _quote(node: SyntaxTreeNode, width: int) -> list[Line]:
    mark = Content.styled("▌ ", "$foreground 60%")
    return _hung(typeset(node.children, width - 2), mark, mark)


def _hung(lines: list[Line], first: Content, rest: Content | str) -> list[Line]:
    """The lines behind a mark, and behind something as wide from the second on."""
    return [
        Line((first if at == 0 else Content("") + rest) + line.text, line.code)
        for at, line in enumerate(lines)
    ]


def _fence(node: SyntaxTreeNode, width: int) -> list[Line]:
    code, language = node.content.rstrip("\n"), node.info.split(" ")[0].strip()
    label = f" {language or 'code'}"[: width - len(COPY)]
    bar = Content.assemble(label.ljust(width - len(COPY)), (COPY, "underline")).stylize(BAR)
    text = highlight(code.expandtabs(4), language=language or "text")
    lines = [Line(bar, code or " ")]
    for row in text.split("\n", allow_blank=True):
        for part in row.fold(width - 2) or [Content("")]:
            padded = part.pad_left(1).extend_right(max(0, width - 1 - part.cell_length))
            lines.append(Line(padded.stylize_before(CODE)))
    return lines


def _rule(node: SyntaxTreeNode, width: int) -> list[Line]:
    return [Line(Content.styled("─" * width, "$foreground 60%"))]


def _table(node: SyntaxTreeNode, width: int) -> list[Line]:
    rows = [
        [_cell(cell, part.type == "thead") for cell in row.children]
        for part in node.children
        for row in part.children
    ]
    return [Line(line) for line in table(rows, width)]


def _cell(node: SyntaxTreeNode, is_head: bool) -> Content:
    text = Content("").join(map(inline, node.children))
    return text.stylize("bold") if is_head else text


BLOCKS: dict[str, Callable[[SyntaxTreeNode, int], list[Line]]] = {
    "heading": _heading,
    "bullet_list": _list,
    "ordered_list": _list,
    "blockquote": _quote,
    "fence": _fence,
    "code_block": _fence,
    "hr": _rule,
    "table": _table,
}


def inline(node: SyntaxTreeNode) -> Content:
    """Text with its emphasis; a link shows where it leads, for it cannot be followed over ssh."""
    if node.type == "code_inline":
        return Content.styled(node.content, "$text-warning on $warning 10%")
    if node.type in ("softbreak", "hardbreak"):
        return Content("\n")
    if not node.children:
        return Content(node.content)
    text = Content("").join(map(inline, node.children)).stylize(INLINE.get(node.type, ""))
    address = str(node.attrs.get("href") or node.attrs.get("src") or "")
    if address and address != text.plain:
        text += Content.styled(f" ({address})", "$foreground 60%")
    return text
