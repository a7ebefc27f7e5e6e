"""The best entities, block by block, against sorting everything."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from biqe.predict import joint as room
from biqe.predict.joint import Descent, product, top
from biqe.predict.rows import Listed

NONE = np.zeros((0, 2), np.int32)


@pytest.fixture(autouse=True)
def small_blocks(monkeypatch):
    monkeypatch.setattr(room, "BLOCK", 7)
    monkeypatch.setattr(room, "FIRST", 2)


def everything(scores):
    return np.argsort(-scores, kind="stable")


# Few different values, so that most are tied, and some that cannot be.
rows = st.lists(st.sampled_from([-np.inf, -3.0, -1.0, -1.0, 0.5, 2.0]), min_size=1, max_size=60)


@given(rows, st.integers(0, 70))
def test_the_first_of_a_stable_sort(values, count):
    scores = np.array(values, np.float32)
    assert top(scores, count).tolist() == everything(scores)[:count].tolist()


@given(st.integers(0, 1000), st.integers(1, 40))
def test_random_scores(seed, count):
    scores = np.random.default_rng(seed).normal(size=100).astype(np.float32)
    assert top(scores, count).tolist() == everything(scores)[:count].tolist()


@given(rows, st.lists(st.integers(0, 70), max_size=5))
def test_a_descent_is_the_sorted_row_however_it_is_looked_at(values, looks):
    scores = np.array(values, np.float32)
    descent = Descent(scores)
    for rank in looks:
        assert descent.reaches(rank) == (rank < len(scores))
        if rank < len(scores):
            assert descent.entities[rank] == everything(scores)[rank] and descent.scores[rank] == max(
                scores[descent.entities[rank]], -np.inf
            )


@settings(max_examples=60)
@given(st.integers(0, 500), st.integers(1, 30), st.booleans())
def test_products_are_those_of_all_pairs(seed, count, injective):
    """Every pair of entities, scored and sorted, is the other road."""
    rng = np.random.default_rng(seed)
    marginals = np.log(rng.dirichlet(np.ones(12), 2)).astype(np.float32)
    marginals[0, rng.integers(12)] = -np.inf
    known = np.unique(rng.integers(0, 12, (5, 2)).astype(np.int32), axis=0)
    found = product(marginals, Listed(known), count=count, injective=injective)
    left_out = set(map(tuple, known.tolist()))
    pairs = [
        (a, b)
        for a in range(12)
        for b in range(12)
        if (a, b) not in left_out and marginals[0, a] > -np.inf and not (injective and a == b)
    ]
    scores = np.array([float(marginals[0, a]) + float(marginals[1, b]) for a, b in pairs])
    best = np.sort(scores)[::-1][:count]
    np.testing.assert_allclose(found.scores, best, atol=1e-6)
    assert len(set(map(tuple, found.entities.tolist()))) == min(count, len(pairs))
    for (a, b), score in zip(found.entities.tolist(), found.scores, strict=True):
        assert (a, b) in pairs and abs(float(marginals[0, a]) + float(marginals[1, b]) - score) < 1e-6


def test_nothing_to_rank():
    assert len(product(np.full((2, 5), -np.inf, np.float32), Listed(NONE), count=3).entities) == 0
    assert product(np.zeros((2, 5), np.float32), Listed(NONE), count=3).entities.tolist() == [[0, 0], [0, 1], [0, 2]]
