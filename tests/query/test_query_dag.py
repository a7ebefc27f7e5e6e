"""Depths, roles and paths of query graphs, and edges turned away from the constants."""

from __future__ import annotations

from itertools import product

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from biqe.errors import InvalidOption, TooManyPaths, UnsupportedQuery
from biqe.query.bound import HIDDEN, TARGET, BoundQuery
from biqe.query.dag import analyse, count_paths, orient, paths

A, B, C = 0, 1, 2


@st.composite
def dags(draw: st.DrawFn) -> BoundQuery:
    """Acyclic queries whose nodes are numbered in no particular order."""
    query = draw(st.from_type(BoundQuery))
    order = draw(st.permutations(range(len(query.nodes))))
    edges = tuple((s, r, o) if order[s] < order[o] else (o, r, s) for s, r, o in query.edges if s != o)
    return BoundQuery(query.nodes, edges, query.targets)


def reaches(query: BoundQuery) -> list[list[bool]]:
    """reach[a][b]: a walk of one edge or more leads from a to b (Warshall's closure)."""
    count = len(query.nodes)
    reach = [[any(s == a and o == b for s, _, o in query.edges) for b in range(count)] for a in range(count)]
    for middle, start, end in product(range(count), repeat=3):
        reach[start][end] |= reach[start][middle] and reach[middle][end]
    return reach


def walks(query: BoundQuery, node: int) -> list[tuple[int, ...]]:
    """Edge sequences from ``node`` to any leaf, by recursion; of acyclic queries only."""
    outgoing = [edge for edge, (subject, _, _) in enumerate(query.edges) if subject == node]
    if not outgoing:
        return [()]
    return [(edge, *rest) for edge in outgoing for rest in walks(query, query.edges[edge][2])]


def roots_of(query: BoundQuery) -> list[int]:
    return [node for node in range(len(query.nodes)) if all(o != node for _, _, o in query.edges)]


@given(st.from_type(BoundQuery))
def test_dag_agrees_with_the_closure(query: BoundQuery) -> None:
    dag = analyse(query)
    reach, nodes = reaches(query), range(len(query.nodes))
    assert dag.is_acyclic == (not any(reach[node][node] for node in nodes))
    assert list(dag.roots) == roots_of(query)
    assert list(dag.leaves) == [node for node in nodes if all(s != node for s, _, _ in query.edges)]
    for node in nodes:
        assert dag.descendants[node] == {other for other in nodes if reach[node][other]}
        assert dag.ancestors[node] == {other for other in nodes if reach[other][node]}
    for target, role in zip(query.targets, dag.roles, strict=True):
        incoming = sum(o == target for _, _, o in query.edges)
        assert role == ("tail" if target in dag.leaves else "intersection" if incoming >= 2 else "branch")


@given(dags())
def test_order_and_depths(query: BoundQuery) -> None:
    dag = analyse(query)
    assert sorted(dag.order) == list(range(len(query.nodes)))
    assert all(dag.order.index(s) < dag.order.index(o) for s, _, o in query.edges)
    longest = [0] * len(query.nodes)
    for root in dag.roots:
        for walk in walks(query, root):
            for length, edge in enumerate(walk, start=1):
                end = query.edges[edge][2]
                longest[end] = max(longest[end], length)
    assert list(dag.depths) == longest


@given(st.from_type(BoundQuery))
def test_connected_and_tree(query: BoundQuery) -> None:
    dag = analyse(query)
    both = BoundQuery(query.nodes, query.edges + tuple((o, r, s) for s, r, o in query.edges), query.targets)
    reach, count = reaches(both), len(query.nodes)
    assert dag.is_connected == all(a == b or reach[a][b] for a in range(count) for b in range(count))
    # A tree falls apart whichever edge is taken out, and has no edge whose ends still hang together without it.
    without = [query.edges[:edge] + query.edges[edge + 1 :] for edge in range(len(query.edges))]
    falls_apart = all(not analyse(BoundQuery(query.nodes, edges, ())).is_connected for edges in without)
    assert dag.is_tree == (dag.is_connected and falls_apart)


def test_cyclic_queries_are_analysed_without_order() -> None:
    dag = analyse(BoundQuery((A, TARGET, TARGET), ((0, 0, 1), (1, 0, 2), (2, 1, 1)), (1, 2)))
    assert not dag.is_acyclic and dag.is_connected and not dag.is_tree
    assert dag.order == dag.depths == ()
    assert dag.roots == (0,) and dag.leaves == ()
    assert dag.descendants[1] == {1, 2}


def test_roles_of_the_mined_shape() -> None:
    # Two branches with a target each, the intersection, and the tail.
    query = BoundQuery(
        (A, TARGET, B, TARGET, TARGET, TARGET), ((0, 0, 1), (1, 0, 4), (2, 1, 3), (3, 0, 4), (4, 2, 5)), (5, 4, 3, 1)
    )
    dag = analyse(query)
    assert dag.roles == ("tail", "intersection", "branch", "branch")
    assert dag.is_tree


@given(dags())
def test_paths_are_all_walks_from_roots_in_order(query: BoundQuery) -> None:
    expected = [(root, walk) for root in roots_of(query) for walk in walks(query, root)]
    assert count_paths(analyse(query)) == len(expected)
    found = paths(query, cap=max(1, len(expected)))
    assert [(path.nodes[0], path.edges) for path in found] == expected
    for path in found:
        for step, edge in enumerate(path.edges):
            assert (path.nodes[step], path.nodes[step + 1]) == query.edges[edge][::2]
    assert {edge for path in found for edge in path.edges} == set(range(len(query.edges)))


@given(dags(), st.integers(1, 5))
def test_cap(query: BoundQuery, cap: int) -> None:
    number = count_paths(analyse(query))
    if number <= cap:
        assert len(paths(query, cap=cap)) == number
    else:
        with pytest.raises(TooManyPaths, match=f"has {number:,} root-to-leaf paths; at most {cap} are allowed"):
            paths(query, cap=cap)


def test_exponentially_many_paths_are_counted_not_made() -> None:
    """A ladder of 100 diamonds has 2^100 paths."""
    edges = tuple(
        edge for step in range(100) for edge in ((step, 0, step + 1), (step, 1, step + 1))
    )  # parallel edges make two ways each
    query = BoundQuery((A, *(TARGET for _ in range(100))), edges, tuple(range(1, 101)))
    with pytest.raises(TooManyPaths, match=f"{2**100:,} root-to-leaf paths; at most 64"):
        paths(query)
    assert count_paths(analyse(query)) == 2**100


def test_a_long_chain_needs_no_deep_stack() -> None:
    count = 2_000
    query = BoundQuery((A, *(TARGET for _ in range(count))), tuple((i, 0, i + 1) for i in range(count)), ())
    assert paths(query)[0].nodes == tuple(range(count + 1))


def test_cycles_have_no_paths() -> None:
    with pytest.raises(UnsupportedQuery, match="has a cycle"):
        paths(BoundQuery((A, TARGET, TARGET), ((0, 0, 1), (1, 0, 2), (2, 1, 1)), (1, 2)))
    with pytest.raises(UnsupportedQuery, match="has a cycle"):
        paths(BoundQuery((TARGET,), ((0, 0, 0),), (0,)))
    with pytest.raises(InvalidOption, match="at least 1. Got 0"):
        paths(BoundQuery((A, TARGET), ((0, 0, 1),), (1,)), cap=0)


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
