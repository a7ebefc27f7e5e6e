"""An HTML table to paste into a page or an e-mail: what the table for people has, with every name escaped."""

from __future__ import annotations

import html
from collections.abc import Sequence

from biqe.answer.result import Result, View
from biqe.explain.words import visible


def write(result: Result, view: View) -> str:
    """One table element, with the lines above the table as its caption."""
    table = result.as_text(view)
    has_status, has_chance, has_links = (
        any(getattr(row, name) for row in table.rows) for name in ("status", "chance", "links")
    )
    lines = ["<table>", f"<caption>{'<br>'.join(map(_escaped, table.head))}</caption>"]
    extra = [("status", has_status), ("probability", has_chance), ("missing links", has_links)]
    heads = [*table.columns, *(name for name, is_there in extra if is_there)]
    lines += [f"<thead>{_row('th', heads)}</thead>", "<tbody>"] if heads else ["<tbody>"]
    for number, row in enumerate(table.rows):
        if table.left_out and number == table.left_out_at:
            lines.append(_spanning(table.left_out, len(heads)))
        cells = [_escaped(cell) for cell in row.cells]
        cells += [_escaped(row.status)] if has_status else []
        cells += [_escaped(row.chance)] if has_chance else []
        cells += ["<br>".join(_escaped(" ".join(link)) for link in row.links)] if has_links else []
        lines.append(f"<tr>{''.join(f'<td>{cell}</td>' for cell in cells)}</tr>")
    if table.left_out and table.left_out_at >= len(table.rows):
        lines.append(_spanning(table.left_out, len(heads)))
    lines += [_row("td", [word.strip(), " ".join(link)]) for word, link in table.facts]
    return "\n".join([*lines, "</tbody>", "</table>"]) + "\n"


def _row(tag: str, cells: Sequence[str]) -> str:
    return f"<tr>{''.join(f'<{tag}>{_escaped(cell)}</{tag}>' for cell in cells)}</tr>"


def _spanning(text: str, columns: int) -> str:
    return f'<tr><td colspan="{columns}">{_escaped(text)}</td></tr>'


def _escaped(text: str) -> str:
    return html.escape(visible(text))
