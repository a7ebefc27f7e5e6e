"""Metrics and bootstrap: by hand, by brute force, deterministic."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from biqe.errors import EmptyResult, InvalidOption
from biqe.evaluate import metrics as metrics_module
from biqe.evaluate.metrics import METRICS, bootstrap, contributions, means


@pytest.mark.parametrize(
    ("ranks", "expected"),
    [
        ([1, 2, 10], {"mrr": (1 + 1 / 2 + 1 / 10) / 3, "hits@1": 1 / 3, "hits@3": 2 / 3, "hits@10": 1}),
        ([1.0, 3.0, 10.5], {"mrr": (1 + 1 / 3 + 1 / 10.5) / 3, "hits@1": 1 / 3, "hits@3": 2 / 3, "hits@10": 2 / 3}),
        ([1, 4, 11], {"mrr": (1 + 1 / 4 + 1 / 11) / 3, "hits@1": 1 / 3, "hits@3": 1 / 3, "hits@10": 2 / 3}),
        ([np.inf, 1.5], {"mrr": 1 / 3, "hits@1": 0, "hits@3": 1 / 2, "hits@10": 1 / 2}),
    ],
)
def test_metrics_by_hand(ranks, expected):
    assert means(np.array(ranks)) == pytest.approx(expected)


@settings(max_examples=50)
@given(st.lists(st.integers(1, 60), min_size=1))
def test_metrics_are_means_of_contributions_and_keep_their_order(ranks):
    found = means(np.array(ranks))
    assert list(found) == list(METRICS)
    assert contributions(np.array(ranks)).shape == (len(ranks), len(METRICS))
    assert found["hits@1"] <= found["mrr"] <= 1
    assert found["hits@1"] <= found["hits@3"] <= found["hits@10"]


def test_nothing_to_average_is_refused():
    with pytest.raises(EmptyResult):
        means(np.zeros(0))


@st.composite
def clusters(draw):
    queries = draw(st.integers(1, 15))
    counts = draw(st.lists(st.integers(0, 4), min_size=queries, max_size=queries).filter(any))
    rng = np.random.default_rng(draw(st.integers(0, 99)))
    sums = np.array([[rng.random(count).sum(), rng.random(count).sum()] for count in counts])
    return sums, np.array(counts, float)


@settings(max_examples=50)
@given(clusters(), st.integers(0, 5))
def test_interval_holds_the_mean_and_is_deterministic(case, seed):
    sums, counts = case
    mean = sums.sum(axis=0) / counts.sum()
    ends = bootstrap({"all": sums}, {"all": counts}, draws=60, seed=seed)["all"]
    assert (ends[:, 0] <= mean).all()
    assert (mean <= ends[:, 1]).all()
    assert np.array_equal(ends, bootstrap({"all": sums}, {"all": counts}, draws=60, seed=seed)["all"])


def test_equal_to_drawing_one_query_at_a_time():
    rng = np.random.default_rng(3)
    counts = rng.integers(1, 7, 40).astype(float)
    sums = rng.random((40, 4)) * counts[:, None]
    ends = bootstrap({"all": sums}, {"all": counts}, draws=200, seed=9, level=0.9)["all"]
    draws = np.random.default_rng(9).integers(40, size=(200, 40))
    means = np.array([sums[drawn].sum(axis=0) / counts[drawn].sum() for drawn in draws])
    assert ends == pytest.approx(np.percentile(means, [5, 95], axis=0).T)


def test_draws_in_blocks_equal_draws_at_once(monkeypatch):
    sums, counts = np.random.default_rng(0).random((30, 2)), np.ones(30)
    whole = bootstrap({"all": sums}, {"all": counts}, draws=50)["all"]
    monkeypatch.setattr(metrics_module, "DRAW_CELLS", 100)
    # The same draws; a product of matrices may add them in another order.
    assert bootstrap({"all": sums}, {"all": counts}, draws=50)["all"] == pytest.approx(whole, rel=1e-12)


def test_queries_are_drawn_not_targets():
    # Ten queries, each with 100 targets that are all right or all wrong. Drawing targets would claim an interval
    # ten times too narrow: the standard deviation of the mean is .5 / sqrt(10) = .16 over queries, .016 over targets.
    sums = np.array([[100.0]] * 5 + [[0.0]] * 5)
    low, high = bootstrap({"all": sums}, {"all": np.full(10, 100.0)}, draws=2000)["all"][0]
    assert low == pytest.approx(0.5 - 2 * 0.16, abs=0.1)
    assert high == pytest.approx(0.5 + 2 * 0.16, abs=0.1)


def test_groups_absent_from_a_draw():
    # Only one query of twenty has a target in "rare": draws without it say nothing, the others all say .25.
    counts = {"rare": np.eye(20)[0], "all": np.ones(20)}
    sums = {"rare": np.eye(20)[:, :1] * 0.25, "all": np.full((20, 1), 0.25)}
    assert bootstrap(sums, counts, draws=100)["rare"].tolist() == [[0.25, 0.25]]


def test_bad_options_are_refused():
    one = ({"all": np.ones((2, 1))}, {"all": np.ones(2)})
    with pytest.raises(InvalidOption, match="draws"):
        bootstrap(*one, draws=0)
    with pytest.raises(InvalidOption, match=r"\(0, 1\)"):
        bootstrap(*one, level=1)
    with pytest.raises(EmptyResult, match="no target"):
        bootstrap({"none": np.zeros((2, 1))}, {"none": np.zeros(2)})
    with pytest.raises(EmptyResult, match="no query"):
        bootstrap({"all": np.zeros((0, 1))}, {"all": np.zeros(0)})
    assert bootstrap({}, {}) == {}
