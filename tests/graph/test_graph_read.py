"""Files in, graph out."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from tests.graph.rivers import EXPECTED, NQUADS, NTRIPLES, RDFXML, TURTLE, E, named

from biqe.graph.read import choose_prefixes, read_graph
from biqe.graph.search import namespace_of
from biqe.graph.vocabulary import Vocabulary

File = Callable[[str, str | bytes], Path]


def test_several_formats_together_share_their_entities(file: File) -> None:
    paths = [file("a.nt", NTRIPLES), file("b.ttl", TURTLE), file("c.rdf", RDFXML), file("d.nq", NQUADS)]
    graph = read_graph(paths)
    assert named(graph) == EXPECTED
    assert graph.counts.duplicates == 6


def test_prefixes() -> None:
    vocabulary = Vocabulary([E + "a", E + "b", "http://other.org/c", "_:x"], ["http://r.org/r#p"])
    assert choose_prefixes(vocabulary, {}) == {"": E, "rel": "http://r.org/r#"}
    assert choose_prefixes(vocabulary, {"": "http://d/", "r": "http://r.org/r#"}) == {
        "": "http://d/",
        "r": "http://r.org/r#",
    }
    assert choose_prefixes(Vocabulary(["_:a"], ["r"]), {}) == {"": ""}
    assert namespace_of("plain") is None
