"""The order of rows: SPARQL's own under ORDER BY, by label without; and of all known rows, however many there are."""

from __future__ import annotations

from itertools import product

import pyoxigraph
import pytest

from biqe.errors import BiqeError
from biqe.graph.knowledge_graph import Splits
from biqe.graph.triples import as_triples
from biqe.graph.vocabulary import Vocabulary
from biqe.knowledge_base import KnowledgeBase

EX = "http://ex.org/"
NAMES = ["zoo", "Apfel", "b", "Zebra", "\u00e9", "\u00c9", "x10", "x2", "a_b", "a-b", "\u5317\u4eac", "apfel"]
LABELS = {0: "aaa", 1: "Zzz"}


@pytest.fixture(scope="module")
def kb() -> KnowledgeBase:
    count = len(NAMES)
    triples = [(s, 0, o) for s in range(count) for o in range(count) if (3 * s + 5 * o) % 4]
    vocabulary = Vocabulary([EX + name for name in NAMES], [f"{EX}p"], LABELS)
    return KnowledgeBase("names", Splits(vocabulary, as_triples(triples)), prefixes={"": EX})


def rows(kb: KnowledgeBase, text: str) -> list[tuple[str, ...]]:
    return [tuple(row.values.values()) for row in kb.ask(text, mode="known")]


KEYS = ["?x ?y", "DESC(?x) ?y", "(?y) DESC((?x))", "DESC(?y) ASC(?x)"]
BODIES = [
    "{ ?x :p ?y }",
    "{ ?x :p ?h . ?h :p ?y FILTER(?h != :zoo) }",
    "{ { ?x :p :zoo . ?x :p ?y } UNION { ?y :p ?x . ?x :p :b } }",
]


@pytest.mark.parametrize(("body", "keys"), list(product(BODIES, KEYS)))
@pytest.mark.parametrize("slice_", ["", "LIMIT 7", "OFFSET 9", "LIMIT 5 OFFSET 20"])
def test_order_by_is_that_of_a_sparql_store(kb, body, keys, slice_):
    store = pyoxigraph.Store()
    nodes = [pyoxigraph.NamedNode(name) for name in kb.vocabulary.entities]
    for s, _, o in kb.graph.triples.tolist():
        store.add(pyoxigraph.Quad(nodes[s], pyoxigraph.NamedNode(f"{EX}p"), nodes[o]))
    text = f"SELECT DISTINCT ?x ?y {body} ORDER BY {keys} {slice_}"
    found = store.query(f"PREFIX : <{EX}> {text}")
    assert rows(kb, text) == [(row["x"].value, row["y"].value) for row in found]


def test_blank_nodes_come_before_names_and_plain_names_are_in_the_order_of_their_iris():
    vocabulary = Vocabulary(["a b", "a", "_:z", "B", "http://ex.org/a"], ["p"])
    splits = Splits(vocabulary, as_triples([(number, 0, 1) for number in range(5)]))
    kb = KnowledgeBase("mixed", splits)
    assert rows(kb, "SELECT ?x { ?x :p :a } ORDER BY ?x") == [("_:z",), ("http://ex.org/a",), ("B",), ("a",), ("a b",)]
    # The exact store, which answers whatever is beyond the subset, has the same order.
    assert rows(kb, "SELECT ?x { ?x :p :a OPTIONAL { ?x :p :B } } ORDER BY ?x")[1:] == [
        ("http://ex.org/a",),
        ("B",),
        ("a",),
        ("a b",),
    ]


def test_without_order_by_rows_are_alphabetical_by_what_is_shown(kb):
    found = [row.labels["x"] for row in kb.ask("SELECT ?x { ?x :p :b }", mode="known")]
    assert found == sorted(found, key=str.casefold) and found[0] == "aaa" and found[-1] == "Zzz"


@pytest.mark.parametrize("body", BODIES)
@pytest.mark.parametrize("keys", KEYS)
def test_the_first_rows_of_an_order_are_the_first_of_all_known_rows(kb, body, keys, monkeypatch):
    text = f"SELECT ?x ?y {body} ORDER BY {keys}"
    every = rows(kb, text)
    monkeypatch.setattr("biqe.answer.execute.KNOWN_ROWS", 6)
    assert rows(kb, f"{text} LIMIT 4") == every[:4]
    answers = kb.ask(text, mode="known")
    assert [tuple(row.values.values()) for row in answers] == every[:6]
    assert answers.rows.known_capped and not answers.known_complete


@pytest.mark.parametrize("body", BODIES[:2])
def test_more_known_rows_than_can_be_put_in_order_are_an_error(kb, body, monkeypatch):
    monkeypatch.setattr("biqe.answer.execute.MAX_ROWS", 20)
    with pytest.raises(BiqeError, match="too many known rows to put in order") as error:
        rows(kb, f"SELECT ?x ?y {body} ORDER BY ?x LIMIT 3")
    assert "leave ORDER BY out" in str(error.value.hint)
    assert len(rows(kb, f"SELECT ?x ?y {body} LIMIT 3")) == 3
