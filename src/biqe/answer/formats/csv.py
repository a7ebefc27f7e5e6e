"""SPARQL 1.1 CSV: IRIs without brackets, quoted where needed, lines ended by CR LF."""

from __future__ import annotations

import csv
import io

from biqe.answer.result import Cell, Result, Term, View, absolute

MEDIA_TYPE = "text/csv"


def write(result: Result, view: View) -> str:
    """A line of names, then a line for each row."""
    table = result.with_known(view.known_rows).as_table()
    text = io.StringIO()
    writer = csv.writer(text)
    if table.holds is not None and not table.variables:
        writer.writerows([["boolean"], [str(table.holds).lower()]])
    else:
        writer.writerow(table.variables)
        writer.writerows([_value(cell) for cell in row] for row in table.rows)
    return text.getvalue()


def _value(cell: Cell) -> str:
    if isinstance(cell, Term):
        return absolute(cell).value
    return "" if cell is None else cell if isinstance(cell, str) else repr(cell)
