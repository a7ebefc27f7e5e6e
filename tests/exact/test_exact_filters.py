"""Rows that pass conditions: as if all matches were listed and judged, however many there are."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pyoxigraph
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from biqe.exact import filters as module
from biqe.exact.answers import tuples
from biqe.exact.filters import Filters, columns_of, filtered_rows
from biqe.graph.knowledge_graph import Graph
from biqe.graph.vocabulary import Vocabulary
from biqe.query.bind import bind_question
from biqe.query.sparql import parse_question

ENTITIES = 6
TEXTS = [
    "SELECT ?a {{ ?a :r ?b . ?c :s ?b FILTER({}) }}",
    "SELECT ?a ?c {{ ?a :r ?b . ?c :s ?b FILTER({}) }}",
    "SELECT ?b {{ ?a :r ?b . ?c :s ?d FILTER({}) }}",
    "ASK {{ ?a :r ?b . ?c :s ?d . ?d :r ?a FILTER({}) }}",
]
CONDITIONS = [
    "?a = :e1",
    "?a != ?c",
    "?a = ?c",
    "?b IN (:e0, :e2, :e3)",
    "(?a = :e1 && ?b = :e2) || (?a = :e3 && ?c = :e0)",
    "regex(?b, '[135]') && ?c != :e4",
    "!(?a = :e0) || ?b = :e1",
    "STR(?a) < STR(?c)",
]
triples = st.lists(
    st.tuples(st.integers(0, ENTITIES - 1), st.integers(0, 1), st.integers(0, ENTITIES - 1)), min_size=1, max_size=40
)


def graph_of(rows: list[tuple[int, int, int]]) -> Graph:
    vocabulary = Vocabulary([f"e{number}" for number in range(ENTITIES)], ["r", "s"])
    return Graph(vocabulary, np.array(sorted(set(rows)), np.int32))


@settings(max_examples=150, deadline=None)
@given(rows=triples, text=st.sampled_from(TEXTS), condition=st.sampled_from(CONDITIONS), few=st.booleans())
def test_as_if_all_matches_were_listed(
    monkeypatch_module: pytest.MonkeyPatch, rows: list[tuple[int, int, int]], text: str, condition: str, few: bool
) -> None:
    """With room for two matches at a time every variable is taken value by value; the rows stay the same."""
    graph = graph_of(rows)
    branch = bind_question(parse_question(text.format(condition)), graph.vocabulary).branches[0]
    filters = Filters(branch.filters, graph)
    width = len(branch.query.targets)
    monkeypatch_module.setattr(module, "LISTED", 2 if few else 1_000_000)
    monkeypatch_module.setattr(module, "FIRST", 1 if few else 1_000)
    monkeypatch_module.setattr(module, "FEW", 1 if few else 16)
    found, complete = filtered_rows(graph, branch.wide, filters, width, limit=1_000_000)
    every = tuples(graph, branch.wide)
    passed = every[filters.passes(columns_of(branch.wide, every), len(every))]
    expected = np.unique(passed[:, :width], axis=0) if width else passed[:1, :0]
    assert complete
    np.testing.assert_array_equal(found[:, :width], expected)
    assert filters.passes(columns_of(branch.wide, found), len(found)).all()


@pytest.fixture(scope="module")
def monkeypatch_module() -> Iterator[pytest.MonkeyPatch]:
    with pytest.MonkeyPatch.context() as patch:
        yield patch


@settings(max_examples=60, deadline=None)
@given(
    rows=triples,
    negated=st.sampled_from(
        ["?a :s ?b", "?a :s :e1", "?b :r ?own . ?own :s ?a", "?own :s :e0", ":e1 :r :e2", "?b :r ?b"]
    ),
    word=st.sampled_from(["FILTER NOT EXISTS", "MINUS"]),
    form=st.sampled_from(["SELECT ?a", "SELECT ?a ?b", "SELECT ?b"]),
)
def test_what_must_not_hold_is_what_another_engine_leaves_out(rows, negated: str, word: str, form: str) -> None:
    """pyoxigraph, on the same text."""
    graph = graph_of(rows)
    text = f"{form} {{ ?a :r ?b {word} {{ {negated} }} }}"
    branch = bind_question(parse_question(text), graph.vocabulary).branches[0]
    width = len(branch.query.targets)
    found, complete = filtered_rows(graph, branch.wide, Filters(branch.filters, graph), width, limit=1_000)
    store = pyoxigraph.Store()
    node = {name: pyoxigraph.NamedNode(f"urn:x:{name}") for name in (*graph.vocabulary.entities, "r", "s")}
    for s, r, o in graph.triples.tolist():
        store.add(pyoxigraph.Quad(node[f"e{s}"], node["rs"[r]], node[f"e{o}"]))
    expected = {tuple(term.value for term in row) for row in store.query(f"PREFIX : <urn:x:> {text}")}
    assert complete and {tuple(f"urn:x:e{entity}" for entity in row[:width]) for row in found.tolist()} == expected


def test_says_where_it_stopped() -> None:
    graph = graph_of([(a, 0, b) for a in range(ENTITIES) for b in range(ENTITIES)])
    branch = bind_question(parse_question("SELECT ?a ?b { ?a :r ?b FILTER(?a != ?b) }"), graph.vocabulary).branches[0]
    filters = Filters(branch.filters, graph)
    rows, complete = filtered_rows(graph, branch.wide, filters, 2, limit=7)
    assert (len(rows), complete) == (7, False)
    rows, complete = filtered_rows(graph, branch.wide, filters, 2, limit=30)
    assert (len(rows), complete) == (30, True)
