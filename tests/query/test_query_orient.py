"""Edges turned away from the constants, against brute force on random queries."""

from __future__ import annotations

from itertools import product

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from biqe.errors import InvalidOption
from biqe.query.bound import HIDDEN, TARGET, BoundQuery
from biqe.query.dag import analyse
from biqe.query.orient import orient

RELATIONS = 3
ENTITIES = 4
A, B, C = 0, 1, 2


triple_sets = st.sets(
    st.tuples(st.integers(0, ENTITIES - 1), st.integers(0, RELATIONS - 1), st.integers(0, ENTITIES - 1)), max_size=30
)


def brute_answers(query: BoundQuery, triples: set[tuple[int, int, int]]) -> set[tuple[int, ...]]:
    """Target tuples, by trying every entity at every variable. Relation r + RELATIONS is r backwards."""
    choices = [range(ENTITIES) if value < 0 else (value,) for value in query.nodes]
    return {
        tuple(row[target] for target in query.targets)
        for row in product(*choices)
        if all(
            ((row[s], r, row[o]) if r < RELATIONS else (row[o], r - RELATIONS, row[s])) in triples
            for s, r, o in query.edges
        )
    }


@given(st.from_type(BoundQuery), triple_sets)
@settings(max_examples=60)
def test_turning_edges_keeps_the_answers(query: BoundQuery, triples: set[tuple[int, int, int]]) -> None:
    assert brute_answers(orient(query, RELATIONS), triples) == brute_answers(query, triples)


@given(st.from_type(BoundQuery))
def test_turning_edges_keeps_nodes_and_is_done_once(query: BoundQuery) -> None:
    turned = orient(query, RELATIONS)
    assert (turned.nodes, turned.targets, turned.names) == (query.nodes, query.targets, query.names)
    for (s, r, o), edge in zip(query.edges, turned.edges, strict=True):
        assert edge in ((s, r, o), (o, (r + RELATIONS) % (2 * RELATIONS), s))
    assert orient(turned, RELATIONS) == turned


@given(st.from_type(BoundQuery), st.data())
def test_turned_queries_grow_out_of_their_constants(query: BoundQuery, data: st.DataObject) -> None:
    # One constant, and an edge from each node to an earlier one, so that all hangs together; loops stay out.
    nodes = query.nodes if query.anchors else (A, *query.nodes[1:])
    joints = [data.draw(st.tuples(st.integers(0, node - 1), st.just(node))) for node in range(1, len(nodes))]
    added = tuple((b, 0, a) if data.draw(st.booleans()) else (a, 0, b) for a, b in joints)
    query = BoundQuery(nodes, tuple(edge for edge in query.edges if edge[0] != edge[2]) + added, ())
    turned = analyse(orient(query, RELATIONS))
    assert turned.is_acyclic
    # Every root is a constant: whatever is asked hangs from something known.
    assert all(query.nodes[root] >= 0 for root in turned.roots)
    # No hidden variable is a dead end between two targets.
    for leaf in turned.leaves:
        if query.nodes[leaf] == HIDDEN:
            ends = {s for s, _, o in turned.query.edges if o == leaf}
            assert sum(query.nodes[end] == TARGET for end in ends) <= 1


@given(st.from_type(BoundQuery))
def test_queries_without_constants_stay(query: BoundQuery) -> None:
    blind = BoundQuery(tuple(min(value, HIDDEN + 1) for value in query.nodes), query.edges, ())
    assert orient(blind, RELATIONS) is blind


def test_the_direction_of_the_text_does_not_matter() -> None:
    """All ways to write the paper's question turn into the same query graph."""
    germany, france, river, city = 0, 1, 2, 3
    wanted = {(germany, 0, river), (france, 0, river), (river, 1, city)}
    inverse = {0: 0 + RELATIONS, 1: 1 + RELATIONS}
    for flipped in product((False, True), repeat=3):
        edges = tuple(
            (o, inverse[r], s) if flip else (s, r, o) for flip, (s, r, o) in zip(flipped, sorted(wanted), strict=True)
        )
        query = BoundQuery((A, B, TARGET, TARGET), edges, (river, city))
        assert set(orient(query, RELATIONS).edges) == wanted


@pytest.mark.parametrize(
    ("nodes", "edges", "turned"),
    [
        # a -> x <- b: a sink with two branches
        ((A, TARGET, B), ((0, 0, 1), (1, 1, 2)), ((0, 0, 1), (2, 4, 1))),
        # a -> x - y <- b: x and y are equally near, so the edge between them stays
        ((A, TARGET, TARGET, B), ((0, 0, 1), (1, 1, 2), (2, 2, 3)), ((0, 0, 1), (1, 1, 2), (3, 5, 2))),
        ((A, TARGET, TARGET, B), ((0, 0, 1), (2, 1, 1), (2, 2, 3)), ((0, 0, 1), (2, 1, 1), (3, 5, 2))),
        # the same with y hidden: it leads to x, though both are equally near
        ((A, TARGET, HIDDEN, B), ((0, 0, 1), (1, 1, 2), (2, 2, 3)), ((0, 0, 1), (2, 4, 1), (3, 5, 2))),
        # a -> x - h - y <- b: h does not end between its targets
        (
            (A, TARGET, HIDDEN, TARGET, B),
            ((0, 0, 1), (1, 1, 2), (3, 1, 2), (4, 0, 3)),
            ((0, 0, 1), (1, 1, 2), (2, 4, 3), (4, 0, 3)),
        ),
        # a triangle of targets around one constant: the edge that would close the cycle is turned
        (
            (A, TARGET, TARGET, TARGET),
            ((0, 0, 1), (0, 0, 2), (0, 0, 3), (1, 1, 2), (2, 1, 3), (3, 1, 1)),
            ((0, 0, 1), (0, 0, 2), (0, 0, 3), (1, 1, 2), (2, 1, 3), (1, 4, 3)),
        ),
    ],
)
def test_orientation(nodes, edges, turned) -> None:
    assert orient(BoundQuery(nodes, edges, ()), RELATIONS).edges == turned


def test_orientation_refuses_unknown_relations() -> None:
    with pytest.raises(InvalidOption, match=r"must be in \[0, 6\). Got 6"):
        orient(BoundQuery((A, TARGET), ((0, 6, 1),), (1,)), RELATIONS)
