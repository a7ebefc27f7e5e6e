"""SPARQL 1.1 query results in JSON."""

from __future__ import annotations

import json
from typing import Any

from biqe.answer.result import XSD, Cell, Result, ResultTable, View, as_term
from biqe.graph.words import escaped_json

MEDIA_TYPE = "application/sparql-results+json"


def write(result: Result, view: View) -> str:
    """One document."""
    table = result.with_known(view.known_rows).as_table()
    if table.holds is not None:
        probability = {} if table.probability is None else {"probability": table.probability}
        return json.dumps({"head": {}, "boolean": table.holds, **probability}, indent=1) + "\n"
    document = _document(table)
    if table.compact:
        import orjson

        return escaped_json(orjson.dumps(document).decode()) + "\n"
    return escaped_json(json.dumps(document, ensure_ascii=False, indent=1)) + "\n"


def _document(table: ResultTable) -> dict[str, Any]:
    written: dict[Cell, dict[str, str]] = {}  # each different term is made once: rows repeat their entities
    bindings = []
    for row in table.rows:
        binding = {}
        for name, cell in zip(table.variables, row, strict=True):
            if cell is not None:
                if cell not in written:
                    written[cell] = _entry(cell)
                binding[name] = written[cell]
        bindings.append(binding)
    return {"head": {"vars": list(table.variables)}, "results": {"bindings": bindings}}


def _entry(cell: Cell) -> dict[str, str]:
    assert cell is not None
    term = as_term(cell)
    entry = {"type": term.kind, "value": term.value[2:] if term.kind == "bnode" else term.value}
    if term.language:
        entry["xml:lang"] = term.language
    elif term.kind == "literal" and term.datatype and term.datatype != XSD + "string":
        entry["datatype"] = term.datatype
    return entry
