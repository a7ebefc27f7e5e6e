"""Random walks: every step is an edge, depths are as drawn, the same seed gives the same walks; walks as queries."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from biqe.errors import InvalidOption
from biqe.graph.knowledge_graph import Graph
from biqe.graph.triples import as_triples
from biqe.graph.vocabulary import Vocabulary
from biqe.mine.walks import Walks, path_queries, signatures, walks
from biqe.query.bound import ROLES, TARGET


def graph_of(triples, entities=None, relations=None) -> Graph:
    triples = as_triples(triples)
    entities = entities or int(triples[:, [0, 2]].max(initial=0)) + 1
    relations = relations or int(triples[:, 1].max(initial=0)) + 1
    return Graph(Vocabulary((f"e{i}" for i in range(entities)), (f"r{i}" for i in range(relations))), triples)


@st.composite
def graphs(draw, most=40) -> Graph:
    entities, relations = draw(st.integers(2, 10)), draw(st.integers(1, 3))
    one = st.tuples(st.integers(0, entities - 1), st.integers(0, relations - 1), st.integers(0, entities - 1))
    return graph_of(draw(st.lists(one, max_size=most)), entities, relations)


def steps(some: Walks):
    """(walk, subject, relation, object) of every step."""
    for row in range(len(some)):
        for step in range(some.lengths[row]):
            yield row, some.entities[row, step], some.relations[row, step], some.entities[row, step + 1]


@settings(max_examples=20)
@given(graphs(), st.integers(0, 9), st.sampled_from([0.0, 0.5, 1.0]))
def test_every_step_is_an_edge_and_every_walk_has_its_depth(graph, seed, share):
    some = walks(graph, count=30, rng=np.random.default_rng(seed), inverse_share=share)
    triples = {tuple(row) for row in graph.triples.tolist()}
    for row, subject, relation, object_ in steps(some):
        if relation >= graph.relation_count:
            assert some.both_ways[row]
            subject, relation, object_ = object_, relation - graph.relation_count, subject
        assert (subject, relation, object_) in triples
    assert len(some) <= 30
    assert ((some.lengths >= 2) & (some.lengths <= 5)).all()
    past_end = np.arange(6) > some.lengths[:, None]
    assert (some.entities[past_end] == -1).all() and (some.entities[~past_end] >= 0).all()
    assert ((some.relations == -1) == past_end[:, 1:]).all()
    assert some.both_ways.sum() <= round(30 * share)
    keys = signatures(some.entities, some.relations)
    assert len(np.unique(keys)) == len(keys)


@settings(max_examples=20)
@given(graphs(), st.integers(0, 9))
def test_no_walk_comes_twice_and_none_is_left_out_of_a_small_graph(graph, seed):
    some = walks(graph, count=10_000, rng=np.random.default_rng(seed), depths=(2, 2))
    found = [(*entities, *relations) for entities, relations in zip(some.entities, some.relations, strict=True)]
    assert len(found) == len(set(found))
    out = graph.triples.tolist()
    every = {(s, m, o, r, q) for s, r, m in out for m_, q, o in out if m == m_}
    assert set(found) <= every
    if len(every) <= 8:  # small enough that 12 rounds without news are no accident
        assert set(found) == every


@settings(max_examples=20)
@given(graphs(), st.integers(0, 9))
def test_walks_both_ways_never_turn_straight_back(graph, seed):
    some = walks(graph, count=50, rng=np.random.default_rng(seed), inverse_share=1.0)
    for row in range(len(some)):
        for step in range(1, some.lengths[row]):
            same_edge = abs(int(some.relations[row, step]) - int(some.relations[row, step - 1])) == graph.relation_count
            assert not (same_edge and some.entities[row, step + 1] == some.entities[row, step - 1])


def test_depths_are_uniform_where_no_walk_is_dropped():
    ring = graph_of([(i, 0, (i + 1) % 4_000) for i in range(4_000)])
    some = walks(ring, count=4_000, rng=np.random.default_rng(1))
    assert len(some) == 4_000 and len(np.unique(some.entities[:, 0])) == 4_000  # one walk a node
    counts = np.bincount(some.lengths)[2:]
    assert len(counts) == 4 and np.abs(counts / 4_000 - 0.25).max() < 0.03


def test_every_edge_out_of_an_entity_is_equally_likely():
    star = graph_of([(0, 0, i) for i in range(1, 5)] + [(i, 0, 0) for i in range(1, 5)])
    draws = [
        walks(star, count=1, rng=np.random.default_rng(seed), starts=np.array([0])).entities[0, 1]
        for seed in range(400)
    ]
    assert np.abs(np.bincount(draws)[1:] / 400 - 0.25).max() < 0.08


def test_same_seed_same_walks():
    graph = graph_of([(i, 0, (7 * i + j) % 50) for i in range(50) for j in range(3)])
    one, two, other = (walks(graph, count=40, rng=np.random.default_rng(seed), inverse_share=0.3) for seed in (5, 5, 6))
    assert np.array_equal(one.entities, two.entities) and np.array_equal(one.relations, two.relations)
    assert not np.array_equal(one.entities, other.entities)


def test_starts_limit_where_walks_begin():
    ring = graph_of([(i, 0, (i + 1) % 10) for i in range(10)])
    some = walks(ring, count=100, rng=np.random.default_rng(0), starts=np.array([3, 4]))
    assert set(some.entities[:, 0]) == {3, 4}
    assert len(some) == 8  # two starts, four depths, one way each


def test_a_graph_without_walks_gives_none():
    assert len(walks(graph_of([(0, 0, 1)]), count=5, rng=np.random.default_rng(0))) == 0
    assert len(walks(graph_of([], 3, 1), count=5, rng=np.random.default_rng(0), inverse_share=0.5)) == 0


@pytest.mark.parametrize(
    "options",
    [
        {"count": -1},
        {"count": 1, "depths": (0, 3)},
        {"count": 1, "depths": (4, 3)},
        {"count": 1, "inverse_share": 1.5},
        {"count": 1, "starts": np.array([2])},
        {"count": 1, "starts": np.array([-1])},
    ],
)
def test_bad_options_are_refused(options):
    with pytest.raises(InvalidOption):
        walks(graph_of([(0, 0, 1)]), rng=np.random.default_rng(0), **options)


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
