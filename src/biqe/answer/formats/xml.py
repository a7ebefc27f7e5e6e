"""SPARQL query results in XML. Characters that XML does not have are written as %XX."""

from __future__ import annotations

import re

from biqe.answer.result import XSD, Cell, Result, View, as_term
from biqe.graph.words import RAW_CONTROLS

MEDIA_TYPE = "application/sparql-results+xml"
RESULTS = "http://www.w3.org/2005/sparql-results#"


def write(result: Result, view: View) -> str:
    """One document."""
    table = result.with_known(view.known_rows).as_table()
    lines = ['<?xml version="1.0" encoding="UTF-8"?>', f'<sparql xmlns="{RESULTS}">', "<head>"]
    if table.holds is not None:
        return "\n".join([*lines, "</head>", f"<boolean>{str(table.holds).lower()}</boolean>", "</sparql>"]) + "\n"
    lines += [f'<variable name="{name}"/>' for name in table.variables]
    lines += ["</head>", "<results>"]
    break_ = "\n" if table.spread else ""
    for row in table.rows:
        pairs = zip(table.variables, row, strict=True)
        cells = [f'<binding name="{name}">{_element(cell)}</binding>' for name, cell in pairs if cell is not None]
        lines.append(break_.join(["<result>", *cells, "</result>"]))
    return "\n".join([*lines, "</results>", "</sparql>"]) + "\n"


def _element(cell: Cell) -> str:
    assert cell is not None
    term = as_term(cell)
    if term.kind != "literal":
        value = term.value[2:] if term.kind == "bnode" else term.value
        return f"<{term.kind}>{_text(value)}</{term.kind}>"
    about = ""
    if term.language:
        about = f' xml:lang="{term.language}"'
    elif term.datatype and term.datatype != XSD + "string":
        about = f' datatype="{_text(term.datatype)}"'
    return f"<literal{about}>{_text(term.value)}</literal>"


def _text(text: str) -> str:
    text = re.sub("[\x00-\x08\x0b\x0c\x0e-\x1f\ufffe\uffff]", lambda match: f"%{ord(match[0]):02X}", text)
    # As character references: a parser would turn CR into LF, and a terminal would obey the others.
    text = text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;").replace("\r", "&#13;")
    return RAW_CONTROLS.sub(lambda match: f"&#{ord(match[0])};", text)
