"""The loop: order, batches, skipped queries, missing golds, filters."""

from dataclasses import dataclass, replace

import numpy as np
import pytest
import torch
from torch import nn

from biqe.errors import EmptyResult, InvalidOption, RunFailed, TooManyPaths, VocabularyMismatch
from biqe.evaluate import Cq, Query2Box, Report, evaluate, evaluate_together, rank_targets
from biqe.evaluate.loop import measure
from biqe.evaluate.protocols import RankedTargets
from biqe.query.bound import HIDDEN, KINDS, ROLES, TARGET, AnswerSets, QuerySet

ENTITIES = 23


@dataclass(frozen=True)
class Answer:
    yes: bool
    reason: str = ""


class Encoded:
    def __init__(self, queries):
        self.queries = queries
        self.sizes = np.diff(queries.node_offsets)

    def batch(self, rows):
        return self.queries.take(rows)


class Fake(nn.Module):
    """Scores that depend on a target's query and node alone, as those of a real model do."""

    name = "fake"
    entity_count = ENTITIES
    relation_count = 5

    def __init__(self, refuse=lambda query: None, spoil=lambda scores: scores):
        super().__init__()
        self.refuse = refuse
        self.spoil = spoil
        self.seen = []

    def supports(self, query, *, strict=True):
        reason = self.refuse(query)
        return Answer(reason is None, reason or "")

    def encode(self, queries):
        assert not queries.filters, "a model must not see the filters"
        return Encoded(queries)

    def scores(self, batch):
        assert not self.training
        assert not torch.is_grad_enabled()
        rows = []
        for query in batch:
            for target in query.targets:
                rng = np.random.default_rng([abs(hash((query.nodes, query.edges))), target])
                rows.append(rng.integers(0, 8, ENTITIES))  # small integers: ties are common
        self.seen.append(len(rows))
        return self.spoil(torch.tensor(np.array(rows), dtype=torch.float32))


def query_set(count=30, seed=0):
    """Random chains of different lengths with random filters."""
    rng = np.random.default_rng(seed)
    nodes, gold, roles, edges, sizes = [], [], [], [], []
    for _ in range(count):
        length = int(rng.integers(1, 6))
        sizes.append(length)
        entities = rng.integers(0, ENTITIES, length + 1).tolist()
        nodes += [entities[0], *[TARGET] * length]
        gold += entities
        roles += [0, *[ROLES.index("branch")] * (length - 1), ROLES.index("tail")]
        edges += [(step, int(rng.integers(0, 5)), step + 1) for step in range(length)]
    sizes = np.array(sizes)
    targets = int(sizes.sum())

    def filters():
        chosen = [np.sort(rng.choice(ENTITIES, rng.integers(0, 6), replace=False)) for _ in range(targets)]
        offsets = np.cumsum([0, *map(len, chosen)]).astype(np.int64)
        return AnswerSets(offsets, np.concatenate(chosen).astype(np.int32))

    return QuerySet(
        np.cumsum([0, *(sizes + 1)]).astype(np.int64),
        np.array(nodes, np.int32),
        np.array(gold, np.int32),
        np.array(roles, np.int8),
        np.cumsum([0, *sizes]).astype(np.int64),
        np.array(edges, np.int32),
        np.where(sizes == 1, KINDS.index("triple"), KINDS.index("path")).astype(np.int8),
        {"complete": filters(), "split": filters()},
    )


def ranked(model, queries, filter_graph="complete") -> RankedTargets:
    """Ranks of all targets, in the order of the set."""
    _, _, [parts] = measure(model, queries, [Cq(filter_graph)])
    return RankedTargets.join(parts)


def by_query(found: RankedTargets, queries) -> list[list[float]]:
    """Ranks of each query's targets."""
    owner = np.searchsorted(queries.target_offsets, found.targets, side="right") - 1
    return [found.ranks.realistic[owner == row].tolist() for row in range(len(queries))]


def figures(report: Report):
    """What a report says about the model, without times and machine."""
    return {
        "overall": report.metrics,
        "macro": report.macro.metrics,
        "by": {name: part.metrics for name, part in report.by_position.items()},
        "kinds": {name: part.metrics for name, part in report.by_kind.items()},
        "sizes": {name: part.metrics for name, part in report.by_targets.items()},
    }


def flat(value):
    if not isinstance(value, dict):
        return {"": value}
    return {f"{key}/{inner}": number for key, part in value.items() for inner, number in flat(part).items()}


