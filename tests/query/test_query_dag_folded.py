"""Variables that say nothing of their own: the rows of a query are the same without them."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from biqe.exact.adjacency import adjacency, numpy_join
from biqe.graph.knowledge_graph import Graph
from biqe.graph.triples import as_triples
from biqe.graph.vocabulary import Vocabulary
from biqe.query.bound import HIDDEN, TARGET, BoundQuery
from biqe.query.dag import folded, reduced

ENTITIES, RELATIONS, NODES = 5, 2, 6
NAMES = Vocabulary([f"e{n}" for n in range(ENTITIES)], [f"r{n}" for n in range(RELATIONS)])


@given(
    st.lists(st.tuples(st.integers(0, 4), st.integers(0, 1), st.integers(0, 4)), min_size=4, max_size=20),
    st.lists(
        st.tuples(st.integers(0, NODES - 1), st.integers(0, 3), st.integers(0, NODES - 1)), min_size=1, max_size=9
    ),
    st.integers(0, 4),
)
def test_rows_are_the_same_without_what_can_be_folded(triples, edges, constant):
    graph = Graph(NAMES, as_triples(triples))
    touched = {node for s, _, o in edges for node in (s, o)}
    target = min(touched)
    nodes = tuple(TARGET if n == target else constant if n == NODES - 1 else HIDDEN for n in range(NODES))
    kept = sorted(touched)
    number = {node: place for place, node in enumerate(kept)}
    query = BoundQuery(
        tuple(nodes[node] for node in kept),
        tuple((number[s], r, number[o]) for s, r, o in dict.fromkeys(edges)),
        (number[target],),
    )
    if query.nodes[number[target]] != TARGET:
        return
    smaller = reduced(query, RELATIONS)
    assert len(smaller.edges) <= len(query.edges) and len(smaller.nodes) <= len(query.nodes)
    table = adjacency(graph)
    before, after = (numpy_join(table, each, each.targets) for each in (query, smaller))
    assert before is not None and after is not None and before.tolist() == after.tolist()


def test_a_star_of_equal_patterns_becomes_one_and_a_constant_stands_for_its_variable():
    """One variable less per pattern that another says already; what hangs on a folded variable folds with it."""
    h, t = HIDDEN, TARGET
    edges, stands = folded(BoundQuery((t, h, h, 3, h), ((0, 0, 1), (0, 0, 2), (0, 0, 3), (1, 1, 4)), (0,)), RELATIONS)
    assert stands == {2: 1} or stands == {2: 3}
    assert set(edges) == {(0, 0, 1), (0, 0, 3), (1, 1, 4)}
    turned = BoundQuery((t, h, 3), ((1, RELATIONS, 0), (0, 0, 2)), (0,))
    assert folded(turned, RELATIONS) == (((0, 0, 2),), {1: 2})


def test_targets_and_loops_stay():
    h, t = HIDDEN, TARGET
    for query in (
        BoundQuery((t, t, 3), ((0, 0, 1), (0, 0, 2)), (0, 1)),
        BoundQuery((t, h), ((0, 0, 1), (1, 0, 1)), (0,)),
    ):
        assert reduced(query, RELATIONS) is query
