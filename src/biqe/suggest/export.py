"""Suggestions as files: TSV, Turtle, and RDF 1.2 with probability, model and reason of each link."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from biqe.exact.store import iri_of, node_of
from biqe.query.question import is_absolute
from biqe.suggest.suggester import Suggestion, Suggestions

if TYPE_CHECKING:
    import pyoxigraph

HEADER = ("subject", "relation", "object", "probability", "model", "why")
NAMESPACE = "urn:biqe:"
"""Namespace of the properties that annotate a link."""
RDF = "http://www.w3.org/1999/02/22-rdf-syntax-ns#"
PLAIN_NAMES = "urn:biqe:name:"


def tsv(found: Suggestions, prefixes: Mapping[str, str]) -> str:
    """A header and a line for each link, in names of the graph; ``biqe import`` reads the first three columns."""
    lines = [HEADER]
    lines += [
        (one.subject, one.relation, one.object, f"{one.probability:.6f}", found.model, re.sub(r"\s+", " ", one.why))
        for one in found
    ]
    return "".join("\t".join(line) + "\n" for line in lines)


def as_json(found: Suggestions, prefixes: Mapping[str, str]) -> str:
    """One document."""
    return json.dumps(document(found), indent=2, ensure_ascii=False) + "\n"


def document(found: Suggestions) -> dict[str, Any]:
    """The suggestions in plain values."""
    rows = [
        {
            "subject": one.subject,
            "relation": one.relation,
            "object": one.object,
            "labels": list(one.labels),
            "probability": one.probability,
            "why": one.why,
        }
        for one in found
    ]
    return {"model": found.model, "note": found.note, "seconds": round(found.seconds, 3), "suggestions": rows}


def turtle(found: Suggestions, prefixes: Mapping[str, str]) -> str:
    """The links themselves, as facts."""
    return _serialized((_triple(one) for one in found), prefixes)


def rdf12(found: Suggestions, prefixes: Mapping[str, str]) -> str:
    """RDF 1.2: nothing is stated of the links but their probability, the model and the reason."""
    return _serialized((statement for one in found for statement in _annotations(one, found.model)), prefixes)


FORMATS: dict[str, tuple[str, Callable[[Suggestions, Mapping[str, str]], str]]] = {
    "tsv": (".tsv", tsv),
    "turtle": (".ttl", turtle),
    "rdf12": (".ttl", rdf12),
    "json": (".json", as_json),
}
"""Endings and writers; of two formats with one ending, the ending means the first."""


def _triple(one: Suggestion) -> pyoxigraph.Triple:
    from pyoxigraph import Triple

    return Triple(node_of(one.subject), iri_of(one.relation), node_of(one.object))


def _annotations(one: Suggestion, model: str) -> Iterator[pyoxigraph.Triple]:
    from pyoxigraph import BlankNode, Literal, NamedNode, Triple

    decimal = NamedNode("http://www.w3.org/2001/XMLSchema#decimal")
    about = BlankNode()
    yield Triple(about, NamedNode(RDF + "reifies"), _triple(one))
    yield Triple(about, NamedNode(NAMESPACE + "probability"), Literal(f"{one.probability:.6f}", datatype=decimal))
    yield Triple(about, NamedNode(NAMESPACE + "model"), Literal(model))
    yield Triple(about, NamedNode(NAMESPACE + "why"), Literal(one.why))


def _serialized(triples: Iterator[pyoxigraph.Triple], prefixes: Mapping[str, str]) -> str:
    from pyoxigraph import RdfFormat, serialize

    given = {"biqe": NAMESPACE, "rdf": RDF, "": PLAIN_NAMES}
    given |= {name: namespace for name, namespace in prefixes.items() if is_absolute(namespace)}
    written = serialize(triples, format=RdfFormat.TURTLE, prefixes=given)
    assert written is not None  # no file was given to write to
    return written.decode()


def links_of(lines: Sequence[str]) -> Iterator[tuple[str, str, str]]:
    """The links of a file that ``tsv`` wrote, of its whole lines."""
    for line in lines:
        parts = line.rstrip("\r\n").split("\t")
        if len(parts) == len(HEADER) and tuple(parts) != HEADER:
            yield parts[0], parts[1], parts[2]
