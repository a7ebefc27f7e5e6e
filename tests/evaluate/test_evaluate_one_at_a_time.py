"""Predicting one target at a time: by hand, against a slow road, and against predicting all at once."""

import json
from dataclasses import replace

import numpy as np
import pytest
import torch

from biqe.errors import EmptyResult, InvalidOption
from biqe.evaluate import evaluate, rank_targets
from biqe.evaluate.one_at_a_time import one_at_a_time
from biqe.query.bound import TARGET, BoundQuery, QuerySet

PATH = BoundQuery((0, TARGET, TARGET), ((0, 0, 1), (1, 1, 2)), (1, 2))
DAG = BoundQuery((7, TARGET, 8, TARGET, TARGET), ((0, 0, 1), (1, 1, 3), (2, 2, 3), (3, 3, 4)), (1, 3, 4))
TURNED = BoundQuery((TARGET, TARGET, 5), ((2, 0, 1), (1, 1, 0)), (0, 1))
"""A path whose last node comes first."""


def with_gold(make, queries, gold, filters):
    """A query set with the gold entity and the filter of each target, in node order."""
    found = QuerySet.of(queries)
    entities = found.gold.copy()
    entities[found.target_nodes] = gold
    return replace(found, gold=entities).with_filters(complete=make.sets(filters))


def test_by_hand(make):
    # Five entities, one path e0 -> ?a -> ?b with golds e1 and e2.
    # In one shot: ?a gets 4 3 2 1 0: e1 has rank 2. ?b gets 0 0 9 0 0: e2 has rank 1.
    # One at a time: ?a as before, rank 2, and e0 (score 4) is filled in. Asked with ?a = e0, ?b gets 4 3 2 1 0:
    # e2 has rank 3. So MRR is (1/2 + 1) / 2 = 3/4 in one shot and (1/2 + 1/3) / 2 = 5/12 one at a time.
    falling, sure = [4, 3, 2, 1, 0], [0, 0, 9, 0, 0]

    def script(query, target):
        return sure if target == 2 and query.nodes[1] == TARGET else falling

    found = one_at_a_time(make.Scripted(script, 5), with_gold(make, [PATH], [1, 2], [{1}, {2}]))
    assert found.joint.metrics["realistic"]["mrr"] == pytest.approx(3 / 4)
    assert found.overall.metrics["realistic"]["mrr"] == pytest.approx(5 / 12)
    assert found.gap["mrr"] == pytest.approx(1 / 3)
    assert {turn: part.metrics["realistic"]["mrr"] for turn, part in found.by_turn.items()} == pytest.approx(
        {"1": 1 / 2, "2": 1 / 3}
    )
    assert {turn: part.metrics["realistic"]["mrr"] for turn, part in found.joint_by_turn.items()} == pytest.approx(
        {"1": 1 / 2, "2": 1}
    )
    written = json.loads(json.dumps(found.to_json()))
    assert written["analysis"] == "one-at-a-time"
    assert written["overall"]["metrics"]["realistic"]["mrr"] == pytest.approx(5 / 12)


def test_the_target_closest_to_the_source_goes_first(make):
    filled = []

    def script(query, target):
        if query.nodes.count(TARGET) == 1:
            filled.append(query.nodes)
        return [0, 0, 0, 9, 0, 0]

    one_at_a_time(make.Scripted(script, 6), with_gold(make, [TURNED], [1, 2], [{1}, {2}]))
    assert set(filled) == {(TARGET, 3, 5)}


def slow_road(model, queries):
    """Query by query, target by target."""
    ranks = {}
    for row in range(len(queries)):
        query = queries[row]
        depth = {1: 1, 3: 2, 4: 3} if len(query.nodes) == 5 else {node: node for node in query.targets}
        if query.nodes[2] == 5:
            depth = {1: 1, 0: 2}
        nodes = list(query.nodes)
        first = queries.target_offsets[row]
        for node in sorted(query.targets, key=depth.get):
            left = tuple(n for n in query.targets if nodes[n] == TARGET)
            asked = QuerySet.of([replace(query, nodes=tuple(nodes), targets=left)])
            with torch.no_grad():
                scores = model.scores(model.encoder(asked))[[left.index(node)]]
            number = int(first) + query.targets.index(node)
            gold = queries.gold[queries.target_nodes[[number]]]
            answers = queries.filters["complete"].take(np.array([number]))
            ranks[number] = rank_targets(scores, gold, answers).realistic.item()
            nodes[node] = int(scores.argmax())
    return [ranks[number] for number in sorted(ranks)]


