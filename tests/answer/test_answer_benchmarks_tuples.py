"""Ranks of whole tuples (benchmarks/joint_tuples.py) against enumeration of all of them."""

from __future__ import annotations

import importlib.util
import json
import sys
from itertools import product
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from biqe.errors import EmptyResult, InvalidOption
from biqe.graph.knowledge_graph import Graph
from biqe.graph.triples import as_triples
from biqe.graph.vocabulary import Vocabulary
from biqe.models._contract import Tuples
from biqe.query.bound import HIDDEN, TARGET, BoundQuery, QuerySet

PLACE = Path(__file__).resolve().parents[2] / "benchmarks" / "joint_tuples.py"
SPEC = importlib.util.spec_from_file_location("joint_tuples", PLACE)
joint_tuples = importlib.util.module_from_spec(SPEC)
sys.modules["joint_tuples"] = joint_tuples  # dataclasses look their module up
SPEC.loader.exec_module(joint_tuples)
TrueTuples, evaluate_tuples, tuple_rank = (
    joint_tuples.TrueTuples,
    joint_tuples.evaluate_tuples,
    joint_tuples.tuple_rank,
)

ENTITIES, RELATIONS = 5, 2
CHAIN = BoundQuery((0, TARGET, TARGET), ((0, 0, 1), (1, 1, 2)), (1, 2))
TURNED = BoundQuery((0, TARGET, TARGET), ((0, 0, 1), (2, 1, 1)), (2, 1))
WITH_HIDDEN = BoundQuery((0, TARGET, HIDDEN, TARGET), ((0, 0, 1), (1, 1, 2), (2, 0, 3)), (1, 3))
CLOSED_PATTERN = BoundQuery((0, 1, TARGET, TARGET), ((0, 0, 1), (1, 1, 2), (0, 3, 3)), (2, 3))  # 3: inverse of 1
ONE = BoundQuery((0, TARGET), ((0, 0, 1),), (1,))


def graph_of(seed: int) -> Graph:
    rng = np.random.default_rng(seed)
    triples = {
        (int(s), int(r), int(o))
        for s, r, o in zip(
            rng.integers(ENTITIES, size=14),
            rng.integers(RELATIONS, size=14),
            rng.integers(ENTITIES, size=14),
            strict=True,
        )
    }
    names = [f"e{n}" for n in range(ENTITIES)], [f"r{n}" for n in range(RELATIONS)]
    return Graph(Vocabulary(*names), as_triples(sorted(triples)))


def true_tuples(graph: Graph, query: BoundQuery) -> set[tuple[int, ...]]:
    stored = set(map(tuple, graph.triples.tolist()))
    variables = [node for node, value in enumerate(query.nodes) if value < 0]
    found = set()
    for values in product(range(graph.entity_count), repeat=len(variables)):
        nodes = list(query.nodes)
        for node, value in zip(variables, values, strict=True):
            nodes[node] = value
        edges = [
            (nodes[s], r, nodes[o]) if r < RELATIONS else (nodes[o], r - RELATIONS, nodes[s]) for s, r, o in query.edges
        ]
        if all(edge in stored for edge in edges):
            found.add(tuple(nodes[node] for node in query.targets))
    return found


@given(st.integers(0, 60), st.sampled_from([CHAIN, TURNED, WITH_HIDDEN, CLOSED_PATTERN, ONE]))
def test_true_tuples_are_those_of_enumeration(seed, query):
    graph = graph_of(seed)
    truth = true_tuples(graph, query)
    rows = list(product(range(ENTITIES), repeat=len(query.targets)))
    held = TrueTuples(graph, query).holds(np.array(rows, np.int32))
    assert {row for row, is_true in zip(rows, held, strict=True) if is_true} == truth
    for excepted in sorted(truth)[:1]:
        but_one = TrueTuples(graph, query, excepted)
        held = but_one.holds(np.array(rows, np.int32))
        assert {row for row, is_true in zip(rows, held, strict=True) if is_true} == truth - {excepted}
        for column in range(len(query.targets)):
            filled = np.array(rows, np.int32)
            filled[:, column] = -1
            for row, values in zip(rows, but_one.completing(filled, column), strict=True):
                expected = [v for v in range(ENTITIES) if (*row[:column], v, *row[column + 1 :]) in truth - {excepted}]
                assert values.tolist() == expected


def test_no_rows_are_no_truths():
    assert TrueTuples(graph_of(0), CHAIN).holds(np.zeros((0, 2), np.int32)).tolist() == []
    assert TrueTuples(graph_of(0), CHAIN).completing(np.zeros((0, 2), np.int32), 1) == []


@given(
    st.lists(st.tuples(st.integers(0, 4), st.integers(0, 3), st.booleans()), min_size=1, max_size=8), st.integers(0, 7)
)
def test_a_rank_is_one_more_than_the_wrong_ones_before_with_ties_half(entries, place):
    rows = np.array([[number, number] for number in range(len(entries))], np.int32)
    scores = np.array([float(score) for score, _, _ in entries])
    ignored = np.array([is_true for _, _, is_true in entries])
    gold = (place, place)
    rank = tuple_rank(rows, scores, gold, ignored)
    if place >= len(entries):
        assert rank == np.inf
        return
    others = [n for n in range(len(entries)) if n != place and not ignored[n]]
    best = 1 + sum(scores[n] > scores[place] for n in others)
    worst = 1 + sum(scores[n] >= scores[place] for n in others)
    assert rank == (best + worst) / 2


