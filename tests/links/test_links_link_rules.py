"""Rules with constants are what a naive count of entities says they are."""

from __future__ import annotations

from collections import Counter

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.links.test_links_rules import ENTITIES, RELATIONS, TRIPLES, graph_of

from biqe.links import link_rules
from biqe.links.link_rules import CAUTION, LEAST_GAIN, LOWEST_CONFIDENCE, LinkRules, mine_link_rules
from biqe.links.rules import Walks


def links_of(triples, relations=RELATIONS):
    """{entity: its links as (direction, other end)}."""
    found: dict[int, set] = {}
    for s, r, o in triples:
        found.setdefault(s, set()).add((r, o))
        found.setdefault(o, set()).add((r + relations, s))
    return found


def naive(triples, fewest_entities=2, fewest_hits=1):
    own = links_of(triples)
    counts = Counter(link for links in own.values() for link in links)
    having = Counter(direction for links in own.values() for direction in {link[0] for link in links})
    found = {}
    for body in counts:
        for head in counts:
            if body == head or min(counts[body], counts[head]) < fewest_entities:
                continue
            hits = sum(body in links and head in links for links in own.values())
            usual = counts[head] / having[head[0]]
            confidence = (hits + CAUTION * usual) / (counts[body] + CAUTION)
            gains = confidence * (1 - usual) >= LEAST_GAIN * usual * (1 - confidence)
            if hits >= fewest_hits and confidence >= LOWEST_CONFIDENCE and gains and usual < 1:
                found[body, head] = hits, counts[body], confidence
    return found


def small(monkeypatch):
    monkeypatch.setattr(link_rules, "FEWEST_ENTITIES", 2)
    monkeypatch.setattr(link_rules, "FEWEST_HITS", 1)


def as_dict(rules: LinkRules):
    rows = zip(rules.bodies.tolist(), rules.heads.tolist(), rules.hits, rules.totals, rules.confidences, strict=True)
    return {(tuple(body), tuple(head)): (h, t, c) for body, head, h, t, c in rows}


def test_mined_rules_are_those_of_a_naive_count(monkeypatch):
    small(monkeypatch)

    @settings(max_examples=60, deadline=None)
    @given(TRIPLES)
    def check(triples):
        found, expected = as_dict(mine_link_rules(graph_of(triples))), naive(triples)
        assert found.keys() == expected.keys()
        for key, (hits, total, confidence) in expected.items():
            assert found[key][:2] == (hits, total)
            np.testing.assert_allclose(found[key][2], confidence, rtol=1e-6)

    check()


def test_evidence_is_the_same_from_both_ends_and_as_the_rules_that_fire(monkeypatch):
    small(monkeypatch)

    @settings(max_examples=60, deadline=None)
    @given(TRIPLES, TRIPLES)
    def check(learnt, asked):
        rules, walks = mine_link_rules(graph_of(learnt)), Walks.of(graph_of(asked))
        everybody = np.arange(ENTITIES)
        for relation in range(RELATIONS):
            seen = []
            for direction in (relation, relation + RELATIONS):
                best = np.zeros((ENTITIES, ENTITIES), np.float32)
                joint = np.zeros_like(best)
                rules.add_to(best, joint, walks, everybody, np.full(ENTITIES, direction))
                np.testing.assert_allclose(1 - np.exp(-joint), np.minimum(best, 0.999), atol=1e-6)
                seen.append(best)
            np.testing.assert_array_equal(seen[0], seen[1].T)
            for s in range(ENTITIES):
                for o in range(ENTITIES):
                    fired = rules.fired(walks, s, relation, o) if s != o else []
                    assert seen[0][s, o] == (np.float32(fired[0].confidence) if fired else 0)

    check()


@settings(max_examples=20, deadline=None)
@given(TRIPLES, st.integers(0, 3))
def test_rules_of_a_graph_with_more_relations_say_the_same(triples, more):
    rules = mine_link_rules(graph_of(triples))
    wider = rules.widened(RELATIONS + more)
    assert wider.relation_count == RELATIONS + more and len(wider) == len(rules)
    assert ((wider.bodies[:, 0] >= RELATIONS + more) == (rules.bodies[:, 0] >= RELATIONS)).all()


def test_a_typical_link_is_found_and_a_common_one_is_not():
    # Films of Kenya are in Swahili, of France in French; everything is a film.
    triples = []
    for film in range(2, 42):
        country, language, is_a = (42, 44, 46) if film < 22 else (43, 45, 46)
        triples += [(film, 0, country), (film, 1, language), (film, 2, is_a)]
    rules = as_dict(mine_link_rules(graph_of(triples, 50, 3)))
    assert ((0, 42), (1, 44)) in rules and ((1, 45), (0, 43)) in rules
    assert not any(head == (2, 46) for _, head in rules), "all have it anyway"
