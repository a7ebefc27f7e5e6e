"""Large queries against brute force, and what bounds the search."""

from __future__ import annotations

import numpy as np
import pytest

from biqe.graph.knowledge_graph import Graph
from biqe.graph.triples import as_triples
from biqe.graph.vocabulary import Vocabulary
from biqe.links.guided import best_assignments
from biqe.query.bound import HIDDEN, BoundQuery

from .conftest import ENTITIES, SHAPES, best_rows, random_links

H, T = HIDDEN, -1
LARGE = {
    **SHAPES,
    "two parts": BoundQuery((0, T, 1, T), ((0, 0, 1), (2, 1, 3)), (1, 3)),
    "ring of hidden": BoundQuery((0, H, H, T), ((0, 0, 1), (1, 1, 2), (1, 0, 3), (2, 1, 3)), (3,)),
    "leaves": BoundQuery((0, T, H, H, H), ((0, 0, 1), (1, 1, 2), (1, 1, 3), (3, 0, 4)), (1,)),
}
PLAINER = {"leaves": BoundQuery((0, T, H, H), ((0, 0, 1), (1, 1, 2), (2, 0, 3)), (1,))}
"""What brute force is asked instead: a link that two patterns come to counts once."""


def graph_of(links) -> Graph:
    """The graph that holds the certain links."""
    relations = len(links.table) // 2
    held = [(s, r, o) for r in range(relations) for s, o in np.argwhere(links.table[r].numpy() == 0.0).tolist()]
    names = Vocabulary([f"e{n}" for n in range(ENTITIES)], [f"r{n}" for n in range(relations)])
    return Graph(names, as_triples(held))


@pytest.mark.parametrize("certain_share", [0.0, 0.3])
@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("shape", LARGE)
def test_with_everything_kept_assignments_are_those_of_brute_force(shape, seed, certain_share):
    query, links = LARGE[shape], random_links(seed, certain_share)
    expected = best_rows(PLAINER.get(shape, query), links)
    found = best_assignments(query, graph_of(links), links, 10, 5_000)
    rows = [tuple(row) for row in found.nodes[:, list(query.targets)].tolist()]
    assert len(set(rows)) == len(rows) == min(10, len(expected))
    best = sorted((truth for truth, _ in expected.values()), reverse=True)[:10]
    np.testing.assert_allclose(found.truths, best, rtol=1e-4, atol=1e-4)
    assert (found.nodes >= 0).all()
    for node, value in enumerate(query.nodes):
        assert value < 0 or (found.nodes[:, node] == value).all()


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("shape", ["2p", "3p", "ring", "leaves", "ring of hidden"])
def test_a_beam_of_two_finds_what_the_graph_holds(shape, seed):
    query, links = LARGE[shape], random_links(seed, certain_share=0.4)
    held = any(truth == 0.0 for truth, _ in best_rows(PLAINER.get(shape, query), links).values())
    found = best_assignments(query, graph_of(links), links, 1, 2)
    assert (found.truths[0] == 0.0) == held


def test_conditions_leave_no_other_entities_and_an_empty_one_no_rows():
    query, links = LARGE["ring of hidden"], random_links(0, certain_share=0.3)
    mask = np.arange(ENTITIES) % 2 == 0
    found = best_assignments(query, graph_of(links), links, 5, 100, {3: mask})
    assert len(found.nodes) and mask[found.nodes[:, 3]].all()
    nothing = best_assignments(query, graph_of(links), links, 5, 100, {3: np.zeros(ENTITIES, bool)})
    assert len(nothing.nodes) == 0
