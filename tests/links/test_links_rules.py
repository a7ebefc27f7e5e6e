"""Rules are what a naive count of pairs and paths says they are."""

from __future__ import annotations

from collections import Counter, defaultdict
from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from biqe.graph.knowledge_graph import Graph
from biqe.graph.triples import as_triples
from biqe.graph.vocabulary import Names, Vocabulary
from biqe.links.rules import BINS, CAUTION, LOWEST_CONFIDENCE, MOST_RULES, NONE, Walks, mine

ENTITIES, RELATIONS = 7, 3


def graph_of(triples, entities=ENTITIES, relations=RELATIONS) -> Graph:
    names = [Names.of([f"{kind}{n:05}" for n in range(size)]) for kind, size in (("e", entities), ("r", relations))]
    return Graph(Vocabulary(*names), as_triples(sorted(triples)))


TRIPLES = st.sets(
    st.tuples(st.integers(0, ENTITIES - 1), st.integers(0, RELATIONS - 1), st.integers(0, ENTITIES - 1)),
    min_size=1,
    max_size=40,
)


def bin_of(paths: int) -> int:
    return {1: 0, 2: 1, 3: 2, 4: 2}.get(paths, 3)


def paths_between(triples, relations=RELATIONS):
    """{(x, y): Counter of bodies}, by looking at all pairs of links."""
    links = [*triples, *((o, r + relations, s) for s, r, o in triples)]
    found: dict[tuple[int, int], Counter] = defaultdict(Counter)
    for x, d, y in links:
        if x != y:
            found[x, y][d, NONE] += 1
    for (x, d1, z), (z2, d2, y) in product(links, links):
        if z == z2 and len({x, y, z}) == 3:
            found[x, y][d1, d2] += 1
    return found


def naive_rules(triples):
    """{(relation, body): (hits, totals)} by number of paths."""
    hits, totals = Counter(), Counter()
    for (x, y), bodies in paths_between(triples).items():
        for body, count in bodies.items():
            totals[body, bin_of(count)] += 1
            for relation in range(RELATIONS):
                if (x, relation, y) in triples and body != (relation, NONE):
                    hits[relation, body, bin_of(count)] += 1
    found = {}
    for relation, body in {key[:2] for key in hits}:
        own = [hits[relation, body, b] for b in range(BINS)]
        every = [totals[body, b] for b in range(BINS)]
        best = max(h / (t + CAUTION) for h, t in zip(own, every, strict=True))
        if sum(own) >= 2 and best >= LOWEST_CONFIDENCE:
            found[relation, body] = own, every
    return found


@settings(max_examples=60, deadline=None)
@given(TRIPLES)
def test_mined_rules_are_those_of_a_naive_count(triples):
    rules = mine(graph_of(triples))
    found = {
        (int(relation), tuple(body)): (hits, totals)
        for relation, body, hits, totals in zip(
            rules.relations, rules.bodies.tolist(), rules.hits.tolist(), rules.totals.tolist(), strict=True
        )
    }
    expected = naive_rules(triples)
    assert np.bincount(rules.relations, minlength=RELATIONS).max(initial=0) <= MOST_RULES
    if all(sum(r == relation for r, _ in expected) <= MOST_RULES for relation in range(RELATIONS)):
        assert found == expected
    else:
        assert found.items() <= expected.items()


@settings(max_examples=60, deadline=None)
@given(TRIPLES, TRIPLES)
def test_evidence_is_the_same_from_both_ends_and_as_the_rules_that_fire(learnt, asked):
    rules, graph = mine(graph_of(learnt)), graph_of(asked)
    walks = Walks.of(graph)
    for relation in range(RELATIONS):
        heads, directions = np.arange(ENTITIES), np.full(ENTITIES, relation)
        best, joint = rules.evidence(walks, heads, directions)
        back_best, back_joint = rules.evidence(walks, heads, directions + RELATIONS)
        assert np.allclose(best, back_best.T) and np.allclose(joint, back_joint.T, atol=1e-5)
        for x, y in product(range(ENTITIES), repeat=2):
            fired = [] if x == y else rules.fired(walks, x, relation, y)
            assert max((one.confidence for one in fired), default=0.0) == pytest.approx(best[x, y], abs=1e-6)
            paths = paths_between(asked).get((x, y), Counter())
            assert {one.path if len(one.path) == 2 else (*one.path, NONE) for one in fired} <= set(paths)
            for one in fired:
                if len(one.path) == 2:
                    assert len(one.through) == paths[one.path]
                assert one.hits <= one.pairs


def test_a_rule_tells_how_often_it_held():
    # Whoever lives in a city lives in its country, in four of five cases.
    cities = [(person, 0, 10) for person in range(5)]
    countries = [(person, 1, 11) for person in range(4)]
    rules = mine(graph_of([*cities, *countries, (10, 2, 11)], entities=12))
    walks = Walks.of(graph_of([*cities, *countries, (10, 2, 11)], entities=12))
    fired = rules.fired(walks, 4, 1, 11)
    assert fired[0].path == (0, 2) and fired[0].through == (10,)
    assert (fired[0].hits, fired[0].pairs) == (4, 5)
    assert fired[0].confidence == pytest.approx(4 / (5 + CAUTION))


def test_rules_of_a_vocabulary_that_has_grown_say_the_same():
    triples = {(0, 0, 1), (1, 1, 2), (0, 2, 2), (3, 0, 4), (4, 1, 5), (3, 2, 5), (5, 0, 6), (6, 1, 0), (5, 2, 0)}
    rules = mine(graph_of(triples))
    before = rules.evidence(Walks.of(graph_of(triples)), np.array([0, 2]), np.array([2, 2 + RELATIONS]))
    wider = rules.widened(5)
    after = wider.evidence(Walks.of(graph_of(triples, ENTITIES + 2, 5)), np.array([0, 2]), np.array([2, 2 + 5]))
    assert before[0].max() > 0
    for old, new in zip(before, after, strict=True):
        assert np.array_equal(old, new[:, :ENTITIES]) and not new[:, ENTITIES:].any()


@pytest.mark.parametrize("triples", [[], [(0, 0, 0)], [(0, 0, 1)], [(n, 0, 6) for n in range(6)]])
def test_a_graph_without_paths_has_no_rules_and_no_evidence(triples):
    rules = mine(graph_of(triples))
    best, joint = rules.evidence(Walks.of(graph_of(triples)), np.arange(ENTITIES), np.zeros(ENTITIES, int))
    assert len(rules) == 0 or rules.confidences.max() < 1
    assert np.isfinite(best).all() and np.isfinite(joint).all()


def test_mining_stops_when_its_time_is_up():
    steps = [(n, r, n + 1 + (r == 2)) for n in range(2_000) for r in range(3)]
    few, everything = (mine(graph_of(steps, 2_003), seconds=seconds) for seconds in (0.0, 60.0))
    assert 0 < few.totals.sum() < everything.totals.sum()
