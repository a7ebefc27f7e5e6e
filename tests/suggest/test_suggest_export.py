"""Suggestions as files: read back by the readers that their users have."""

from __future__ import annotations

import csv
import io

import pyoxigraph
import pytest
import rdflib

from biqe.exact.store import iri_of
from biqe.graph.read import read_graph
from biqe.suggest.export import FORMATS, NAMESPACE, RDF


@pytest.fixture
def found(suggester):
    return suggester.suggest(top=5)


def written(found, form, prefixes=None):
    return FORMATS[form][1](found, prefixes or {})


def test_tsv_is_imported_again(found, tmp_path):
    text = written(found, "tsv")
    rows = list(csv.reader(io.StringIO(text), delimiter="\t", quoting=csv.QUOTE_NONE))
    assert [row[:3] for row in rows[1:]] == [[one.subject, one.relation, one.object] for one in found]
    assert all(
        float(row[3]) == pytest.approx(one.probability, abs=1e-6) for row, one in zip(rows[1:], found, strict=True)
    )
    (tmp_path / "new.tsv").write_text(text)
    graph = read_graph([tmp_path / "new.tsv"])
    assert len(graph.splits["train"].triples) == 5
    assert graph.counts.ignored_columns == ["probability", "model", "why"]


def test_turtle_holds_the_links_as_facts(found):
    graph = rdflib.Graph().parse(data=written(found, "turtle", {"ex": "http://ex.org/"}), format="turtle")
    assert {tuple(map(str, triple)) for triple in graph} == {
        tuple(iri_of(name).value for name in (one.subject, one.relation, one.object)) for one in found
    }


def test_rdf_12_says_something_about_the_links_and_does_not_state_them(found):
    quads = list(pyoxigraph.parse(written(found, "rdf12").encode(), format=pyoxigraph.RdfFormat.TURTLE))
    assert len(quads) == 4 * len(found)
    about = {quad.subject: quad.object for quad in quads if quad.predicate.value == RDF + "reifies"}
    said = {
        (about[quad.subject].subject.value, about[quad.subject].object.value, quad.predicate.value): quad.object
        for quad in quads
        if quad.predicate.value != RDF + "reifies"
    }
    for one in found:
        subject, object_ = iri_of(one.subject).value, iri_of(one.object).value
        assert float(said[subject, object_, NAMESPACE + "probability"].value) == pytest.approx(
            one.probability, abs=1e-6
        )
        assert said[subject, object_, NAMESPACE + "why"].value == one.why
        assert said[subject, object_, NAMESPACE + "model"].value == "hybrid"
