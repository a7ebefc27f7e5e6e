"""Queries to learn from: both directions, questions of a benchmark, and all answers of the training graph."""

from __future__ import annotations

import importlib.util
from collections import Counter
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from biqe.benchmarks.shaped import ShapedQueries
from biqe.errors import EmptyResult, InvalidOption
from biqe.exact.answers import answers
from biqe.mine.dataset import epoch_queries
from biqe.models import _catalogue
from biqe.query.bound import HIDDEN, TARGET, BoundQuery, QuerySet, concatenate
from biqe.training.config import TrainConfig
from biqe.training.queries import (
    attach_answers,
    both_directions,
    every_question,
    sample_questions,
    some_triples,
    triple_queries,
)
from biqe.training.stream import Stream

_spec = importlib.util.spec_from_file_location("queries_town", Path(__file__).with_name("conftest.py"))
_module = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(_module)
TRAIN = _module.town()["train"]
SMALL = {"width": 8, "layers": 1, "heads": 2, "feed_forward": 8}


def rng(seed: int = 0) -> np.random.Generator:
    return np.random.default_rng(seed)


def asked(queries: QuerySet) -> list[tuple[int, int]]:
    """Source and relation of each single-edge query."""
    sources = queries.nodes[queries.node_offsets[:-1]]
    return list(zip(sources.tolist(), queries.edges[:, 1].tolist(), strict=True))


