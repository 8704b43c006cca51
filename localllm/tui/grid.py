"""A table drawn with lines, its cells wrapped when the screen is too narrow for them."""

from textual.content import Content

BETWEEN = " │ "
NARROWEST = 3


def table(rows: list[list[Content]], width: int) -> list[Content]:
    """The lines of a table whose first row is its head."""
    count = max(map(len, rows), default=0)
    rows = [row + [Content("")] * (count - len(row)) for row in rows]
    widths = fitted([max(row[at].cell_length for row in rows) for at in range(count)], width)
    lines: list[Content] = []
    for number, row in enumerate(rows):
        lines += _row(row, widths)
        if number == 0:
            rule = "─┼─".join("─" * each for each in widths)
            lines.append(Content.styled(rule, "$foreground 60%"))
    return lines


def fitted(widths: list[int], width: int) -> list[int]:
    """Column widths that fit: the widest columns give way first."""
    widths = [max(1, each) for each in widths]
    room = width - len(BETWEEN) * (len(widths) - 1)
    while sum(widths) > room and max(widths) > NARROWEST:
        widest = max(widths)
        second = max([w for w in widths if w < widest], default=NARROWEST)
        at = [i for i, w in enumerate(widths) if w == widest]
        share = max(1, min(widest - second, -(-(sum(widths) - room) // len(at))))
        for i in at:
            widths[i] = max(NARROWEST, widest - share)
    return widths


def _row(cells: list[Content], widths: list[int]) -> list[Content]:
    wrapped = [cell.wrap(width) for cell, width in zip(cells, widths, strict=True)]
    lines = []
    for at in range(max(map(len, wrapped))):
        parts = [(cell[at] if at < len(cell) else Content("")) for cell in wrapped]
        padded = [
            part.pad_right(max(0, width - part.cell_length))
            for part, width in zip(parts, widths, strict=True)
        ]
        lines.append(Content.styled(BETWEEN, "$foreground 60%").join(padded))
    return lines