def test_equal_to_ranking_query_by_query():
    queries = query_set()
    model = Fake()
    one_by_one = []
    for row in range(len(queries)):
        one = queries.take(np.array([row]))
        with torch.no_grad():
            scores = model.eval().scores(one)
        one_by_one += rank_targets(scores, one.gold[one.target_nodes], one.filters["split"]).realistic.tolist()
    found = ranked(model, queries, "split")
    assert found.ranks.realistic.tolist() == one_by_one
    assert found.targets.tolist() == list(range(len(one_by_one)))


@pytest.mark.parametrize("batch_targets", [1, 4, 7, 1000])
def test_batch_size_changes_nothing(batch_targets):
    queries = query_set()
    whole = evaluate(Fake(), queries)
    model = Fake()
    parts = evaluate(model, queries, batch_targets=batch_targets)
    assert figures(parts) == figures(whole)
    assert parts.overall.intervals == whole.overall.intervals
    largest = np.diff(queries.target_offsets).max()
    assert max(model.seen) <= max(batch_targets, largest)


def test_order_of_queries_changes_nothing():
    queries = query_set()
    order = np.random.default_rng(1).permutation(len(queries))
    turned = queries.take(order)
    before, after = by_query(ranked(Fake(), queries), queries), by_query(ranked(Fake(), turned), turned)
    assert after == [before[row] for row in order]
    expected, found = flat(figures(evaluate(Fake(), queries))), flat(figures(evaluate(Fake(), queries.take(order))))
    assert found == pytest.approx(expected, rel=1e-12)


def test_filter_graph_decides_and_is_reported():
    queries = query_set()
    complete, split = (evaluate(Fake(), queries, Cq(graph)) for graph in ("complete", "split"))
    assert (complete.filter_graph, split.filter_graph) == ("complete", "split")
    assert figures(complete) != figures(split)


@pytest.mark.parametrize(("graph", "message"), [("reach", "it holds complete, split"), ("train", "must be one of")])
def test_missing_filters_are_an_error(graph, message):
    with pytest.raises(InvalidOption, match=message):
        evaluate(Fake(), query_set(), Cq(graph))


def test_several_filters_at_once_give_what_each_gives_and_ask_the_model_once():
    queries = query_set()
    names = sorted(queries.filters)
    assert len(names) > 1
    model = Fake()
    together = evaluate_together(model, queries, [Cq(name) for name in names])
    assert sum(model.seen) == len(queries.target_nodes)
    for name, found in zip(names, together, strict=True):
        alone = evaluate(Fake(), queries, Cq(name))
        assert found.filter_graph == name
        assert found.overall == alone.overall and found.by_position == alone.by_position
    assert together[0].overall != together[1].overall


def test_a_protocol_refuses_queries_that_it_is_not_for():
    with pytest.raises(InvalidOption, match="protocol q2b is for ShapedQueries. Got QuerySet"):
        evaluate(Fake(), query_set(), Query2Box())


def test_no_filters_at_all():
    with pytest.raises(InvalidOption, match="none at all"):
        evaluate(Fake(), replace(query_set(), filters={}))


def test_unsupported_queries_are_counted_with_reasons():
    queries = query_set()
    sizes = np.diff(queries.target_offsets)

    def refuse(query):
        if len(query.targets) == 2:
            return "two are too many"
        if len(query.targets) == 3:
            raise TooManyPaths("more paths than it reads")
        return None

    report = evaluate(Fake(refuse), queries)
    assert {part.reason: part.queries for part in report.skipped} == {
        "two are too many": (sizes == 2).sum(),
        "more paths than it reads": (sizes == 3).sum(),
    }
    twos = next(part for part in report.skipped if part.reason.startswith("two"))
    assert list(twos.examples) == np.flatnonzero(sizes == 2)[:5].tolist()
    kept = queries.take(np.flatnonzero((sizes != 2) & (sizes != 3)))
    assert figures(report) == figures(evaluate(Fake(), kept))
    assert report.counts["queries"] == len(queries)
    assert report.counts["ranked_queries"] == len(kept)
    assert "skipped:" in report.to_table()


