"""The best missing links: the same as by judging every pair, as long as there is room for all."""

from __future__ import annotations

import time

import numpy as np
import pytest

from biqe.suggest import search

LIKELY = np.log(2e-3)
"""Far enough above what the search leaves out."""


def every_missing(links, relation):
    """All missing links of a relation between two entities, by brute force: the most probable first."""
    E, R = links.entity_count, links.graph.relation_count
    pairs = np.array([(s, relation, o) for s in range(E) for o in range(E) if s != o])
    stored = {tuple(triple) for triple in links.graph.triples.tolist()}
    pairs = pairs[[tuple(pair) not in stored for pair in pairs.tolist()]]
    chances = links.of(*pairs.T) if relation < R else np.zeros(0)
    order = np.lexsort((pairs[:, 2], pairs[:, 0], -chances))
    return pairs[order], chances[order]


@pytest.mark.parametrize("graph", ["kb", "grown"])
@pytest.mark.parametrize("relation", [0, 1, 2])
@pytest.mark.parametrize("count", [1, 7, 400])
def test_what_is_found_is_what_judging_every_pair_finds(town, graph, relation, count):
    links = getattr(town, graph).predictor.links
    best = search.Best.none(count)
    assert search.of_relations(links, [relation], lambda r: best)
    pairs, chances = every_missing(links, relation)
    expected = chances[chances > LIKELY][:count]
    np.testing.assert_allclose(best.chances[: len(expected)], expected, atol=1e-5)
    np.testing.assert_allclose(links.of(*best.links.T), best.chances, atol=1e-5)
    assert len({tuple(link) for link in best.links.tolist()}) == len(best.links)


@pytest.mark.parametrize("graph", ["kb", "grown"])
def test_of_one_entity(town, graph):
    links = getattr(town, graph).predictor.links
    for entity in (3, 40, 60, 68, links.entity_count - 1):
        best = search.Best.none(25)
        search.of_entity(links, entity, range(links.graph.relation_count), lambda r, best=best: best)
        every = [every_missing(links, relation) for relation in range(3)]
        pairs, chances = (np.concatenate([part[n] for part in every]) for n in (0, 1))
        own = (pairs[:, [0, 2]] == entity).any(axis=1) & (chances > LIKELY)
        expected = np.sort(chances[own])[::-1][:25]
        np.testing.assert_allclose(best.chances[: len(expected)], expected, atol=1e-5)
        assert (best.links[:, [0, 2]] == entity).any(axis=1).all()


def test_ceilings_hold(town):
    """No missing link is more probable than the ceiling of either of its ends."""
    links = town.grown.predictor.links
    R = links.graph.relation_count
    for relation in range(3):
        pairs, chances = every_missing(links, relation)
        for column, direction in ((0, relation), (2, relation + R)):
            most = search.ceilings(links, direction)
            assert (chances <= np.maximum(most, -14)[pairs[:, column]] + 1e-5).all()
            assert most[5] == search.ceilings(links, direction, 5)[0]


def test_with_little_room_the_best_are_still_good(town, monkeypatch):
    """Where not every pair is judged, what is found is true to its probability, and near the best."""
    monkeypatch.setattr(search, "MOST_JUDGED", 60)
    links = town.kb.predictor.links
    best = search.Best.none(3)
    search.of_relations(links, [2], lambda r: best)
    np.testing.assert_allclose(links.of(*best.links.T), best.chances, atol=1e-5)
    _, chances = every_missing(links, 2)
    assert best.chances[-1] >= chances[60]


def test_without_time_it_ends_early_and_says_so(town, monkeypatch):
    monkeypatch.setattr(search, "ROWS_AT_ONCE", 1)
    best = search.Best.none(400)
    assert not search.of_relations(town.kb.predictor.links, [0, 1, 2], lambda r: best, end=time.monotonic())
    assert len(best.links)


def test_progress_reaches_the_whole(town):
    shares = []
    search.of_relations(town.kb.predictor.links, [0, 1, 2], lambda r: search.Best.none(5), progress=shares.append)
    assert sum(shares) == pytest.approx(1)