@given(st.integers(2, 5), st.floats(0, 1), st.integers(0, 30))
def test_triples_that_ask_the_same_are_learnt_together(together, share, seed):
    """The same triples come out, in as few queries as the group size allows, none with an answer twice."""
    apart, grouped = (triple_queries(TRAIN, rng(seed), share, size) for size in (1, together))
    plain = sorted((s, r, o) for (s, r), o in zip(asked(apart), apart.gold[apart.target_nodes].tolist(), strict=True))
    sets = grouped.filters["train"]
    found = [(s, r, o) for row, (s, r) in enumerate(asked(grouped)) for o in sets[row].tolist()]
    assert sorted(found) == plain
    assert all(1 <= len(sets[row]) <= together and (np.diff(sets[row]) > 0).all() for row in range(len(sets)))
    of_question = Counter((s, r) for s, r, _ in plain)
    assert Counter(asked(grouped)) == {key: -(-count // together) for key, count in of_question.items()}
    assert all(gold in sets[row] for row, gold in enumerate(grouped.gold[grouped.target_nodes]))


def test_mined_queries_keep_their_one_answer_beside_grouped_triples():
    model = _catalogue.build("biqe", SMALL, TRAIN.entity_count, TRAIN.relation_count)
    epoch = Stream(TRAIN, model, TrainConfig(epochs=1, paths=20, dags=20)).epoch(0)
    for _, batch in epoch.from_batch(0):
        targets = batch.targets
        firsts = targets.answers[targets.offsets[:-1]]
        single = targets.offsets.diff() == 1
        assert firsts[single].equal(targets.gold[single])


def test_models_that_learn_from_one_answer_get_one(monkeypatch):
    model = _catalogue.build("biqe", SMALL, TRAIN.entity_count, TRAIN.relation_count)
    monkeypatch.setattr(type(model), "uses_answers", False)
    epoch = Stream(TRAIN, model, TrainConfig(epochs=1, paths=0, dags=0)).epoch(0)
    assert sum(map(len, epoch.batches)) == len(TRAIN.triples)
    with pytest.raises(InvalidOption, match="one answer at a time"):
        Stream(TRAIN, model, TrainConfig(epochs=1, answers="all"))


def test_both_directions_ask_every_triple_twice():
    queries = both_directions(TRAIN, rng())
    golds = queries.gold[queries.target_nodes].tolist()
    found = {(s, r, o) for (s, r), o in zip(asked(queries), golds, strict=True)}
    plain = {(s, r, o) for s, r, o in TRAIN.triples.tolist()}
    assert found == plain | {(o, r + TRAIN.relation_count, s) for s, r, o in plain}


def test_both_directions_together_hold_every_triple_twice():
    queries = both_directions(TRAIN, rng(), together=3)
    sets = queries.filters["train"]
    assert 1 < np.diff(sets.offsets).max() <= 3
    found = [(s, r, int(o)) for number, (s, r) in enumerate(asked(queries)) for o in sets[number]]
    plain = TRAIN.triples.tolist()
    assert sorted(found) == sorted([tuple(t) for t in plain] + [(o, r + TRAIN.relation_count, s) for s, r, o in plain])


def test_every_question_is_asked_once():
    once, every = asked(every_question(TRAIN)), asked(both_directions(TRAIN, rng()))
    assert len(set(once)) == len(once) and set(once) == set(every)


@given(st.integers(0, 30))
def test_attached_answers_are_those_of_the_graph(seed):
    queries = epoch_queries(TRAIN, paths=20, dags=20, seed=seed, epoch=0, inverse_share=0.5)
    found = attach_answers(TRAIN, queries, most=0, rng=rng(seed), threads=1)
    assert len(found) == len(queries), "every mined query has its own match"
    expected = [part for query in found for part in answers(TRAIN, query)]
    sets = found.filters["train"]
    assert len(sets) == len(expected)
    for target, plain in enumerate(expected):
        assert np.array_equal(sets[target], plain)
    golds = found.gold[found.target_nodes]
    assert all(gold in sets[target] for target, gold in enumerate(golds))


@given(st.integers(1, 4), st.integers(0, 30))
def test_thinned_answers_are_some_of_them(most, seed):
    queries = every_question(TRAIN)
    every = attach_answers(TRAIN, queries, most=0, rng=rng(seed), threads=1).filters["train"]
    some = attach_answers(TRAIN, queries, most=most, rng=rng(seed), threads=1).filters["train"]
    for target in range(len(every)):
        assert set(some[target]) <= set(every[target])
        assert len(some[target]) == len(set(some[target])) == min(most, len(every[target]))
        assert (np.diff(some[target]) > 0).all()


def test_thinning_is_fair():
    """Over many draws each of twelve answers is kept as often as any other."""
    queries = QuerySet.of([BoundQuery((5, TARGET), ((0, 0, 1),), (1,))])
    graph = replace(TRAIN, triples=np.array([[5, 0, o] for o in range(20, 32)], np.int32))
    counts = np.zeros(40)
    for seed in range(900):
        counts[attach_answers(graph, queries, most=5, rng=rng(seed), threads=1).filters["train"].values] += 1
    kept = counts[20:32]
    assert kept.sum() == 900 * 5 and kept.min() > 0.85 * kept.mean() and kept.max() < 1.15 * kept.mean()


def test_questions_without_an_answer_are_left_out():
    relation = int(TRAIN.triples[0, 1])
    have = BoundQuery((int(TRAIN.triples[0, 0]), TARGET), ((0, relation, 1),), (1,))
    silent = {(s, r) for s, r, _ in TRAIN.triples.tolist()}
    nobody = next(e for e in range(TRAIN.entity_count) if (e, relation) not in silent)
    queries = QuerySet.of([BoundQuery((nobody, TARGET), ((0, relation, 1),), (1,)), have])
    found = attach_answers(TRAIN, queries, most=0, rng=rng(), threads=1)
    assert len(found) == 1 and found[0].nodes == have.nodes
    assert found.gold[found.target_nodes[0]] >= 0


def questions(one: int = 30, two: int = 10) -> ShapedQueries:
    """Some 1p and 2p questions with answers in the graph."""
    single = every_question(TRAIN).take(np.arange(one))
    walks = epoch_queries(TRAIN, paths=two, dags=0, seed=1, epoch=0)
    chains = [BoundQuery((q.nodes[0], HIDDEN, TARGET), q.edges[:2], (2,)) for q in walks]
    rows = concatenate([replace(single, gold=np.full_like(single.gold, -1)), QuerySet.of(chains)])
    shape = np.array([0] * one + [1] * len(chains), np.int8)
    return ShapedQueries(rows, np.arange(len(rows)), ("1p", "2p"), shape)


def test_a_sample_has_as_many_of_each_shape():
    drawn = sample_questions(questions(), 12, rng())
    assert np.bincount(np.diff(drawn.edge_offsets)).tolist() == [0, 6, 6]
    everything = sample_questions(questions(), 1000, rng())
    assert len(everything) == len(questions())


@pytest.mark.parametrize("how", ["one", "all"])
def test_questions_are_learnt_with_the_answers_of_the_graph(how):
    model = _catalogue.build("biqe", SMALL, TRAIN.entity_count, TRAIN.relation_count)
    config = TrainConfig(epochs=1, answers=how, set_queries=24)
    stream = Stream(TRAIN, model, config, questions=questions())
    for _, batch in stream.epoch(0).from_batch(0):
        assert (batch.targets.gold >= 0).all()
        assert (batch.targets.answers is not None) == (how == "all")
        assert model.loss(batch).isfinite()
    first, again = (stream.epoch(1).encoded.batch(np.arange(8)) for _ in range(2))
    assert first.tokens.equal(again.tokens) and first.targets.gold.equal(again.targets.gold)


def test_a_mixed_stream_with_all_answers_asks_each_question_once():
    model = _catalogue.build("biqe", SMALL, TRAIN.entity_count, TRAIN.relation_count)
    config = TrainConfig(epochs=1, answers="all", paths=0, dags=0, inverse_share=1.0)
    epoch = Stream(TRAIN, model, config).epoch(0)
    assert sum(map(len, epoch.batches)) == len(every_question(TRAIN))


def test_questions_of_another_graph_are_refused():
    model = _catalogue.build("biqe", SMALL, TRAIN.entity_count, TRAIN.relation_count)
    unused = replace(TRAIN, triples=np.array([[0, 3, 1]], np.int32))
    config = TrainConfig(epochs=1)
    rows = QuerySet.of([BoundQuery((5, TARGET), ((0, 0, 1),), (1,))])
    alone = ShapedQueries(rows, np.arange(1), ("1p",), np.zeros(1, np.int8))
    with pytest.raises(EmptyResult, match="no"):
        Stream(unused, model, config, questions=alone).epoch(0)


@pytest.mark.parametrize("wrong", [{"answers": "some"}, {"optimizer": "sgd"}, {"set_queries": 0}, {"most_answers": -1}])
def test_refuses_settings(wrong):
    with pytest.raises(InvalidOption, match=next(iter(wrong))):
        TrainConfig(epochs=1, **wrong)


def test_shaped_questions_are_checked_and_cut():
    made = questions(4, 2)
    assert len(made.of_shape("2p")) == int((made.shape == 1).sum())
    with pytest.raises(InvalidOption, match="no shape '3p'"):
        made.of_shape("3p")
    with pytest.raises(InvalidOption, match="owners"):
        replace(made, owner=made.owner[:-1])
    union = ShapedQueries(
        made.rows.take(np.array([0, 1, 2])), np.array([0, 0, 1]), ("2u", "1p"), np.array([0, 1], np.int8)
    )
    turned = union.take(np.array([1, 0]))
    assert turned.owner.tolist() == [0, 1, 1] and turned.shape.tolist() == [1, 0]
    assert [query.nodes for query in turned.rows] == [made.rows[row].nodes for row in (2, 0, 1)]


@given(st.integers(0, 400), st.integers(0, 20))
def test_some_triples_are_triples_of_the_graph_and_every_one_comes_up(most, seed):
    import biqe.training.queries as room

    before, room.BLOCK = room.BLOCK, 10
    try:
        found = some_triples(TRAIN, most, rng(seed)).triples
        seen = {tuple(row) for n in range(60) for row in some_triples(TRAIN, 50, rng(n)).triples.tolist()}
    finally:
        room.BLOCK = before
    assert {tuple(row) for row in found.tolist()} <= {tuple(row) for row in TRAIN.triples.tolist()}
    assert len(seen) == len(TRAIN.triples)
    if 0 < most < len(TRAIN.triples):
        assert abs(len(found) - most) < 10
    else:
        assert len(found) == len(TRAIN.triples)


def test_an_epoch_of_some_triples_is_shorter_and_its_questions_are_others_each_time():
    model = _catalogue.build("biqe", SMALL, 72, 4)
    whole, some = (Stream(TRAIN, model, TrainConfig(epochs=1, paths=0, dags=0, triples=n)) for n in (0, 40))
    first, second = some.epoch(0), some.epoch(1)
    assert len(first.encoded.sizes) < len(whole.epoch(0).encoded.sizes)
    assert not np.array_equal(first.encoded.table.tokens, second.encoded.table.tokens)
    assert np.array_equal(first.encoded.table.tokens, some.epoch(0).encoded.table.tokens)
