"""Joint decoding against brute force over the whole joint distribution of a toy model."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from biqe.answer.joint import beam, parts, product
from biqe.answer.predicted import Predictor
from biqe.errors import UnsupportedQuery
from biqe.models._contract import Support
from biqe.query.bound import HIDDEN, TARGET, BoundQuery

NONE = np.zeros((0, 2), np.int32)
CHAIN = BoundQuery((0, TARGET, TARGET), ((0, 0, 1), (1, 1, 2)), (1, 2), ("", "x", "y"))
STAR = BoundQuery((0, 1, TARGET, TARGET), ((0, 0, 2), (1, 1, 2), (2, 1, 3)), (3, 2), ("", "", "x", "y"))
WITH_HIDDEN = BoundQuery((0, TARGET, HIDDEN, TARGET), ((0, 0, 1), (1, 1, 2), (2, 0, 3)), (1, 3), ("", "x", "h", "y"))
THREE = BoundQuery((2, TARGET, TARGET, TARGET), ((0, 0, 1), (1, 1, 2), (1, 0, 3)), (3, 1, 2), ("", "a", "b", "c"))
QUERIES = [CHAIN, STAR, WITH_HIDDEN, THREE]


def _ask(model, query, exclude=None, **options):
    predictor = Predictor(model)
    marginals = predictor.log_probabilities([predictor.prepare(query)])
    exclude = np.zeros((0, len(query.targets)), np.int32) if exclude is None else np.array(exclude, np.int32)
    return beam(predictor, query, marginals, exclude, **options)


@pytest.mark.parametrize("inverses", [False, True])
@pytest.mark.parametrize("query", QUERIES)
def test_a_beam_wide_enough_is_brute_force(toy, query, inverses):
    for seed in range(3):
        model = toy.random_model(seed, 4, 2, inverses=inverses)
        truth = model.tuples(query)
        found = _ask(model, query, count=len(truth), width=len(truth))
        assert len(found.tuples) == len(truth)
        best_first = sorted(truth, key=truth.__getitem__, reverse=True)
        assert tuple(found.tuples[0]) == best_first[0]
        expected = [truth[tuple(row)] for row in found.tuples.tolist()]
        np.testing.assert_allclose(np.exp(found.log_probabilities), expected, rtol=1e-4)
        assert (np.diff(found.log_probabilities) <= 0).all()


def test_joint_and_product_differ_where_targets_depend_on_each_other(toy):
    # x is 0 or 1, evenly; y equals x. The product cannot know that.
    weights = np.full((2, 3, 3), 1e-4)
    weights[0, 2, :2] = [0.5, 0.49]
    weights[1, 0, 0] = weights[1, 1, 1] = 1.0
    model = toy.FactorModel(weights)
    query = BoundQuery((2, TARGET, TARGET), ((0, 0, 1), (1, 1, 2)), (1, 2))
    predictor = Predictor(model)
    marginals = predictor.log_probabilities([query])
    joint = beam(predictor, query, marginals, NONE, count=2).tuples.tolist()
    paired = product(marginals, NONE, count=2).tuples.tolist()
    assert joint == [[0, 0], [1, 1]]
    assert sorted(paired) != sorted(joint)


@given(st.integers(0, 50), st.integers(1, 16), st.sets(st.tuples(st.integers(0, 3), st.integers(0, 3))))
def test_product_is_the_sorted_list_of_all_products(toy, seed, count, exclude):
    model = toy.random_model(seed, 4, 2)
    marginals = Predictor(model).log_probabilities([CHAIN])
    found = product(marginals, np.array(sorted(exclude), np.int32).reshape(-1, 2), count=count)
    table = marginals[0][:, None].astype(float) + marginals[1][None, :]
    allowed = [table[a, b] for a in range(4) for b in range(4) if (a, b) not in exclude]
    np.testing.assert_allclose(found.log_probabilities, sorted(allowed, reverse=True)[:count])
    assert not {tuple(row) for row in found.tuples.tolist()} & exclude


@given(st.integers(0, 50), st.sets(st.tuples(st.integers(0, 3), st.integers(0, 3))), st.integers(1, 20))
def test_excluded_tuples_are_left_out_and_leave_no_gap(toy, seed, exclude, width):
    model = toy.random_model(seed, 4, 2)
    found = _ask(model, CHAIN, sorted(exclude) or None, count=16, width=width)
    rows = list(map(tuple, found.tuples.tolist()))
    assert len(set(rows)) == len(rows)
    assert not set(rows) & exclude
    if width >= 4:  # every value of the first target survives the first step
        assert len(rows) == min(max(16, width), 16 - len(exclude))


def test_one_target_is_its_distribution(toy):
    model = toy.random_model(1, 5, 1)
    query = BoundQuery((3, TARGET), ((0, 0, 1),), (1,))
    found = _ask(model, query, count=5)
    truth = model.tuples(query)
    assert [tuple(row) for row in found.tuples.tolist()] == sorted(truth, key=truth.__getitem__, reverse=True)
    assert model.calls == 1


def test_one_model_call_a_step(toy):
    model = toy.random_model(1, 4, 2)
    _ask(model, THREE, count=10, width=10)
    assert model.calls == 3


def test_scores_that_do_not_fit_go_in_several_calls_with_the_same_result(toy, monkeypatch):
    whole = _ask(toy.random_model(4, 4, 2), THREE, count=64, width=64)
    monkeypatch.setattr("biqe.answer.predicted.SCORES_AT_ONCE", 10)
    model = toy.random_model(4, 4, 2)
    pieces = _ask(model, THREE, count=64, width=64)
    assert model.calls > 10
    np.testing.assert_array_equal(whole.tuples, pieces.tuples)
    np.testing.assert_allclose(whole.log_probabilities, pieces.log_probabilities)


def test_rows_come_in_select_order_whatever_the_order_of_nodes(toy):
    model = toy.random_model(2, 4, 2)
    turned = BoundQuery(CHAIN.nodes, CHAIN.edges, CHAIN.targets[::-1])
    there = _ask(model, CHAIN, count=16, width=16)
    back = _ask(model, turned, count=16, width=16)
    np.testing.assert_array_equal(there.tuples, back.tuples[:, ::-1])


def test_without_inverses_sources_are_filled_first(toy):
    # The tail is certain and its source is not; a model that knows constants at sources only must start there.
    weights = np.full((2, 3, 3), 1.0)
    weights[1, :, 2] = 1000.0
    asked = []

    class Recorder(toy.FactorModel):
        def encoder(self, queries):
            asked.extend(queries)
            return queries

    _ask(Recorder(weights), CHAIN, count=3)
    assert all(query.edges == ((0, 1, 1),) and query.nodes[1] == TARGET for query in asked[1:])


def test_parts_drop_patterns_between_constants_and_fall_apart():
    # a -> x -> y and a <- w: with x filled, w hangs on a and y on x.
    query = BoundQuery((7, TARGET, TARGET, TARGET), ((0, 0, 1), (1, 1, 2), (3, 0, 0)), (1, 2, 3), ("", "x", "y", "w"))
    first, second = parts(query, {1: 5})
    assert (first.query.nodes, first.query.edges, first.columns) == ((5, TARGET), ((0, 1, 1),), (1,))
    assert (second.query.nodes, second.query.edges, second.columns) == ((7, TARGET), ((1, 0, 0),), (2,))
    assert first.places == (1, 2)
    assert first.query.names == ("x", "y")


def test_targets_that_a_model_cannot_tell_apart_are_asked_one_at_a_time(toy):
    class OneAtATime(toy.FactorModel):
        def supports(self, query, *, strict=True):
            filled = sum(value >= 0 for value in query.nodes)
            return Support(len(query.targets) == 1 or (filled, len(query.targets)) == (1, 3), "too many")

    # b and c both hang on a; with a filled the model takes only one of them.
    weights = toy.random_model(3, 3, 2).weights
    query = BoundQuery((2, TARGET, TARGET, TARGET), ((0, 0, 1), (1, 1, 2), (1, 0, 3)), (1, 2, 3))
    model = OneAtATime(weights)
    model.supports = lambda query, strict=True: Support(len(query.targets) in (1, 3), "not two at once")
    found = _ask(model, query, count=27, width=27)
    truth = model.tuples(query)
    np.testing.assert_allclose(
        np.exp(found.log_probabilities), [truth[tuple(row)] for row in found.tuples.tolist()], rtol=1e-4
    )


def test_a_refusal_carries_the_models_reason_and_a_way_out(toy):
    model = toy.random_model(0, 3, 2, refuses="it has a cycle")
    with pytest.raises(UnsupportedQuery, match="it has a cycle") as caught:
        _ask(model, CHAIN, count=1)
    assert "known" in caught.value.hint


def test_link_probabilities_are_the_objects_share(toy):
    model = toy.random_model(5, 4, 2)
    links = [(0, 1, 2), (3, 0, 0), (0, 1, 3), (0, 1, 2)]
    found = Predictor(model).link_probabilities(links)
    expected = [model.weights[r, s, o] / model.weights[r, s].sum() for s, r, o in links]
    np.testing.assert_allclose(found, expected, rtol=1e-5)
    assert model.calls == 1
    assert Predictor(model).link_probabilities([]) == []
