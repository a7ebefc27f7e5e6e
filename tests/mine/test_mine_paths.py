"""Walks as path queries."""

from __future__ import annotations

import numpy as np

from biqe.graph.knowledge_graph import Graph
from biqe.graph.triples import as_triples
from biqe.graph.vocabulary import Vocabulary
from biqe.mine.paths import path_queries
from biqe.mine.walks import walks
from biqe.query.bound import TARGET
from biqe.query.queryset import ROLES


def graph_of(triples, entities=None, relations=None) -> Graph:
    triples = as_triples(triples)
    entities = entities or int(triples[:, [0, 2]].max(initial=0)) + 1
    relations = relations or int(triples[:, 1].max(initial=0)) + 1
    return Graph(Vocabulary((f"e{i}" for i in range(entities)), (f"r{i}" for i in range(relations))), triples)


def test_a_path_query_asks_for_everything_but_its_source():
    chain = graph_of([(0, 0, 1), (1, 1, 2), (2, 0, 3)])
    some = walks(chain, count=1, rng=np.random.default_rng(0), depths=(3, 3))
    queries = path_queries(some)
    assert queries[0].nodes == (0, TARGET, TARGET, TARGET)
    assert queries[0].edges == ((0, 0, 1), (1, 1, 2), (2, 0, 3))
    assert queries.gold.tolist() == [0, 1, 2, 3]
    assert [ROLES[role] for role in queries.roles] == ["none", "branch", "branch", "tail"]


def test_path_queries_of_mixed_lengths_keep_their_own_nodes_and_edges():
    ring = graph_of([(i, 0, (i + 1) % 10) for i in range(10)])
    some = walks(ring, count=40, rng=np.random.default_rng(0))
    queries = path_queries(some)
    for row, query in enumerate(queries):
        length = some.lengths[row]
        assert query.nodes == (some.entities[row, 0], *[TARGET] * length)
        assert query.edges == tuple((i, 0, i + 1) for i in range(length))
