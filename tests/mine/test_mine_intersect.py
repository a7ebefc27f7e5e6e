"""DAG queries: branches meet at intermediate entities, are cut there, and one edge leads on."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from biqe.errors import InvalidOption
from biqe.graph.knowledge_graph import Graph
from biqe.graph.triples import as_triples
from biqe.graph.vocabulary import Vocabulary
from biqe.mine.intersect import dag_queries, distinct_depths
from biqe.mine.leakage import query_signatures
from biqe.mine.statistics import branch_lengths
from biqe.mine.walks import Walks, walks
from biqe.query.bound import KINDS, ROLES, TARGET, QuerySet
from biqe.query.dag import analyse
from biqe.query.tokens import tokens


def graph_of(triples, entities, relations) -> Graph:
    return Graph(
        Vocabulary((f"e{i}" for i in range(entities)), (f"r{i}" for i in range(relations))), as_triples(triples)
    )


def random_graph(seed: int, entities=12, relations=3, triples=40) -> Graph:
    rng = np.random.default_rng(seed)
    return graph_of(rng.integers(0, [entities, relations, entities], (triples, 3)), entities, relations)


graphs = st.builds(random_graph, st.integers(0, 10_000), triples=st.integers(1, 60))


def parts(queries: QuerySet, row: int):
    """Branches as lists of (gold subject, relation, gold object), then the tail edge, read off the edges."""
    start, stop = queries.node_offsets[row], queries.node_offsets[row + 1]
    gold, roles, nodes = (column[start:stop] for column in (queries.gold, queries.roles, queries.nodes))
    edges = queries[row].edges
    centre, tail = stop - start - 2, stop - start - 1
    assert ROLES[roles[centre]] == "intersection" and ROLES[roles[tail]] == "tail"
    out_of = {subject: (subject, relation, object_) for subject, relation, object_ in edges}
    assert len(out_of) == len(edges) == stop - start - 1  # every node but the tail has one edge out of it
    branches = []
    for source in np.flatnonzero(nodes >= 0):
        branch, node = [], source
        while node != centre:
            branch.append(out_of[node])
            node = out_of[node][2]
        branches.append([(gold[s], r, gold[o]) for s, r, o in branch])
        assert [ROLES[roles[s]] for s, _, _ in branch] == ["none"] + ["branch"] * (len(branch) - 1)
    subject, relation, object_ = out_of[centre]
    assert object_ == tail and sum(map(len, branches)) + 1 == len(edges)
    return branches, (gold[subject], relation, gold[object_])


@settings(max_examples=25)
@given(graphs, st.integers(0, 9), st.sampled_from([0.0, 0.5, 1.0]), st.booleans(), st.booleans())
def test_the_procedure(graph, seed, share, equal, at_ends):
    rng = np.random.default_rng(seed)
    some = walks(graph, count=60, rng=rng, inverse_share=share)
    queries = dag_queries(graph, some, count=40, rng=rng, equal_branches=equal, at_ends=at_ends)
    assert len(queries) <= 40
    triples = {tuple(row) for row in graph.triples.tolist()}
    allowed = prefixes(some, at_ends)
    for row in range(len(queries)):
        branches, tail = parts(queries, row)
        assert 2 <= len(branches) <= 3
        assert {branch[-1][2] for branch in branches} == {tail[0]}
        for subject, relation, object_ in [edge for branch in branches for edge in branch] + [tail]:
            if relation >= graph.relation_count:
                assert share > 0
                subject, relation, object_ = object_, relation - graph.relation_count, subject
            assert (subject, relation, object_) in triples
        for branch in branches:
            assert tuple(branch) in allowed  # a walk, cut at one of its intermediate entities
            assert len(branch) <= (5 if at_ends else 4)
            subject, relation, _ = branch[-1]
            assert not (tail[2] == subject and abs(int(tail[1]) - int(relation)) == graph.relation_count)
        if not equal:
            asked = {(branch[0][0], tuple(relation for _, relation, _ in branch)) for branch in branches}
            assert len(asked) == len(branches)
    keys = query_signatures(queries)
    assert len(np.unique(keys)) == len(keys)
    assert (queries.kinds == KINDS.index("dag")).all()
    assert ((queries.nodes == TARGET) | (queries.nodes == queries.gold)).all()


@settings(max_examples=40)
@given(graphs, st.integers(0, 9), st.sampled_from([0.0, 0.5]), st.booleans())
def test_no_two_unknowns_of_a_dag_have_one_depth(graph, seed, share, at_ends):
    rng = np.random.default_rng(seed)
    some = walks(graph, count=60, rng=rng, inverse_share=share)
    before = dag_queries(graph, some, count=40, rng=rng, at_ends=at_ends)
    after = distinct_depths(before)
    assert np.array_equal(after.gold, before.gold) and np.array_equal(after.edges, before.edges)
    for row, (old, new) in enumerate(zip(before, after, strict=True)):
        depths = analyse(new).depths
        asked = [depths[target] for target in new.targets]
        assert len(set(asked)) == len(asked)
        assert not tokens(new).twins  # so the paper's positions tell them apart
        roles = after.roles[after.node_offsets[row] : after.node_offsets[row + 1]]
        assert [ROLES[role] != "none" for role in roles] == [node in new.targets for node in range(len(roles))]
        # Only what clashes with an earlier unknown is given.
        distances = {node: len(walked) - place for walked in chains(old) for place, node in enumerate(walked)}
        for node in set(old.targets) - set(new.targets):
            earlier = [other for other in new.targets if other < node]
            assert any(depths[o] == depths[node] or distances[o] == distances[node] for o in earlier)


def chains(query):
    """Nodes of each branch, from its source to before the intersection."""
    follows = {subject: object_ for subject, _, object_ in query.edges}
    for source in sorted(set(follows) - set(follows.values())):
        walked = [source]
        while follows[walked[-1]] != len(query.nodes) - 2:
            walked.append(follows[walked[-1]])
        yield walked


def prefixes(some: Walks, at_ends: bool) -> set[tuple]:
    found = set()
    for row in range(len(some)):
        edges = [
            (some.entities[row, i], some.relations[row, i], some.entities[row, i + 1]) for i in range(some.lengths[row])
        ]
        found |= {tuple(edges[:cut]) for cut in range(1, len(edges) + at_ends)}
    return found


@settings(max_examples=25)
@given(graphs, st.integers(0, 9))
def test_one_pass_uses_each_visit_once(graph, seed):
    rng = np.random.default_rng(seed)
    some = walks(graph, count=60, rng=rng)
    queries = dag_queries(graph, some, count=1_000, rng=rng, passes=1)
    out_degree = np.diff(graph.index.out_offsets)
    visits = sum(
        len({e for e in some.entities[row, 1 : some.lengths[row]] if out_degree[e]}) for row in range(len(some))
    )
    assert len(branch_lengths(queries)) <= visits


def test_the_only_dag_of_a_small_graph():
    # Two rivers' worth: 0 and 1 lead to 2; walks pass 2 on their way to 3.
    graph = graph_of([(0, 0, 2), (1, 1, 2), (2, 0, 3)], 4, 2)
    rng = np.random.default_rng(0)
    queries = dag_queries(graph, walks(graph, count=10, rng=rng), count=5, rng=rng)
    assert len(queries) == 1
    branches, tail = parts(queries, 0)
    assert sorted(branches) == [[(0, 0, 2)], [(1, 1, 2)]] and tail == (2, 0, 3)
    assert [ROLES[role] for role in queries.roles] == ["none", "none", "intersection", "tail"]


def test_equal_branches_are_kept_only_on_request():
    # One source, one pair of relations, two ways: both branches would ask the same.
    graph = graph_of([(0, 0, 1), (0, 0, 2), (1, 1, 3), (2, 1, 3), (3, 2, 4)], 5, 3)

    def mined(equal: bool) -> QuerySet:
        rng = np.random.default_rng(0)
        some = walks(graph, count=50, rng=rng, starts=np.array([0]), depths=(3, 3))
        return dag_queries(graph, some, count=50, rng=rng, equal_branches=equal)

    assert len(mined(False)) == 0
    branches, tail = parts(mined(True), 0)
    assert sorted(branches) == [[(0, 0, 1), (1, 1, 3)], [(0, 0, 2), (2, 1, 3)]] and tail == (3, 2, 4)


def test_walks_meet_at_their_ends_only_on_request():
    graph = graph_of([(0, 0, 1), (1, 0, 4), (2, 0, 3), (3, 0, 4), (4, 1, 5)], 6, 2)

    def mined(at_ends: bool) -> QuerySet:
        rng = np.random.default_rng(0)
        some = walks(graph, count=50, rng=rng, starts=np.array([0, 2]), depths=(2, 2))
        return dag_queries(graph, some, count=50, rng=rng, at_ends=at_ends)

    assert len(mined(False)) == 0
    assert len(mined(True)) == 1


@pytest.mark.parametrize("share", [0.0, 1.0])
def test_share_of_three(share):
    graph = graph_of([(i, 0, 50) for i in range(50)] + [(50, 0, i) for i in range(50)], 51, 1)
    rng = np.random.default_rng(0)
    queries = dag_queries(graph, walks(graph, count=400, rng=rng), count=10, rng=rng, three_share=share)
    sources = np.add.reduceat(queries.nodes >= 0, queries.node_offsets[:-1])
    assert len(queries) == 10
    assert (sources <= 3).all() and (sources == 3).any() == (share == 1.0)


def test_bad_options_are_refused():
    graph, rng = random_graph(0), np.random.default_rng(0)
    some = walks(graph, count=10, rng=rng)
    for options in ({"count": -1}, {"count": 1, "three_share": 2.0}, {"count": 1, "passes": 0}):
        with pytest.raises(InvalidOption):
            dag_queries(graph, some, rng=rng, **options)
