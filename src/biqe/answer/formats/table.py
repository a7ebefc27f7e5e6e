"""A table for people: labels, shortened where they are too long, and no control characters of names."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from rich.cells import cell_len

from biqe.answer.result import KNOWN, Result, TextRow, TextTable, View
from biqe.explain.words import fit, visible


def write(result: Result, view: View) -> str:
    """Lines above the table, and the table in ``view.width`` columns."""
    table = result.as_text(view)
    lines = list(table.head)
    if table.rows:
        lines += ["", *_lines(table, view)]
    if table.left_out:
        after = sum(max(1, len(row.links)) for row in table.rows[table.left_out_at :])
        lines.insert(len(lines) - after, _paint(table.left_out, "2", view.colour))
    for word, link in table.facts:
        lines.append(f"{word}  {fit_link([visible(part) for part in link], view.width - len(word) - 2)}")
    return "\n".join(line.rstrip() for line in lines) + "\n"


def _lines(table: TextTable, view: View) -> list[str]:
    heads = [visible(name) for name in table.columns]
    body = [
        TextRow(
            [visible(cell) for cell in row.cells], row.status, row.chance, [[*map(visible, ln)] for ln in row.links]
        )
        for row in table.rows
    ]
    columns = [
        max(cell_len(cells[number]) for cells in [heads, *(row.cells for row in body)]) for number in range(len(heads))
    ]
    statuses = _width("status", [row.status for row in body])
    chances = _width("prob.", [row.chance for row in body])
    links = _width("missing links", [" ".join(link) for row in body for link in row.links])
    fixed = (statuses + 2 if statuses else 0) + (chances + 2 if chances else 0)
    gaps = 2 * (len(columns) - 1 + bool(links))
    *columns, links = shrink([*columns, links], view.width - fixed - gaps)

    def line(
        cells: Sequence[str], status: str, chance: str, link: Sequence[str], paint: Callable[[str], str], faint: bool
    ) -> str:
        parts = [fit(cell, size) for cell, size in zip(cells, columns, strict=True)]
        if statuses:
            parts.append(paint(fit(status, statuses)))
        if chances:
            parts.append(chance.rjust(chances))
        if links:
            parts.append(_paint(fit_link(link, links), "2", view.colour and faint))
        return "  ".join(parts)

    header = line(heads, "status", "prob.", ["missing links"], str, False)
    lines = [_paint(header.rstrip(), "1", view.colour)]
    for row in body:
        shade = "32" if row.status == KNOWN else "33"
        first, *more = row.links or [[""]]

        def paint(text: str, shade: str = shade) -> str:
            return _paint(text, shade, view.colour)

        lines.append(line(row.cells, row.status, row.chance, first, paint, True))
        lines += [line([""] * len(columns), "", "", link, str, True) for link in more]
    return lines


def _width(head: str, cells: Sequence[str]) -> int:
    """Columns that a column of ours needs; 0 where it is empty."""
    widest = max(map(cell_len, cells), default=0)
    return max(widest, len(head)) if widest else 0


def shrink(columns: Sequence[int], room: int, least: int = 6) -> list[int]:
    """The widths, the widest ones cut until they fit into ``room``; none below ``least``."""
    columns = list(columns)
    while sum(columns) > room and max(columns) > least:
        widest = max(columns)
        columns[columns.index(widest)] = widest - 1
    return columns


def fit_link(parts: Sequence[str], width: int) -> str:
    """The link in at most ``width`` columns; its longest names are cut, so that something of each stays."""
    sizes = shrink([cell_len(part) for part in parts], width - len(parts) + 1)
    shown = " ".join(fit(part, size).rstrip() for part, size in zip(parts, sizes, strict=True))
    return fit(shown, width).rstrip()


def _paint(text: str, code: str, colour: bool) -> str:
    return f"\x1b[{code}m{text}\x1b[0m" if colour and text else text