@pytest.mark.parametrize("batch_targets", [1, 7, None])
def test_batched_equals_query_by_query(make, small_biqe, batch_targets):
    rng = np.random.default_rng(0)
    queries = []
    for _ in range(6):
        a, b = rng.integers(0, 30, 2).tolist()
        queries += [
            replace(PATH, nodes=(a, TARGET, TARGET)),
            replace(DAG, nodes=(a, TARGET, b, TARGET, TARGET)),
            TURNED,
        ]
    count = sum(len(query.targets) for query in queries)
    golds = rng.integers(0, 30, count)
    asked = with_gold(make, queries, golds, [{int(gold), int(rng.integers(30))} for gold in golds])
    model = small_biqe()
    found = one_at_a_time(model, asked, batch_targets=batch_targets)
    ranks = slow_road(model, asked)
    assert found.overall.metrics["realistic"]["mrr"] == pytest.approx(np.mean(1 / np.array(ranks)), rel=1e-6)
    assert found.joint.metrics == evaluate(model, asked, bootstrap=0).metrics
    assert found.by_turn["1"].metrics == found.joint_by_turn["1"].metrics, "the first turn is the same both ways"
    assert [part.targets for part in found.by_turn.values()] == [18, 18, 6]
    assert found.counts == {"queries": 18, "ranked_queries": 18, "ranked_targets": count}


def test_targets_without_gold_are_filled_in_but_not_ranked(make):
    found = one_at_a_time(
        make.Scripted(lambda query, target: [4, 3, 2, 1, 0], 5), with_gold(make, [PATH], [-1, 2], [set(), {2}])
    )
    assert found.counts["ranked_targets"] == 1
    assert list(found.by_turn) == ["2"]


def test_queries_refused_on_the_way_are_counted_and_left_out_of_both(make):
    def refuse(query):
        return "no constant in the middle" if len(query.nodes) == 3 and query.nodes[1] >= 0 else None

    model = make.Scripted(lambda query, target: [4, 3, 2, 1, 0], 5, refuse=refuse)
    triple = BoundQuery((0, TARGET), ((0, 0, 1),), (1,))
    found = one_at_a_time(model, with_gold(make, [PATH, triple], [1, 2, 3], [{1}, {2}, {3}]))
    assert found.counts["ranked_queries"] == found.joint.queries == 1
    assert [(part.queries, part.examples) for part in found.skipped] == [(1, (0,))]
    assert "no constant in the middle" in found.skipped[0].reason
    with pytest.raises(EmptyResult, match="no constant"):
        one_at_a_time(model, with_gold(make, [PATH], [1, 2], [{1}, {2}]))


def test_progress_and_bad_options(make):
    model = make.Scripted(lambda query, target: [4, 3, 2, 1, 0], 5)
    queries = with_gold(make, [PATH, PATH], [1, 2, 1, 2], [{1}, {2}] * 2)
    seen = []
    one_at_a_time(model, queries, batch_targets=1, progress=lambda done, total: seen.append((done, total)))
    assert seen == [(1, 4), (2, 4), (3, 4), (4, 4)]
    with pytest.raises(InvalidOption, match="no filters from the 'split' graph"):
        one_at_a_time(model, queries, filter_graph="split")


def test_a_model_without_future_context_is_evaluated_like_any_other(make, small_biqe):
    # Without a look ahead, the first target of a path cannot tell what comes after it; with it, it can.
    paths = [replace(PATH, edges=((0, 0, 1), (1, relation, 2))) for relation in (1, 2)]
    queries = with_gold(make, paths, [1, 2, 1, 2], [{1}, {2}] * 2)

    def first_targets(context):
        model = small_biqe(context=context)
        found = one_at_a_time(model, queries)
        assert found.counts["ranked_queries"] == evaluate(model, queries).counts["ranked_queries"] == 2
        with torch.no_grad():
            return model.scores(model.encoder(replace(queries, filters={})))[[0, 2]]

    past, full = first_targets("past"), first_targets("full")
    assert torch.allclose(past[0], past[1], atol=1e-6)
    assert not torch.allclose(full[0], full[1], atol=1e-3)
