"""The best missing links: the same as by judging every pair, as long as there is room for all."""

from __future__ import annotations

import time

import numpy as np
import pytest

import biqe
from biqe.explain.reasons import kind_fit
from biqe.suggest import likeliest

LIKELY = np.log(2e-3)
"""Far enough above what the search leaves out."""


def every_missing(links, relation):
    """All missing links of a relation between two entities, by brute force: the most probable first."""
    E, R = links.entity_count, links.graph.relation_count
    pairs = np.array([(s, relation, o) for s in range(E) for o in range(E) if s != o])
    stored = {tuple(triple) for triple in links.graph.triples.tolist()}
    pairs = pairs[[tuple(pair) not in stored for pair in pairs.tolist()]]
    ends = [(0, relation, relation), (2, relation + R, relation + links.knowledge.kinds.relation_count)]
    for column, direction, counted in ends if relation < R else []:
        pairs = pairs[np.isin(pairs[:, column], [e for e in range(E) if is_like_others(links, e, direction, counted)])]
    chances = links.of(*pairs.T) if relation < R else np.zeros(0)
    order = np.lexsort((pairs[:, 2], pairs[:, 0], -chances))
    return pairs[order], chances[order]


def is_like_others(links, entity, direction, counted):
    """Whether an entity has such links, or anything in common with those that have."""
    fit = kind_fit(links.knowledge.kinds, links.traits, entity, counted)
    return fit.typical == 0 or fit.shared > 0 or len(links.walks.of_head(entity, direction)) > 0


@pytest.mark.parametrize("graph", ["kb", "grown"])
@pytest.mark.parametrize("relation", [0, 1, 2])
@pytest.mark.parametrize("count", [1, 7, 400])
def test_what_is_found_is_what_judging_every_pair_finds(town, graph, relation, count):
    links = getattr(town, graph).predictor.links
    best = likeliest.Best.none(count)
    assert likeliest.of_relations(links, [relation], lambda r: best)
    pairs, chances = every_missing(links, relation)
    expected = chances[chances > LIKELY][:count]
    np.testing.assert_allclose(best.chances[: len(expected)], expected, atol=1e-5)
    np.testing.assert_allclose(links.of(*best.links.T), best.chances, atol=1e-5)
    assert len({tuple(link) for link in best.links.tolist()}) == len(best.links)


@pytest.mark.parametrize("graph", ["kb", "grown"])
def test_of_one_entity(town, graph):
    links = getattr(town, graph).predictor.links
    for entity in (3, 40, 60, 68, links.entity_count - 1):
        best = likeliest.Best.none(25)
        likeliest.of_entity(links, entity, range(links.graph.relation_count), lambda r, best=best: best)
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
            most = likeliest.ceilings(links, direction)
            assert (chances <= np.maximum(most, -14)[pairs[:, column]] + 1e-5).all()
            assert most[5] == likeliest.ceilings(links, direction, 5)[0]


def test_with_little_room_the_best_are_still_good(town, monkeypatch):
    """Where not every pair is judged, what is found is true to its probability, and near the best."""
    monkeypatch.setattr(likeliest, "MOST_JUDGED", 60)
    links = town.kb.predictor.links
    best = likeliest.Best.none(3)
    likeliest.of_relations(links, [2], lambda r: best)
    np.testing.assert_allclose(links.of(*best.links.T), best.chances, atol=1e-5)
    _, chances = every_missing(links, 2)
    assert best.chances[-1] >= chances[60]


def test_without_time_it_ends_early_and_says_so(town, monkeypatch):
    monkeypatch.setattr(likeliest, "ROWS_AT_ONCE", 1)
    best = likeliest.Best.none(400)
    assert not likeliest.of_relations(town.kb.predictor.links, [0, 1, 2], lambda r: best, end=time.monotonic())
    assert len(best.links)


def test_progress_reaches_the_whole(town):
    shares = []
    likeliest.of_relations(town.kb.predictor.links, [0, 1, 2], lambda r: likeliest.Best.none(5), progress=shares.append)
    assert sum(shares) == pytest.approx(1)


def test_neither_blank_nodes_nor_what_has_nothing_in_common_is_suggested(tmp_path):
    """Addresses without a name cannot be reviewed, and classes have no class."""
    facts = [
        (f"p{n}", relation, other)
        for n in range(40)
        for relation, other in (
            ("type", "Person"),
            ("address", f"_:-{n}"),
            ("works_on", f"t{n % 5}"),
            ("works_on", f"t{(n + 1) % 5}"),
        )
    ]
    facts += [(f"t{n}", "type", "Topic") for n in range(5)]
    graph = biqe.Graph.from_triples(facts)
    kb = biqe.train(graph, minutes=0.02, out=tmp_path / "run", threads=1, show=False)
    found = [*kb.suggest(top=500), *(one for name in ("p1", "Person") for one in kb.suggest(entity=name, top=500))]
    assert len(found) > 20
    assert not [one for one in found if "_:" in one.subject + one.object]
    assert not [one for one in found if one.subject in ("Person", "Topic")]
