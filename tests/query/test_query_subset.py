"""How long a text may be: less where it is read for a model than where the exact store reads it."""

from __future__ import annotations

import pytest

from biqe.errors import SparqlSyntax
from biqe.exact.store import ExactStore
from biqe.graph.knowledge_graph import Graph, Splits
from biqe.graph.triples import as_triples
from biqe.graph.vocabulary import Vocabulary
from biqe.knowledge_base import KnowledgeBase
from biqe.query.scan import MAX_WORDS, STORE_WORDS
from biqe.query.sparql import parse_question


@pytest.fixture
def town() -> Vocabulary:
    return Vocabulary(["Rhine", "Bonn"], ["on"])


def values(count: int) -> str:
    return f"SELECT ?c {{ ?c :on :Rhine VALUES ?c {{ {':Bonn ' * count} }} }}"


def test_the_exact_store_reads_longer_texts_than_a_model(town):
    store = ExactStore(Graph(town, as_triples([[1, 0, 0]])))
    text = values(MAX_WORDS + 100)
    with pytest.raises(SparqlSyntax, match=f"at most {MAX_WORDS:,} are read"):
        parse_question(text)
    assert {row[0].value for row in store.query(text).rows} == {"Bonn"}
    with pytest.raises(SparqlSyntax, match=f"at most {STORE_WORDS:,} are read"):
        store.query("SELECT * { VALUES ?c { " + "1 " * STORE_WORDS + "} }")


def test_known_mode_reads_them_too(town):
    kb = KnowledgeBase("town", Splits(town, as_triples([[1, 0, 0]])))
    assert {row.c for row in kb.ask(values(MAX_WORDS + 100), mode="known")} == {"Bonn"}
    with pytest.raises(SparqlSyntax, match=f"at most {MAX_WORDS:,} are read"):
        kb.ask(values(MAX_WORDS + 100))
