"""An HTML table to paste into a page or an e-mail: what the table for people has, with every name escaped."""

from __future__ import annotations

from biqe.answer.result import Result, View
from biqe.graph.words import Cell, html_table


def write(result: Result, view: View) -> str:
    """One table element, with the lines above the table as its caption."""
    table = result.as_text(view)
    extra = {"status": "status", "chance": "probability", "links": "missing links"}
    extra = {field: head for field, head in extra.items() if any(getattr(row, field) for row in table.rows)}
    rows: list[str | list[Cell]] = []
    for row in table.rows:
        shown: dict[str, Cell] = {
            "status": row.status,
            "chance": row.chance,
            "links": [" ".join(link) for link in row.links],
        }
        rows.append([*row.cells, *(shown[field] for field in extra)])
    if table.left_out:
        rows.insert(min(table.left_out_at, len(rows)), table.left_out)
    rows += [[word.strip(), " ".join(link)] for word, link in table.facts]
    return html_table(table.head, [*table.columns, *extra.values()], rows)