def test_targets_without_gold_are_counted():
    queries = query_set()
    gold = queries.gold.copy()
    lost = queries.target_nodes[[0, 5, 6]]
    gold[lost] = -1
    some, all_ranked = ranked(Fake(), replace(queries, gold=gold)), ranked(Fake(), queries)
    kept = np.setdiff1d(all_ranked.targets, [0, 5, 6])
    assert some.targets.tolist() == kept.tolist()
    assert some.ranks.realistic.tolist() == all_ranked.ranks.realistic[kept].tolist()
    report = evaluate(Fake(), replace(queries, gold=gold))
    assert report.counts["targets_without_gold"] == 3
    assert "3 targets without a gold entity" in report.to_table()


def test_hidden_variables_are_no_targets_and_a_query_without_targets_is_counted():
    queries = query_set(3)
    hidden = queries.nodes.copy()
    first = slice(0, int(queries.node_offsets[1]))
    hidden[first] = np.where(hidden[first] == TARGET, HIDDEN, hidden[first])
    keep = np.arange(queries.target_offsets[1], queries.target_offsets[-1])
    changed = replace(queries, nodes=hidden, filters={"complete": queries.filters["complete"].take(keep)})
    report = evaluate(Fake(), changed)
    assert [(part.reason, part.queries, part.examples) for part in report.skipped] == [("no target to rank", 1, (0,))]


def test_nothing_left_is_an_error_that_says_why():
    with pytest.raises(EmptyResult, match="30 queries: it is tired"):
        evaluate(Fake(lambda query: "it is tired"), query_set())
    queries = query_set(4)
    with pytest.raises(EmptyResult, match="no gold entity"):
        evaluate(Fake(), replace(queries, gold=np.full_like(queries.gold, -1)))


def test_ids_beyond_the_model_are_another_graph():
    queries = query_set()
    gold = queries.gold.copy()
    gold[queries.target_nodes[0]] = ENTITIES
    with pytest.raises(VocabularyMismatch, match="gold entity 23"):
        evaluate(Fake(), replace(queries, gold=gold))
    filters = AnswerSets(np.zeros(len(queries.target_nodes) + 1, np.int64), np.array([99], np.int32))
    filters.offsets[-1] = 1
    with pytest.raises(VocabularyMismatch, match="filter value 99"):
        evaluate(Fake(), queries.with_filters(complete=filters))


def test_models_that_break_the_contract():
    with pytest.raises(RunFailed, match="shape"):
        evaluate(Fake(spoil=lambda scores: scores[:, 1:]), query_set())
    with pytest.raises(InvalidOption, match="NaN"):
        evaluate(Fake(spoil=lambda scores: scores.fill_(float("nan"))), query_set())


def test_training_mode_is_given_back_even_after_an_error():
    model = Fake().train()
    evaluate(model, query_set())
    assert model.training
    model.spoil = lambda scores: scores[:0]
    with pytest.raises(RunFailed):
        evaluate(model, query_set())
    assert model.training
    model.eval()
    model.spoil = lambda scores: scores
    evaluate(model, query_set())
    assert not model.training


def test_progress_rises_to_the_total():
    seen = []
    evaluate(Fake(), query_set(), batch_targets=10, progress=lambda done, total: seen.append((done, total)))
    assert seen[-1] == (30, 30)
    assert [done for done, _ in seen] == sorted({done for done, _ in seen})


def test_a_perfect_and_a_worst_model():
    queries = query_set()
    gold = torch.tensor(queries.gold[queries.target_nodes], dtype=torch.int64)

    class Knowing(Fake):
        def scores(self, batch):
            rows = np.searchsorted(queries.target_nodes, batch)
            return nn.functional.one_hot(gold[rows], ENTITIES).float() * self.sign

        def encode(self, asked):
            encoded = Encoded(asked)
            starts = queries.node_offsets[:-1]
            encoded.batch = lambda rows: np.concatenate(
                [
                    starts[row] + np.flatnonzero(queries.nodes[starts[row] : queries.node_offsets[row + 1]] == TARGET)
                    for row in rows
                ]
            )
            return encoded

    model = Knowing()
    model.sign = 1
    assert evaluate(model, queries).value("mrr") == 1
    model.sign = -1
    report = evaluate(model, queries)
    assert report.value("hits@10") == 0  # 23 entities, at most 5 of them filtered: the gold is at least 18th
    assert report.value("mrr", "optimistic") == report.value("mrr", "pessimistic")


def test_bad_batch_size():
    with pytest.raises(InvalidOption, match="batch_targets"):
        evaluate(Fake(), query_set(), batch_targets=0)
