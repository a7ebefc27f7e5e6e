"""One match of large queries: against the engine that lists all rows, and on the kind of query that it is for."""

from __future__ import annotations

import numpy as np
import pytest

from biqe.exact.answers import tuples
from biqe.exact.first_match import first_match
from biqe.graph.knowledge_graph import Graph
from biqe.graph.triples import as_triples
from biqe.graph.vocabulary import Vocabulary
from biqe.query.bound import HIDDEN, TARGET, BoundQuery

RELATIONS = 3


def random_graph(rng, entities, triples):
    found = np.stack([rng.integers(0, top, triples) for top in (entities, RELATIONS, entities)], 1)
    names = Vocabulary([f"e{n}" for n in range(entities)], [f"r{n}" for n in range(RELATIONS)])
    return Graph(names, as_triples(found))


def random_query(rng, entities, nodes, edges):
    values = rng.choice([TARGET, HIDDEN, HIDDEN, 0], nodes)
    values = np.where(values == 0, rng.integers(0, entities, nodes), values)
    values[0] = TARGET
    found = [(int(s), int(r), int(o)) for s, r, o in rng.integers(0, [nodes, 2 * RELATIONS, nodes], (edges, 3))]
    found.append((0, 0, int(rng.integers(0, nodes))))
    targets = tuple(int(node) for node in np.flatnonzero(values == TARGET))
    return BoundQuery(tuple(int(value) for value in values), tuple(found), targets)


def holds(graph, query, nodes):
    there = {tuple(triple) for triple in graph.triples.tolist()}
    for s, r, o in query.edges:
        a, b = int(nodes[s]), int(nodes[o])
        if ((a, r, b) if r < RELATIONS else (b, r - RELATIONS, a)) not in there:
            return False
    return all(value < 0 or value == node for value, node in zip(query.nodes, nodes, strict=True))


@pytest.mark.parametrize("seed", range(8))
def test_it_finds_a_match_where_there_is_one(seed):
    """Cycles, loops, constants, parts that nothing joins: what the engine for rows says of the same queries."""
    rng = np.random.default_rng(seed)
    counts = [0, 0]
    for _ in range(60):
        entities = int(rng.integers(3, 12))
        graph = random_graph(rng, entities, int(rng.integers(4, 60)))
        query = random_query(rng, entities, int(rng.integers(1, 6)), int(rng.integers(1, 7)))
        nodes, rows = first_match(graph, query), tuples(graph, query, limit=1)
        assert (nodes is not None) == (len(rows) > 0), query
        counts[nodes is not None] += 1
        if nodes is not None:
            assert holds(graph, query, nodes)
    assert min(counts) >= 5


def test_a_clique_that_is_not_there_is_found_out_and_search_can_be_bounded():
    """Every pair of seven variables joined, in a graph whose largest clique has five entities."""
    rng = np.random.default_rng(1)
    pairs = [(a, 0, b) for a in range(60) for b in range(60) if a != b and (a % 5) != (b % 5) and rng.random() < 0.9]
    graph = Graph(Vocabulary([f"e{n}" for n in range(60)], ["r"]), as_triples(pairs))

    def clique(size):
        edges = tuple((a, 0, b) for a in range(size) for b in range(a + 1, size))
        return BoundQuery((TARGET,) + (HIDDEN,) * (size - 1), edges, (0,))

    assert first_match(graph, clique(5)) is not None
    assert first_match(graph, clique(7), choices=3000) is None
    assert first_match(graph, clique(5), choices=0) is None
