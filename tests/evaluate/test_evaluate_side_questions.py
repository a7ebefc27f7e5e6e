"""Samples, memorisation, time per query, and the machine."""

import json
from dataclasses import replace

import numpy as np
import pytest
from biqe.evaluate.memorisation import memorisation
from biqe.evaluate.sample import sample, sampled

from biqe.errors import EmptyResult, InvalidOption
from biqe.evaluate import evaluate_q2b
from biqe.evaluate.machine import machine
from biqe.evaluate.timing import time_per_query
from biqe.query.queryset import QuerySet

E = 12


def script(query, target):
    return np.random.default_rng([abs(hash((query.nodes, query.edges))), target]).random(E)


def shaped_set(make, count=20):
    rng = np.random.default_rng(0)
    rows = [[make.one_hop(n % E, n % 5)] if n % 2 else [make.two_hops(n % E, n % 5)] for n in range(count)]
    answers = [rng.choice(E, 4, replace=False) for _ in range(count)]
    return make.questions(
        rows, [1 - n % 2 for n in range(count)], ("1p", "2p"), answers=answers, hard=[part[:2] for part in answers]
    )


def test_a_sample_is_seeded_ordered_and_limited_in_each_group():
    groups = np.array([0] * 50 + [1] * 3 + [2] * 20)
    first, again, other = (sampled(groups, 10, seed) for seed in (0, 0, 1))
    assert first.tolist() == again.tolist() == sorted(set(first.tolist()))
    assert first.tolist() != other.tolist()
    assert np.bincount(groups[first]).tolist() == [10, 3, 10]
    with pytest.raises(InvalidOption, match="at least 1"):
        sampled(groups, 0)


def test_sets_of_both_kinds_can_be_sampled(make):
    shaped = shaped_set(make)
    part = sample(shaped, 3)
    assert np.bincount(part.shape).tolist() == [3, 3]
    assert len(sample(shaped.rows, 5)) == 5  # all of one kind
    assert len(sample(shaped, 1000)) == len(shaped)


def test_memorisation_of_questions(make):
    valid = shaped_set(make)
    train = replace(valid, hard=None)  # all answers are ranked
    model = make.Scripted(script, E)
    found = memorisation(model, train, valid, limit=1000, bootstrap=0)
    assert found.valid.overall == evaluate_q2b(model, valid, bootstrap=0).overall
    assert found.train.overall == evaluate_q2b(model, replace(valid, hard=valid.answers), bootstrap=0).overall
    assert found.gap["mrr"] == pytest.approx(found.train.value("mrr") - found.valid.value("mrr"))
    assert memorisation(model, valid, valid, bootstrap=0).gap == dict.fromkeys(found.gap, 0.0)
    written = json.loads(json.dumps(found.to_json()))
    assert (written["analysis"], written["train"]["notes"]["split"]) == ("memorisation", "train")


def test_memorisation_of_query_sets(make):
    rows = QuerySet.of([make.one_hop(n) for n in range(8)])
    gold = rows.gold.copy()
    gold[rows.target_nodes] = np.arange(8)
    queries = replace(rows, gold=gold)
    train = queries.with_filters(split=make.sets([{0}] * 8))
    valid = queries.with_filters(complete=make.sets([{1}] * 8))
    found = memorisation(make.Scripted(script, E), train, valid, limit=4, train_filter_graph="split", bootstrap=0)
    assert (found.train.filter_graph, found.valid.filter_graph) == ("split", "complete")
    assert found.train.counts["queries"] == 4
    with pytest.raises(InvalidOption, match="of one kind"):
        memorisation(make.Scripted(script, E), train, shaped_set(make))
    with pytest.raises(InvalidOption, match="needs the answers"):
        memorisation(make.Scripted(script, E), replace(shaped_set(make), answers=None, hard=None), shaped_set(make))


def test_time_per_query(make):
    found = time_per_query(make.Scripted(script, E), shaped_set(make), singles=5, repeats=2)
    assert (found.queries, found.targets, found.single_queries) == (20, 20, 5)
    assert 0 < found.single_median_ms <= found.single_p95_ms
    assert found.batched_queries_per_second == pytest.approx(1000 / found.batched_ms)
    assert {"allocator", "threads", "processor"} <= set(found.machine)
    assert json.loads(json.dumps(found.to_json()))["analysis"] == "timing"
    # Fewer queries than the warm-up needs are timed all the same.
    assert time_per_query(make.Scripted(script, E), shaped_set(make, 2).rows, repeats=1).single_queries == 1
    with pytest.raises(InvalidOption, match="at least 1"):
        time_per_query(make.Scripted(script, E), shaped_set(make), repeats=0)
    with pytest.raises(EmptyResult, match="tired"):
        time_per_query(make.Scripted(script, E, refuse=lambda query: "tired"), shaped_set(make))


def test_the_machine_is_described():
    found = machine()
    assert found["peak_resident_mib"] > 10
    assert found["processor"]
    assert found["allocator"] in ("system", "tcmalloc", "jemalloc", "mimalloc")