class Joint:
    """A model whose joint scores of all tuples are given; ``way`` lists them all."""

    name = "joint"
    entity_count, relation_count, training = ENTITIES, RELATIONS, False

    def __init__(self, seed: int, own: bool = False) -> None:
        self.scores = np.random.default_rng(seed).normal(size=(ENTITIES, ENTITIES))
        self.own = own

    def eval(self):
        return self

    def train(self, mode):
        return self

    def supports(self, query, *, strict=True):
        from biqe.models._contract import Support

        return Support(query.nodes[0] != 4, "it does not like entity 4")

    def tuples(self, queries, count):
        if not self.own:
            return None
        order = np.argsort(-self.scores, axis=None)[:count]
        rows = np.stack(np.divmod(order, ENTITIES), axis=1).astype(np.int32)
        return [Tuples(rows, self.scores.ravel()[order]) for _ in range(len(queries))]

    def way(self, sign=1.0):
        def found(queries, excluded, count):
            listed = []
            for out in excluded:
                order = np.argsort(-sign * self.scores, axis=None)
                rows = np.stack(np.divmod(order, ENTITIES), axis=1).astype(np.int32)
                kept = ~out.holds(rows)
                listed.append((rows[kept][:count], sign * self.scores.ravel()[order][kept][:count]))
            return listed

        return found


def queries_with_gold(graph: Graph, anchors) -> tuple[QuerySet, list[tuple[int, ...]]]:
    queries, golds = [], []
    for anchor in anchors:
        query = BoundQuery((anchor, TARGET, TARGET), CHAIN.edges, (1, 2))
        for gold in sorted(true_tuples(graph, query)):
            queries.append(query)
            golds.append(gold)
    asked = QuerySet.of(queries)
    gold = np.concatenate([[query.nodes[0], *row] for query, row in zip(queries, golds, strict=True)])
    from dataclasses import replace

    return replace(asked, gold=gold.astype(np.int32)), golds


@pytest.mark.parametrize("seed", range(4))
def test_ranks_equal_enumeration(seed):
    graph = graph_of(seed)
    model = Joint(seed, own=True)
    asked, golds = queries_with_gold(graph, range(4))
    report = evaluate_tuples(model, asked, graph, {"up": model.way(), "down": model.way(-1.0)}, count=25, draws=50)
    for sign, name in ((1, "up"), (-1, "down"), (1, "own")):
        expected = []
        for query, gold in zip(asked, golds, strict=True):
            truth = true_tuples(graph, query)
            wrong = [row for row in product(range(ENTITIES), repeat=2) if row not in truth]
            expected.append(1 + sum(sign * model.scores[row] > sign * model.scores[gold] for row in wrong))
        assert report.ranks[name].tolist() == expected
        figures = report.ways[name]
        assert figures.metrics["mrr"] == pytest.approx(np.mean([1 / rank for rank in expected]))
        assert figures.metrics["hits@3"] == pytest.approx(np.mean([rank <= 3 for rank in expected]))
        assert figures.listed == 1.0
        assert figures.by_targets == {"2": figures.metrics}
        more, low, high = figures.over_first["mrr"]
        assert more == pytest.approx(figures.metrics["mrr"] - report.ways["up"].metrics["mrr"])
        assert low <= more <= high
    assert report.queries == len(asked)


def test_a_gold_tuple_that_is_not_listed_counts_as_nothing():
    graph = graph_of(1)
    model = Joint(1)
    asked, golds = queries_with_gold(graph, range(4))
    report = evaluate_tuples(model, asked, graph, {"short": model.way()}, count=1, draws=10)
    ranks = report.ranks["short"]
    assert set(ranks.tolist()) <= {1.0, np.inf}
    assert report.ways["short"].listed == np.isfinite(ranks).mean() == report.ways["short"].metrics["hits@1"]
    document = json.loads(json.dumps(report.to_json()))
    assert document["analysis"] == "tuples"
    assert document["ways"]["short"]["metrics"] == pytest.approx(report.ways["short"].metrics)


def test_what_cannot_be_ranked_is_counted():
    graph = graph_of(2)
    asked, _ = queries_with_gold(graph, [0, 1, 2, 3])
    from dataclasses import replace

    gold = asked.gold.copy()
    gold[asked.node_offsets[0] + 1] = -1
    model = Joint(2)
    report = evaluate_tuples(model, replace(asked, gold=gold), graph, {"way": model.way()}, draws=10)
    assert [(part.reason, part.queries) for part in report.skipped] == [("no gold tuple", 1)]
    with pytest.raises(EmptyResult, match="one target only"):
        evaluate_tuples(model, QuerySet.of([ONE]), graph, {"way": model.way()})
    with pytest.raises(EmptyResult, match="entity 4"):
        evaluate_tuples(model, QuerySet.of([BoundQuery((4, TARGET), ONE.edges, (1,))]), graph, {"way": model.way()})
    with pytest.raises(InvalidOption, match="Got 0"):
        evaluate_tuples(model, asked, graph, {"way": model.way()}, count=0)
