"""The index: its linear sorts against numpy's, and its slices against looking through all triples."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from biqe.graph.index import build_index, stable_order
from biqe.graph.knowledge_graph import Graph
from biqe.graph.triples import as_triples
from biqe.graph.vocabulary import Vocabulary

MANY = Vocabulary([f"e{n}" for n in range(70_006)], "rst")
FEW = Vocabulary("abcdefg", "rstu")


@given(
    st.lists(
        st.one_of(
            st.integers(0, 3), st.sampled_from([65_535, 65_536, 65_537, 131_072, 2**31 - 1]), st.integers(0, 2**31 - 1)
        )
    )
)
def test_the_same_order_as_a_stable_sort(values):
    ids = np.array(values, np.int32)
    assert stable_order(ids).tolist() == np.argsort(ids, kind="stable").tolist()


@given(st.lists(st.tuples(st.integers(0, 5), st.integers(0, 2), st.integers(0, 5))), st.booleans())
def test_slices_hold_the_triples_that_they_should(rows, shift):
    """With ``shift``, entities have ids that need more than 16 bits."""
    first = 70_000 if shift else 0
    triples = as_triples([(s + first, r, o + first) for s, r, o in rows])
    graph = Graph(MANY, triples)
    for entity in range(first, first + 6):
        for relation in range(3):
            out = sorted(o for s, r, o in triples.tolist() if (s, r) == (entity, relation))
            into = sorted(s for s, r, o in triples.tolist() if (r, o) == (relation, entity))
            assert graph.objects(entity, relation).tolist() == out
            assert graph.subjects(relation, entity).tolist() == into
            assert all(graph.holds(entity, relation, end) == (end in out) for end in range(first, first + 6))


ROW = st.tuples(st.integers(0, 6), st.integers(0, 3), st.integers(0, 6))


def tuples(rows: np.ndarray) -> list[tuple[int, ...]]:
    return [tuple(row) for row in rows.tolist()]


@given(st.lists(ROW), st.randoms())
def test_index_lists_every_neighbour_once(rows: list, random) -> None:
    triples = as_triples(rows)
    graph = Graph(FEW, triples)
    index = graph.index
    known = set(rows)
    for entity in range(7):
        for relation in range(4):
            assert graph.objects(entity, relation).tolist() == sorted(
                {o for s, r, o in known if (s, r) == (entity, relation)}
            )
            assert graph.subjects(relation, entity).tolist() == sorted(
                {s for s, r, o in known if (r, o) == (relation, entity)}
            )
    start = index.relation_offsets
    for relation in range(4):
        part = slice(start[relation], start[relation + 1])
        pairs = list(zip(index.relation_subjects[part].tolist(), index.relation_objects[part].tolist(), strict=True))
        assert pairs == sorted((s, o) for s, r, o in known if r == relation)
    shuffled = tuples(triples)
    random.shuffle(shuffled)
    again = build_index(np.asarray(shuffled, np.int32).reshape(-1, 3), 7, 4)
    for a, b in zip(index, again, strict=True):
        np.testing.assert_array_equal(a, b)
