"""SPARQL 1.1 TSV: terms as in Turtle."""

from __future__ import annotations

import re

from biqe.answer.result import XSD, Cell, Result, View, as_term, turtle_name

MEDIA_TYPE = "text/tab-separated-values"


def write(result: Result, view: View) -> str:
    """A line of variables, then a line for each row."""
    table = result.with_known(view.known_rows).as_table()
    if table.holds is not None and not table.variables:
        return f"?boolean\n{str(table.holds).lower()}\n"
    lines = ["\t".join(f"?{name}" for name in table.variables)]
    lines += ["\t".join(map(_turtle, row)) for row in table.rows]
    return "\n".join(lines) + "\n"


def _turtle(cell: Cell) -> str:
    if cell is None:
        return ""
    if isinstance(cell, float):
        return f"{cell:.9e}"
    term = as_term(cell)
    if term.kind != "literal":
        return turtle_name(term.value)
    if term.datatype == XSD + "integer" and re.fullmatch(r"[+-]?[0-9]+", term.value):
        return term.value
    escaped = term.value.replace("\\", "\\\\").replace('"', '\\"')
    for character, letter in (("\t", "t"), ("\n", "n"), ("\r", "r")):
        escaped = escaped.replace(character, "\\" + letter)
    escaped = re.sub("[\x00-\x1f\x7f-\x9f]", lambda found: f"\\u{ord(found[0]):04X}", escaped)
    plain = term.datatype in (None, XSD + "string")
    return f'"{escaped}"' + (f"@{term.language}" if term.language else "" if plain else f"^^<{term.datatype}>")
