"""Plans: the batched walk equals a recursion over each query, whatever operators a model brings."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from biqe.errors import UnsupportedQuery
from biqe.models._plan import EncodedPlans, walk, walkable
from biqe.query.bound import HIDDEN, TARGET, AnswerSets, BoundQuery, QuerySet
from biqe.query.dag import orient

ENTITIES, RELATIONS = 50, 5


@st.composite
def queries(draw):
    """Constants, then variables that earlier nodes lead to; some constants are at the end of an edge as well."""
    constants = draw(st.integers(1, 3))
    variables = draw(st.integers(1, 5))
    nodes = [draw(st.integers(0, ENTITIES - 1)) for _ in range(constants)]
    edges = []
    for node in range(constants, constants + variables):
        nodes.append(draw(st.sampled_from([TARGET, HIDDEN])))
        for _ in range(draw(st.integers(1, 3))):  # parallel edges are allowed
            edges.append((draw(st.integers(0, node - 1)), draw(st.integers(0, 2 * RELATIONS - 1)), node))
    if draw(st.booleans()):  # an edge into a constant, from anywhere
        source = draw(st.integers(0, len(nodes) - 1))
        edges.append((source, draw(st.integers(0, 2 * RELATIONS - 1)), 0))
    nodes[-1] = TARGET
    edges = draw(st.permutations(edges))
    return BoundQuery(tuple(nodes), tuple(edges), tuple(n for n, value in enumerate(nodes) if value == TARGET))


def project(state, relation):
    """Neither commutative with intersect nor alike for two relations; exact in integers."""
    return (state * 31 + relation * 17 + 5) % 100_003


def recursive(query):
    """States of all targets, one query and one node at a time."""

    def state(node):
        if query.nodes[node] >= 0:
            return query.nodes[node]
        arriving = []
        for source, relation, end in query.edges:
            if end == node:
                arriving.append(project(state(source), relation))
            elif source == node and query.nodes[end] >= 0:
                arriving.append(project(query.nodes[end], (relation + RELATIONS) % (2 * RELATIONS)))
        return arriving[0] if len(arriving) == 1 else (sum(arriving) * 7 + len(arriving)) % 100_003

    return [state(node) for node, value in enumerate(query.nodes) if value == TARGET]


def walked(batch):
    found = walk(
        batch,
        batch.anchors.unsqueeze(1),
        lambda states, relations: project(states, relations.unsqueeze(1)),
        lambda states: (states.sum(1) * 7 + states.shape[1]) % 100_003,
    )
    return found.squeeze(1).tolist()


@settings(max_examples=150, deadline=None)
@given(st.lists(queries(), min_size=1, max_size=8), st.randoms(use_true_random=False))
def test_the_batched_walk_is_the_recursion(asked, random):
    encoded = EncodedPlans(QuerySet.of(asked), RELATIONS)
    rows = [random.randrange(len(asked)) for _ in range(random.randrange(1, 12))]  # any order, with repetition
    batch = encoded.batch(np.array(rows))
    assert walked(batch) == [state for row in rows for state in recursive(asked[row])]
    assert encoded.sizes.tolist() == [len(query.targets) for query in asked]


@settings(max_examples=100, deadline=None)
@given(queries())
def test_levels_read_only_what_stands_before_them(query):
    batch = EncodedPlans(QuerySet.of([query]), RELATIONS).batch(np.array([0]))
    filled = len(batch.anchors)
    for level in batch.levels:
        assert int(level.sources.max()) < filled and len(level.sources) == sum(n * k for n, k in level.groups)
        filled += sum(n for n, _ in level.groups)
    assert filled == len(query.nodes)


@st.composite
def any_queries(draw):
    """Whatever joins a few nodes: cycles, loose parts and variables that nothing leads to among them."""
    nodes = draw(st.lists(st.sampled_from([TARGET, HIDDEN, 3, 4]), min_size=2, max_size=5))
    end = st.integers(0, len(nodes) - 1)
    edges = draw(st.lists(st.tuples(end, st.integers(0, 2 * RELATIONS - 1), end), min_size=1, max_size=6))
    return BoundQuery(tuple(nodes), tuple(edges), tuple(n for n, value in enumerate(nodes) if value == TARGET))


@settings(max_examples=300, deadline=None)
@given(any_queries())
def test_what_is_called_walkable_can_be_encoded(query):
    """And what is refused cannot, unless only because it has separate parts."""
    support = walkable(query, "it", inverses=True)
    try:
        EncodedPlans(QuerySet.of([query]), RELATIONS).batch(np.array([0]))
    except UnsupportedQuery:
        assert not support and support.hint
    else:
        assert support or "separate parts" in support.reason


def test_edges_into_a_constant_are_walked_backwards():
    towards = BoundQuery((TARGET, 7), ((0, 2, 1),), (0,))
    away = BoundQuery((TARGET, 7), ((1, 2 + RELATIONS, 0),), (0,))
    assert orient(towards, RELATIONS) == away
    batches = [EncodedPlans(QuerySet.of([query]), RELATIONS).batch(np.array([0])) for query in (towards, away)]
    assert walked(batches[0]) == walked(batches[1]) == [project(7, 2 + RELATIONS)]
    assert walkable(towards, "it", inverses=True) and walkable(away, "it", inverses=False)
    assert "inverse" in walkable(towards, "it", inverses=False).reason


@pytest.mark.parametrize(
    ("query", "word"),
    [
        (BoundQuery((3, TARGET, TARGET), ((0, 1, 1), (1, 0, 2), (2, 0, 1)), (1, 2)), "cycle"),
        (BoundQuery((3, TARGET), ((0, 1, 1), (1, 0, 1)), (1,)), "cycle"),
        (BoundQuery((3, TARGET, 4, TARGET), ((0, 1, 1), (2, 0, 3)), (1, 3)), "separate"),
        (BoundQuery((3, TARGET, TARGET), ((0, 1, 1), (2, 0, 1)), (1, 2), ("", "city", "mayor")), "?mayor"),
        (BoundQuery((TARGET, TARGET), ((0, 1, 1),), (0, 1)), "variable 0"),
    ],
)
def test_refuses_with_the_reason(query, word):
    support = walkable(query, "gqe", inverses=True)
    assert not support and word in support.reason and support.reason.startswith("gqe") and support.hint


def test_targets_and_their_answers_follow_the_rows():
    two = BoundQuery((3, TARGET, TARGET), ((0, 1, 1), (1, 0, 2)), (1, 2))
    one = BoundQuery((4, TARGET), ((0, 1, 1),), (1,))
    asked = QuerySet.of([two, one])
    asked = replace(asked, gold=np.array([3, 10, 11, 4, 12], np.int32))
    asked = asked.with_filters(train=AnswerSets(np.array([0, 2, 3, 6]), np.array([10, 20, 11, 12, 13, 14], np.int32)))
    targets = EncodedPlans(asked, RELATIONS).batch(np.array([1, 0])).targets
    assert targets.gold.tolist() == [12, 10, 11]
    assert targets.offsets.tolist() == [0, 3, 5, 6] and targets.answers.tolist() == [12, 13, 14, 10, 20, 11]


def test_a_batch_may_be_empty():
    batch = EncodedPlans(QuerySet.of([BoundQuery((4, TARGET), ((0, 1, 1),), (1,))]), RELATIONS).batch(
        np.zeros(0, np.int64)
    )
    assert walked(batch) == [] and batch.levels == () and isinstance(batch.anchors, torch.Tensor)
