"""Stored links: the graph's own index and the table of all pairs give what the triples say."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from biqe.graph.knowledge_graph import Graph
from biqe.graph.triples import as_triples
from biqe.graph.vocabulary import Vocabulary
from biqe.links.stored import StoredLinks

ENTITIES, RELATIONS = 6, 2
VOCABULARY = Vocabulary([f"e{n}" for n in range(ENTITIES)], [f"r{n}" for n in range(RELATIONS)])
PAIRS = torch.cartesian_prod(torch.arange(ENTITIES), torch.arange(2 * RELATIONS)).unbind(1)
TRIPLE = st.tuples(st.integers(0, ENTITIES - 1), st.integers(0, RELATIONS - 1), st.integers(0, ENTITIES - 1))


@pytest.mark.parametrize("few_pairs", [0, 1000], ids=["table", "index"])
@given(triples=st.sets(TRIPLE, max_size=20))
def test_tails_counts_and_marks_are_those_of_the_triples(few_pairs, triples):
    stored = StoredLinks(Graph(VOCABULARY, as_triples(sorted(triples))), few_pairs)
    expected = torch.full((ENTITIES, 2 * RELATIONS, ENTITIES), -1.0)
    for s, r, o in triples:
        expected[s, r, o] = expected[o, r + RELATIONS, s] = 0.0
    expected = expected.view(-1, ENTITIES)
    values = torch.full_like(expected, -1.0)
    stored.mark(values, *PAIRS, 0.0)
    assert torch.equal(values, expected)
    assert torch.equal(stored.counts(*PAIRS), (expected == 0).sum(1))
    counts, tails = stored.tails(*PAIRS)
    assert counts.tolist() == (expected == 0).sum(1).tolist()
    assert tails.tolist() == (expected == 0).nonzero()[:, 1].tolist()


def test_no_pairs_have_no_tails():
    stored, nothing = StoredLinks(Graph(VOCABULARY, as_triples([(0, 0, 1)]))), torch.zeros(0, dtype=torch.int64)
    assert stored.counts(nothing, nothing).tolist() == [] and len(stored.tails(nothing, nothing)[1]) == 0
