"""The SPARQL 1.1 Service Description of the endpoint, with the counts of its graph (VoID)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from biqe.serve.config import ServeConfig
from biqe.serve.federate import PREDICT
from biqe.serve.requests import GRAPH

if TYPE_CHECKING:
    from biqe.serve.engine import Engine

SD = "http://www.w3.org/ns/sparql-service-description#"
VOID = "http://rdfs.org/ns/void#"
FORMATS = "http://www.w3.org/ns/formats/"
RDF_TYPE = "http://www.w3.org/1999/02/22-rdf-syntax-ns#type"
RESULT_FORMATS = (
    *(f"SPARQL_Results_{name}" for name in ("JSON", "XML", "CSV", "TSV")),
    *("Turtle", "N-Triples", "RDF_XML", "JSON-LD"),
)
_RDF = {"turtle": "TURTLE", "nt": "N_TRIPLES", "rdf": "RDF_XML", "jsonld": "JSON_LD"}


def describe(engine: Engine, config: ServeConfig, endpoint: str, form: str) -> bytes:
    """The description of the service at ``endpoint``, in one of the formats TRIPLES of ``results``."""
    from pyoxigraph import BlankNode, Literal, NamedNode, RdfFormat, Triple, serialize

    service, dataset, graph = BlankNode("service"), BlankNode("dataset"), NamedNode(GRAPH)
    triples: list[Any] = []

    def add(subject: Any, predicate: str, value: Any) -> None:
        triples.append(Triple(subject, NamedNode(predicate), value))

    add(service, RDF_TYPE, NamedNode(SD + "Service"))
    add(service, SD + "endpoint", NamedNode(endpoint))
    add(service, SD + "supportedLanguage", NamedNode(SD + "SPARQL11Query"))
    if not config.read_only and engine.live is not None:
        add(service, SD + "supportedLanguage", NamedNode(SD + "SPARQL11Update"))
    for name in RESULT_FORMATS:
        add(service, SD + "resultFormat", NamedNode(FORMATS + name))
    if engine.kb.model_folder is not None:
        add(service, SD + "feature", NamedNode(PREDICT))
    add(service, SD + "defaultDataset", dataset)
    add(dataset, RDF_TYPE, NamedNode(SD + "Dataset"))
    add(dataset, SD + "defaultGraph", graph)
    add(graph, RDF_TYPE, NamedNode(SD + "Graph"))
    now, used, _ = engine.graph
    entities, relations = (now.entity_count, now.relation_count) if used is None else (int(part.sum()) for part in used)
    for name, count in (("triples", len(now.triples)), ("entities", entities), ("properties", relations)):
        add(graph, VOID + name, Literal(count))
    chosen = getattr(RdfFormat, _RDF[form])
    return serialize(triples, format=chosen, prefixes={"sd": SD, "void": VOID, "format": FORMATS}) or b""
