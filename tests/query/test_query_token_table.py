"""The columnar tokens against the reference, on random DAGs."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from biqe.errors import TooManyPaths, UnsupportedQuery
from biqe.query.bound import HIDDEN, TARGET, BoundQuery
from biqe.query.queryset import QuerySet
from biqe.query.token_table import FIRST_ENTITY, MASK, token_table
from biqe.query.tokens import tokens

ENTITIES = 50


@st.composite
def dags(draw):
    """Connected or not, with any mixture of anchors, targets and hidden variables; edges in any order."""
    count = draw(st.integers(2, 7))
    nodes = draw(st.lists(st.sampled_from([TARGET, HIDDEN, 0, 1, 17]), min_size=count, max_size=count))
    pairs = [(a, b) for a in range(count) for b in range(a + 1, count)]
    chosen = draw(st.lists(st.sampled_from(pairs), min_size=1, max_size=8))
    names = draw(st.permutations(range(count)))
    edges = tuple((names[a], draw(st.integers(0, 5)), names[b]) for a, b in chosen)
    return BoundQuery(tuple(nodes), edges, tuple(n for n, value in enumerate(nodes) if value == TARGET))


@given(st.lists(dags(), min_size=1, max_size=6), st.randoms())
def test_equals_the_reference(queries, random):
    # Some queries of one shape, so that there is something to share.
    queries += [replace(query, nodes=tuple(min(value, 0) for value in query.nodes)) for query in queries[:2]]
    random.shuffle(queries)
    table = token_table(QuerySet.of(queries), ENTITIES)
    for row, query in enumerate(queries):
        part = slice(table.offsets[row], table.offsets[row + 1])
        expected = tokens(query)
        ids = [
            MASK if kind == "mask" else FIRST_ENTITY + id_ if kind == "entity" else FIRST_ENTITY + ENTITIES + id_
            for kind, id_ in zip(expected.kinds, expected.ids, strict=True)
        ]
        assert table.tokens[part].tolist() == ids
        assert table.positions[part].tolist() == list(expected.positions)
        assert table.paths[part].tolist() == list(expected.paths)
        assert table.elements[part].tolist() == list(expected.elements)
        targets = sorted(query.targets)
        numbers = [
            targets.index(element) if kind == "mask" else -1
            for kind, element in zip(expected.kinds, expected.elements, strict=True)
        ]
        assert table.targets[part].tolist() == numbers


def test_the_papers_example():
    """(e,r1,E1),(E1,r2,?x),(?x,r3,?y) is [MASK] r3 [MASK] r2 r1 e, positions 0..5."""
    query = BoundQuery((4, HIDDEN, TARGET, TARGET), ((0, 0, 1), (1, 1, 2), (2, 2, 3)), (2, 3))
    table = token_table(QuerySet.of([query]), ENTITIES)
    relation = FIRST_ENTITY + ENTITIES
    assert table.tokens.tolist() == [MASK, relation + 2, MASK, relation + 1, relation, FIRST_ENTITY + 4]
    assert table.positions.tolist() == [0, 1, 2, 3, 4, 5]


def test_cycles_and_too_many_paths_are_refused():
    cycle = BoundQuery((1, TARGET, TARGET), ((0, 0, 1), (1, 0, 2), (2, 0, 1)), (1, 2))
    with pytest.raises(UnsupportedQuery, match="query 1 has a cycle"):
        token_table(QuerySet.of([BoundQuery((1, TARGET), ((0, 0, 1),), (1,)), cycle]), ENTITIES)
    with pytest.raises(UnsupportedQuery, match="query 1 has a cycle"):  # the first of several
        token_table(QuerySet.of([BoundQuery((1, TARGET), ((0, 0, 1),), (1,)), cycle, cycle]), ENTITIES)
    diamonds = tuple((n, r, n + 1) for n in range(20) for r in (0, 1))  # 2^20 paths
    deep = BoundQuery((1, *([TARGET] * 20)), diamonds, tuple(range(1, 21)))
    with pytest.raises(TooManyPaths, match="more than 64"):
        token_table(QuerySet.of([deep]), ENTITIES)


def test_an_empty_set_has_no_tokens():
    table = token_table(QuerySet.of([BoundQuery((1, TARGET), ((0, 0, 1),), (1,))]).take(np.array([], int)), ENTITIES)
    assert len(table) == 0 and len(table.tokens) == 0
