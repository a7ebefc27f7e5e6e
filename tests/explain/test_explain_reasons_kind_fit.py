"""How an entity fits a relation: the counts are those that plain loops over the triples find."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from biqe.explain.reasons import CLEARLY, kind_fit
from biqe.graph.knowledge_graph import Graph
from biqe.graph.triples import as_triples
from biqe.graph.vocabulary import Vocabulary
from biqe.links.kinds import FEWEST, Kinds

ENTITIES, RELATIONS = 14, 3
END = st.integers(0, ENTITIES - 1)


@settings(max_examples=60, deadline=None)
@given(
    triples=st.lists(st.tuples(END, st.integers(0, RELATIONS - 1), END), min_size=8, max_size=60, unique=True),
    entity=END,
    direction=st.integers(0, 2 * RELATIONS - 1),
)
def test_counts_are_those_of_plain_loops(triples, entity, direction):
    names = [f"e{n}" for n in range(ENTITIES)], [f"r{n}" for n in range(RELATIONS)]
    graph = Graph(Vocabulary(*names), as_triples(triples))
    kinds = Kinds.of(graph)
    fit = kind_fit(kinds, kinds.traits(graph), entity, direction)

    ends = [(s, r, o) for s, r, o in triples] + [(o, r + RELATIONS, s) for s, r, o in triples]
    uses = {(d, None): {h for h, other, _ in ends if other == d} for d in range(2 * RELATIONS)}
    common = {(d, t): {h for h, *rest in ends if rest == [d, t]} for _, d, t in ends}
    every = {**uses, **{trait: heads for trait, heads in common.items() if len(heads) >= FEWEST}}
    such = uses[direction, None]
    others = {trait: heads for trait, heads in every.items() if trait[0] != direction}
    typical = [trait for trait, heads in others.items() if 2 * len(heads & such) >= max(1, len(such))]
    assert fit.typical == len(typical)
    assert fit.shared == sum(entity in every[trait] for trait in typical)

    base = (len(such) + 0.5) / (ENTITIES + 1)

    def share(trait) -> float:
        heads = every[trait] - ({entity} if entity in such else set())
        return (len(heads & such) + base) / (len(heads) + 1)

    own = [share(trait) for trait, heads in others.items() if entity in heads]
    for found, extreme, is_told in (
        (fit.best, max(own, default=0), any(s == max(own) > CLEARLY * base for s in own)),
        (fit.worst, min(own, default=0), any(s == min(own) < base / CLEARLY for s in own)),
    ):
        if found is not None:
            heads = every[found.direction, found.tail] - ({entity} if entity in such else set())
            assert (found.with_links, found.entities) == (len(heads & such), len(heads))
            assert np.isclose(share((found.direction, found.tail)), extreme)
        assert found is None or is_told
