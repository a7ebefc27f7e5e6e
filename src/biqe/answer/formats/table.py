"""A table for people: labels, and no control characters of names. What is too wide goes on in the next line."""

from __future__ import annotations

from collections.abc import Sequence

from rich.cells import cell_len

from biqe.answer.result import KNOWN, Result, TextTable, View
from biqe.graph.words import fit, visible, wrapped

BELOW, AGAINST = "    missing: ", "against:"
"""What stands before a missing link below its row."""
NARROWEST = 6
"""Columns that a cell keeps, at least."""


def write(result: Result, view: View) -> str:
    """Lines above the table, and the table in ``view.width`` columns."""
    table = result.as_text(view)
    lines = list(table.head)
    header, rows = _lines(table, view) if table.rows else ([], [])
    if table.left_out:
        rows.insert(table.left_out_at, [_paint(table.left_out, "2", view.colour)])
    lines += [*([""] if header else []), *header, *(line for row in rows for line in row)]
    for word, link in table.facts:
        lines += wrapped(" ".join(map(visible, link)), view.width, first=f"{word}  ")
    return "\n".join(line.rstrip() for line in lines) + "\n"


def _lines(table: TextTable, view: View) -> tuple[list[str], list[list[str]]]:
    """The header, and the lines of each row. Missing links stand in a column of their own where there is room for the
    longest, else below their row; cells that are too wide go on in the next line."""
    heads = [visible(name) for name in table.columns]
    body = [[visible(cell) for cell in row.cells] for row in table.rows]
    links = [[" ".join(map(visible, link)) for link in row.links] for row in table.rows]
    columns = [max(cell_len(cells[number]) for cells in [heads, *body]) for number in range(len(heads))]
    statuses = _width("status", [row.status for row in table.rows])
    chances = _width("prob.", [row.chance for row in table.rows])
    widest = _width("missing links", [link for row in links for link in row])
    fixed = (statuses + 2 if statuses else 0) + (chances + 2 if chances else 0) + 2 * (len(columns) - 1)
    is_beside = bool(widest) and sum(columns) + fixed + 2 + widest <= view.width
    columns = shrink(columns, view.width - fixed)

    def lines(cells: Sequence[str], status: str, chance: str, links: Sequence[str], code: str) -> list[str]:
        texts = [wrapped(cell, size) for cell, size in zip(cells, columns, strict=True)]
        beside = links if is_beside else []
        found = []
        for number in range(max(1, len(beside), *map(len, texts))):
            parts = [
                fit(text[number] if number < len(text) else "", size) for text, size in zip(texts, columns, strict=True)
            ]
            if statuses:
                parts.append(_paint(fit(status if number == 0 else "", statuses), code, view.colour))
            if chances:
                parts.append((chance if number == 0 else "").rjust(chances))
            if number < len(beside):
                parts.append(_paint(beside[number], "2", view.colour))
            found.append("  ".join(parts))
        for link in [] if is_beside else links:
            found += [_paint(line, "2", view.colour) for line in wrapped(link, view.width, first=_before(link))]
        return found

    header = lines(heads, "status", "prob.", ["missing links"] if is_beside else [], "")
    rows = [
        lines(cells, row.status, row.chance, own, "32" if row.status == KNOWN else "33")
        for row, cells, own in zip(table.rows, body, links, strict=True)
    ]
    return [_paint(line.rstrip(), "1", view.colour) for line in header], rows


def _before(link: str) -> str:
    return "    " if link.startswith(AGAINST) else BELOW


def _width(head: str, cells: Sequence[str]) -> int:
    """Columns that a column of ours needs; 0 where it is empty."""
    widest = max(map(cell_len, cells), default=0)
    return max(widest, len(head)) if widest else 0


def shrink(columns: Sequence[int], room: int) -> list[int]:
    """The widths, the widest ones cut until they fit into ``room``; none below NARROWEST."""
    columns = list(columns)
    while sum(columns) > room and max(columns) > NARROWEST:
        widest = max(columns)
        columns[columns.index(widest)] = widest - 1
    return columns


def _paint(text: str, code: str, colour: bool) -> str:
    return f"\x1b[{code}m{text}\x1b[0m" if colour and code and text else text
