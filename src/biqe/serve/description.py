"""What the endpoint says about itself: a SPARQL 1.1 Service Description, with the counts of its graph (VoID)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from biqe.serve.config import ServeConfig
from biqe.serve.federate import PREDICT
from biqe.serve.requests import GRAPH
from biqe.serve.results import TRIPLES

if TYPE_CHECKING:
    from biqe.graph.knowledge_graph import Graph
    from biqe.serve.engine import Engine
    from biqe.serve.facts import Used

SD = "http://www.w3.org/ns/sparql-service-description#"
VOID = "http://rdfs.org/ns/void#"
FORMATS = "http://www.w3.org/ns/formats/"
RDF_TYPE = "http://www.w3.org/1999/02/22-rdf-syntax-ns#type"
RESULT_FORMATS = (
    "SPARQL_Results_JSON",
    "SPARQL_Results_XML",
    "SPARQL_Results_CSV",
    "SPARQL_Results_TSV",
    "Turtle",
    "N-Triples",
    "RDF_XML",
    "JSON-LD",
)
_RDF = {"turtle": "TURTLE", "nt": "N_TRIPLES", "rdf": "RDF_XML", "jsonld": "JSON_LD"}


def describe(engine: Engine, config: ServeConfig, endpoint: str, form: str) -> bytes:
    """The description of the service at ``endpoint``, in one of TRIPLES."""
    from pyoxigraph import BlankNode, Literal, NamedNode, RdfFormat, Triple, serialize

    assert form in TRIPLES
    service, dataset, graph = BlankNode("service"), BlankNode("dataset"), NamedNode(GRAPH)
    triples: list[Any] = []

    def say(subject: Any, predicate: str, value: Any) -> None:
        triples.append(Triple(subject, NamedNode(predicate), value))

    say(service, RDF_TYPE, NamedNode(SD + "Service"))
    say(service, SD + "endpoint", NamedNode(endpoint))
    say(service, SD + "supportedLanguage", NamedNode(SD + "SPARQL11Query"))
    if not config.read_only and engine.live is not None:
        say(service, SD + "supportedLanguage", NamedNode(SD + "SPARQL11Update"))
    for name in RESULT_FORMATS:
        say(service, SD + "resultFormat", NamedNode(FORMATS + name))
    if engine.kb.model_folder is not None:
        say(service, SD + "feature", NamedNode(PREDICT))
    say(service, SD + "defaultDataset", dataset)
    say(dataset, RDF_TYPE, NamedNode(SD + "Dataset"))
    say(dataset, SD + "defaultGraph", graph)
    say(graph, RDF_TYPE, NamedNode(SD + "Graph"))
    for name, count in counts(engine).items():
        say(graph, VOID + name, Literal(count))
    chosen = getattr(RdfFormat, _RDF[form])
    return serialize(triples, format=chosen, prefixes={"sd": SD, "void": VOID, "format": FORMATS}) or b""


def counts(engine: Engine) -> dict[str, int]:
    """Numbers of the graph as it is now, by their names in VoID."""
    graph, used = current_graph(engine)
    entities, relations = (
        (graph.entity_count, graph.relation_count) if used is None else (int(part.sum()) for part in used)
    )
    return {"triples": len(graph.triples), "entities": entities, "properties": relations}


def current_graph(engine: Engine) -> tuple[Graph, Used | None]:
    """The graph as it is now, with all changes, and which of its names are in use; None for all of them."""
    if engine.live is None:
        return engine.kb.graph, None
    view = engine.live.snapshot()
    return view.graph, view.used
