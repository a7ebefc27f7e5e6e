"""Answers as the endpoint writes them: the standard result formats, with absolute IRIs.

A graph may call an entity Rhine, which is no IRI; the endpoint writes ``urn:biqe:name:Rhine``, and a query may write it
so.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from biqe.answer import formats
from biqe.answer.answers import Answers, Row
from biqe.answer.result import KNOWN, ResultTable, View, entity_term, number_term, patterns
from biqe.answer.terms import TermRow, TermTable
from biqe.exact.store import Solutions, Term, iri_of, node_of

EXTRA = ("probability", "status", "missing")
"""Columns that a client may ask for: how probable a row is, whether it is known or predicted, and what it lacks."""

_PREFERRED = ("json", "xml", "csv", "tsv")
_FORMATS = {name.removeprefix("sparql-"): name for name in formats.names() if name != "json"}
"""Formats of answers by the short name that the parameter ``format`` takes."""
ROWS: dict[str, str] = {
    name: formats.module_of(_FORMATS[name]).MEDIA_TYPE
    for name in (*_PREFERRED, *(name for name in _FORMATS if name not in _PREFERRED))
    if hasattr(formats.module_of(_FORMATS[name]), "MEDIA_TYPE")
}
TRIPLES = {
    "turtle": "text/turtle",
    "nt": "application/n-triples",
    "rdf": "application/rdf+xml",
    "jsonld": "application/ld+json",
}
"""Media types by the short name that the parameter ``format`` takes, the preferred one first."""


@dataclass(frozen=True)
class Document:
    """Rows or triples as they go to a client."""

    body: bytes
    rows: int
    complete: bool

    @classmethod
    def of(cls, table: ResultTable, form: str) -> Document:
        """``form`` is one of ROWS or TRIPLES."""
        body = write_triples(table, form) if form in TRIPLES else write_rows(table, form).encode()
        return cls(body, len(table.rows), table.complete)


def is_cut(found: Answers | TermTable) -> bool:
    """Whether there are known rows that were not read, and not because the query's own LIMIT or OFFSET says so."""
    return not found.complete if isinstance(found, TermTable) else found.rows.known_capped


def table_of(
    found: Answers | TermTable | Solutions | bool, extra: Sequence[str], most: int | None = None
) -> ResultTable:
    """The rows, ``most`` of them, with the extra columns after the variables. A variable that is called like one keeps
    its place.

    COUNT is one row, as every client expects; where it asks for the status, what the model expects is another.
    """
    if isinstance(found, bool):
        return ResultTable((), (), found)
    if isinstance(found, TermTable) and found.holds is not None:
        return ResultTable((), (), found.holds, found.as_table().probability, note=found.note)
    if isinstance(found, Answers) and found.form == "ASK":
        probability = max((row.probability for row in found), default=None)
        return ResultTable((), (), found.holds, probability, note=found.note)
    added = [name for name in extra if name not in found.variables]
    variables = (*found.variables, *added)
    if isinstance(found, Solutions):
        told = {"probability": number_term(1.0), "status": Term("literal", KNOWN), "missing": Term("literal", "")}
        more = tuple(told[name] for name in added)
        rows = tuple((*row, *more) for row in found.rows[:most]) if more else found.rows[:most]
        return ResultTable(variables, rows, complete=found.complete and len(rows) == len(found.rows))
    if isinstance(found, TermTable):
        counted = [row for row in found if row.status == KNOWN] if found.counted else []
        shown = (counted if counted and "status" not in added else found)[:most]
        lines = [(*row.terms.values(), *_extra(row, added)) for row in shown]
        expected = None
        if found.counted:
            expected = next((str(row[found.variables[0]]) for row in found if row.status != KNOWN), None)
        complete = found.complete and (most is None or len(found) <= most)
        return ResultTable(variables, lines, complete=complete, expected=expected, note=found.note)
    page = found[:most]
    terms = {entity: entity_term(found.name(entity)) for row in page for entity in row.ids}
    lines = [(*(terms[entity] for entity in row.ids), *_extra(row, added)) for row in page]
    return ResultTable(variables, lines, complete=not is_cut(found) and len(page) == len(found), note=found.note)


def _extra(row: Row | TermRow, extra: Iterable[str]) -> list[Term | None]:
    values: list[Term | None] = []
    for name in extra:
        if name == "probability":
            values.append(None if row.probability is None else number_term(row.probability))
        else:
            values.append(Term("literal", row.status if name == "status" else patterns(row.missing)))
    return values


def node(term: Term) -> Any:
    """A term as pyoxigraph has it."""
    from pyoxigraph import Literal, NamedNode

    if term.kind != "literal":
        return node_of(term.value) if term.kind == "bnode" else iri_of(term.value)
    if term.language:
        return Literal(term.value, language=term.language)
    return Literal(term.value, datatype=NamedNode(term.datatype) if term.datatype else None)


def write_rows(table: ResultTable, form: str) -> str:
    """Rows or a truth value in one of ROWS. How probable a truth value is, a header says."""
    return formats.write(replace(table, probability=None, compact=True), _FORMATS[form], View())


def write_triples(table: ResultTable, form: str) -> bytes:
    """Triples of a CONSTRUCT or DESCRIBE in one of TRIPLES."""
    from pyoxigraph import RdfFormat, Triple, serialize

    triples = [Triple(*(node(term) for term in row if isinstance(term, Term))) for row in table.rows]
    chosen = {
        "turtle": RdfFormat.TURTLE,
        "nt": RdfFormat.N_TRIPLES,
        "rdf": RdfFormat.RDF_XML,
        "jsonld": RdfFormat.JSON_LD,
    }[form]
    return serialize(triples, format=chosen) or b""
