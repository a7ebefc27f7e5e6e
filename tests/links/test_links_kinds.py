"""Kinds: what entities with the same traits have."""

from __future__ import annotations

import math

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from biqe.graph.knowledge_graph import Graph
from biqe.graph.triples import as_triples
from biqe.graph.vocabulary import Names, Vocabulary
from biqe.links.kinds import FEWEST, MANY, Kinds

ENTITIES, RELATIONS = 12, 3


def graph_of(triples, entities=ENTITIES, relations=RELATIONS) -> Graph:
    names = [Names.of([f"{kind}{n:05}" for n in range(size)]) for kind, size in (("e", entities), ("r", relations))]
    return Graph(Vocabulary(*names), as_triples(sorted(triples)))


TRIPLES = st.sets(
    st.tuples(st.integers(0, ENTITIES - 1), st.integers(0, RELATIONS - 1), st.integers(0, ENTITIES - 1)), max_size=50
)


def naive_fit(triples, entity, direction):
    """The three figures, from sets of entities."""
    links = [*triples, *((o, r + RELATIONS, s) for s, r, o in triples)]
    having: dict[object, set[int]] = {}
    for head, d, tail in links:
        having.setdefault(d, set()).add(head)
        having.setdefault((d, tail), set()).add(head)
    traits = {t: who for t, who in having.items() if isinstance(t, int) or len(who) >= FEWEST}
    asked = having.get(direction, set())
    base, logits = (len(asked) + 0.5) / (ENTITIES + 1.0), []
    for trait, who in traits.items():
        about = trait if isinstance(trait, int) else trait[0]
        if entity in who and about != direction:
            own = entity in asked
            share = min(max((len(who & asked) - own + base) / (len(who) - own + 1.0), 1e-6), 1 - 1e-6)
            logits.append(math.log(share / (1 - share)))
    if not logits:
        logits = [math.log(base / (1 - base))]
    return max(logits), sum(logits) / len(logits), min(logits)


@settings(max_examples=60, deadline=None)
@given(TRIPLES)
def test_fit_is_what_sets_of_entities_say(triples):
    graph = graph_of(triples)
    kinds = Kinds.of(graph)
    traits = kinds.traits(graph)
    for direction in range(2 * RELATIONS):
        found = kinds.fit(traits, direction)
        expected = [naive_fit(triples, entity, direction) for entity in range(ENTITIES)]
        assert np.allclose(found, expected, atol=1e-4)


def test_a_class_does_not_fit_where_persons_do():
    # Persons 0 to 7 have a type (8) and, all but the last, a friend; the class itself has neither.
    triples = [(p, 0, 8) for p in range(8)] + [(p, 1, (p + 1) % 7) for p in range(7)]
    kinds, graph = Kinds.of(graph_of(triples)), graph_of(triples)
    person, class_ = kinds.fit(kinds.traits(graph), 1)[[7, 8]]
    assert (person > class_).all()


def test_an_entity_that_came_later_has_the_traits_of_its_links():
    triples = [(p, 0, 8) for p in range(8)] + [(p, 1, (p + 1) % 7) for p in range(7)]
    kinds = Kinds.of(graph_of(triples))
    grown = graph_of([*triples, (12, 0, 8), (13, 3, 12)], entities=14, relations=4)
    new, old = kinds.fit(kinds.traits(grown), 1)[[12, 7]]
    assert np.allclose(new, old)


def test_a_trait_that_many_share_rules_out_what_none_of_them_has():
    many = MANY
    films = [(f, 0, 50 + f % 5) for f in range(many)]  # directed by
    acts = [(f, 1, 70 + f % 5) for f in range(many)]  # starring
    lives = [(50 + d, 2, 90) for d in range(5)] + [(70 + a, 2, 90) for a in range(5)]
    graph = graph_of(films + acts + lives, entities=100)
    kinds = Kinds.of(graph)
    traits = kinds.traits(graph)
    assert not kinds.rules_out(traits, 0, 0) and not kinds.rules_out(traits, 0, 1), "it has them"
    assert kinds.rules_out(traits, 50, 1), "of ten who live somewhere, none stars anybody"
    assert kinds.rules_out(traits, 0, 2), "no film lives anywhere"
    assert not kinds.rules_out(traits, 70, 0 + RELATIONS), "of those who live somewhere, some direct"
    assert not kinds.rules_out(traits, 99, 1), "nothing is known of it"
