"""The DAG of a query and its paths, against brute force on random queries."""

from __future__ import annotations

from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from biqe.errors import InvalidOption, TooManyPaths, UnsupportedQuery
from biqe.query.bound import TARGET, BoundQuery
from biqe.query.dag import analyse, count_paths, paths

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
