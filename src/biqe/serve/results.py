"""Answers as they go over the wire: the standard result formats, with absolute IRIs.

A graph may call an entity Rhine, which is no IRI; on the wire it is ``urn:biqe:name:Rhine``, and a query may write it
so.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from biqe.answer.combine import KNOWN
from biqe.answer.formats import XSD, escaped_json, patterns
from biqe.answer.result import Answers
from biqe.answer.terms import TermTable, json_term
from biqe.exact.store import Solutions, Term, iri_of, node_of

if TYPE_CHECKING:
    from biqe.answer.result import Row

EXTRA = ("probability", "status", "missing")
"""Columns that a client may ask for: how probable a row is, whether it is known or predicted, and what it lacks."""

ROWS = {
    "json": "application/sparql-results+json",
    "xml": "application/sparql-results+xml",
    "csv": "text/csv",
    "tsv": "text/tab-separated-values",
}
TRIPLES = {
    "turtle": "text/turtle",
    "nt": "application/n-triples",
    "rdf": "application/rdf+xml",
    "jsonld": "application/ld+json",
}
"""Media types by the short name that the parameter ``format`` takes, the preferred one first."""
_WRITERS = {"json": "sparql-json", "xml": "xml", "csv": "csv", "tsv": "tsv"}


@dataclass(frozen=True)
class Table:
    """Rows of terms in the graph's own names; or, for ASK, a truth value."""

    variables: tuple[str, ...]
    rows: tuple[tuple[Term | None, ...], ...]
    holds: bool | None = None
    complete: bool = True
    """False where rows are left out that the query asked for."""
    probability: float | None = None
    """For ASK: how probable it is; None where nobody can say."""
    expected: str | None = None
    """For COUNT: how many more the model expects, where the rows do not say so."""
    note: str = ""
    """What there is to say about the rows, such as that an entity cannot be predicted yet."""

    def cut(self, most: int) -> Table:
        """At most this many rows."""
        if len(self.rows) <= most:
            return self
        return replace(self, rows=self.rows[:most], complete=False)


@dataclass(frozen=True)
class Document:
    """Rows or triples as they go over the wire."""

    body: bytes
    rows: int
    complete: bool

    @classmethod
    def of(cls, table: Table, form: str) -> Document:
        """``form`` is one of ROWS or TRIPLES."""
        body = write_triples(table, form) if form in TRIPLES else write_rows(table, form).encode()
        return cls(body, len(table.rows), table.complete)


def is_cut(found: Answers | TermTable) -> bool:
    """Whether there are known rows that were not read, and not because the query's own LIMIT or OFFSET says so."""
    return not found.complete if isinstance(found, TermTable) else found.rows.known_capped


def table_of(found: Answers | TermTable | Solutions | bool, extra: Sequence[str]) -> Table:
    """The rows, with the extra columns after the variables. A variable that is called like one keeps its place.

    COUNT is one row, as every client expects; where it asks for the status, what the model expects is another.
    """
    if isinstance(found, bool):
        return Table((), (), found)
    if isinstance(found, Solutions):
        told = {"probability": _number(1.0), "status": Term("literal", "known"), "missing": Term("literal", "")}
        added = [name for name in extra if name not in found.variables]
        more = tuple(told[name] for name in added)
        rows = tuple((*row, *more) for row in found.rows) if more else found.rows
        return Table((*found.variables, *added), rows, complete=found.complete)
    if isinstance(found, TermTable) and found.holds is not None:
        return Table((), (), found.holds)
    if isinstance(found, Answers) and found.form == "ASK":
        probability = max((row.probability for row in found), default=None)
        return Table((), (), found.holds, probability=probability, note=found.note)
    added = [name for name in extra if name not in found.variables]
    if isinstance(found, TermTable):
        counted = [row for row in found if row.status == KNOWN]
        shown = counted if counted and "status" not in added else found
        lines = [(*row.terms.values(), *_told(row, added)) for row in shown]
        expected = next((str(row[found.variables[0]]) for row in found if row.status != KNOWN), None)
        return Table(
            (*found.variables, *added), tuple(lines), complete=found.complete, expected=expected, note=found.note
        )
    vocabulary_terms = {entity: _entity(found.name(entity)) for row in found for entity in row.ids}
    lines = [(*(vocabulary_terms[entity] for entity in row.ids), *_told(row, added)) for row in found]
    return Table((*found.variables, *added), tuple(lines), complete=not is_cut(found), note=found.note)


def _told(row: Row | Any, extra: Iterable[str]) -> list[Term | None]:
    values: list[Term | None] = []
    for name in extra:
        if name == "probability":
            values.append(None if row.probability is None else _number(row.probability))
        else:
            values.append(Term("literal", row.status if name == "status" else patterns(row.missing)))
    return values


def _number(value: float) -> Term:
    return Term("literal", repr(float(value)), XSD + "double")


def _entity(name: str) -> Term:
    return Term("bnode", name) if node_is_blank(name) else Term("uri", name)


def node_is_blank(name: str) -> bool:
    """Whether the store has this name as a blank node."""
    from pyoxigraph import BlankNode

    return name.startswith("_:") and isinstance(node_of(name), BlankNode)


def node(term: Term) -> Any:
    """A term as pyoxigraph has it."""
    from pyoxigraph import Literal, NamedNode

    if term.kind != "literal":
        return node_of(term.value) if term.kind == "bnode" else iri_of(term.value)
    if term.language:
        return Literal(term.value, language=term.language)
    return Literal(term.value, datatype=NamedNode(term.datatype) if term.datatype else None)


def write_rows(table: Table, form: str) -> str:
    """Rows or a truth value in one of ROWS."""
    if form == "json" and table.holds is None:
        return _json_rows(table)
    rows = tuple(tuple(None if term is None else _absolute(term) for term in row) for row in table.rows)
    known = ("known",) * len(rows)
    return TermTable("", table.variables, rows, known, table.holds).write(_WRITERS[form])


def _json_rows(table: Table) -> str:
    """SPARQL JSON without line breaks, each different term made once: rows repeat their entities."""
    import orjson

    written: dict[Term, dict[str, str]] = {}
    bindings = []
    for row in table.rows:
        binding = {}
        for name, term in zip(table.variables, row, strict=True):
            if term is not None:
                if term not in written:
                    written[term] = json_term(_absolute(term))
                binding[name] = written[term]
        bindings.append(binding)
    document = {"head": {"vars": table.variables}, "results": {"bindings": bindings}}
    return escaped_json(orjson.dumps(document).decode()) + "\n"


def _absolute(term: Term) -> Term:
    return Term("uri", iri_of(term.value).value) if term.kind == "uri" else term


def write_triples(table: Table, form: str) -> bytes:
    """Triples of a CONSTRUCT or DESCRIBE in one of TRIPLES."""
    from pyoxigraph import RdfFormat, Triple, serialize

    triples = [Triple(*(node(term) for term in row if term is not None)) for row in table.rows]
    chosen = {
        "turtle": RdfFormat.TURTLE,
        "nt": RdfFormat.N_TRIPLES,
        "rdf": RdfFormat.RDF_XML,
        "jsonld": RdfFormat.JSON_LD,
    }[form]
    return serialize(triples, format=chosen) or b""
