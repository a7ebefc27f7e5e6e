"""The paper's encoding, token by token, and the columns of many queries against it, on random DAGs."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from biqe.errors import TooManyPaths, UnsupportedQuery
from biqe.graph.vocabulary import Vocabulary
from biqe.query.bound import HIDDEN, TARGET, BoundQuery, QuerySet
from biqe.query.dag import analyse, count_paths, paths
from biqe.query.tokens import FIRST_ENTITY, MASK, token_table, tokens

A, B, C = 0, 1, 2


@st.composite
def dags(draw: st.DrawFn) -> BoundQuery:
    """Acyclic queries whose nodes are numbered in no particular order."""
    query = draw(st.from_type(BoundQuery))
    order = draw(st.permutations(range(len(query.nodes))))
    edges = tuple((s, r, o) if order[s] < order[o] else (o, r, s) for s, r, o in query.edges if s != o)
    return BoundQuery(query.nodes, edges, query.targets)


@given(dags())
def test_tokens_read_each_path_from_its_tail(query: BoundQuery) -> None:
    assume(count_paths(analyse(query)) <= 64)
    found = tokens(query)
    expected = []
    for number, path in enumerate(paths(query)):
        row = []
        for step in reversed(range(len(path.nodes))):
            node = path.nodes[step]
            value = query.nodes[node]
            if value != HIDDEN:
                row.append(("mask" if value == TARGET else "entity", value, node))
            if step:
                edge = path.edges[step - 1]
                row.append(("relation", query.edges[edge][1], len(query.nodes) + edge))
        expected += [(kind, id_, place, number, element) for place, (kind, id_, element) in enumerate(row)]
    columns = (found.kinds, found.ids, found.positions, found.paths, found.elements)
    assert list(zip(*columns, strict=True)) == expected
    assert len(found) == len(expected) == len(found.words)


def test_the_papers_example() -> None:
    query = BoundQuery((A, HIDDEN, TARGET, TARGET), ((0, 0, 1), (1, 1, 2), (2, 2, 3)), (2, 3))
    assert str(tokens(query)) == "[MASK 3]@0 r2@1 [MASK 2]@2 r1@3 r0@4 e0@5"
    town = Vocabulary(["e"], ["r1", "r2", "r3"])
    named = BoundQuery(query.nodes, query.edges, query.targets, ("", "h", "x", "y"))
    assert str(tokens(named, vocabulary=town)) == "[MASK y]@0 r3@1 [MASK x]@2 r2@3 r1@4 e@5"


def test_inverse_relations_and_anchors_in_the_middle() -> None:
    town = Vocabulary(["a", "b"], ["r"])
    query = BoundQuery((0, 1, TARGET), ((0, 0, 1), (1, 1, 2)), (2,), ("", "", "x"))
    assert str(tokens(query, vocabulary=town)) == "[MASK x]@0 r⁻¹@1 b@2 r@3 a@4"


def test_paths_are_shown_apart() -> None:
    query = BoundQuery((A, B, TARGET), ((0, 0, 2), (1, 1, 2)), (2,))
    assert str(tokens(query)) == "[MASK 2]@0 r0@1 e0@2 | [MASK 2]@0 r1@1 e1@2"
    assert tokens(query).elements == (2, 3, 0, 2, 4, 1)


def test_a_hidden_node_alone_has_no_token() -> None:
    assert len(tokens(BoundQuery((HIDDEN,), (), ()))) == 0
    assert str(tokens(BoundQuery((HIDDEN,), (), ()))) == ""


def test_twins_are_targets_that_the_papers_encoding_confuses() -> None:
    # x and y on two branches, equally far from the end z
    query = BoundQuery((A, TARGET, B, TARGET, TARGET), ((0, 0, 1), (1, 1, 4), (2, 0, 3), (3, 1, 4)), (1, 3, 4))
    assert tokens(query).twins == ((1, 3),)
    # equal depth from the roots, but different distance to the end: no confusion
    query = BoundQuery((A, TARGET, TARGET, B, TARGET), ((0, 0, 1), (1, 1, 2), (3, 0, 4), (4, 1, 1)), (1, 2, 4))
    assert tokens(query).twins == ()
    # one target on two paths at one position, another on one path at the same position: averages agree
    query = BoundQuery((A, TARGET, TARGET, B), ((0, 0, 1), (0, 1, 2), (3, 0, 1)), (1, 2))
    assert tokens(query).twins == ((1, 2),)


ENTITIES = 50


@given(st.lists(dags(), min_size=1, max_size=6), st.randoms())
def test_equals_the_reference(queries, random):
    # Some queries of one shape, so that there is something to share.
    queries += [replace(query, nodes=tuple(min(value, 0) for value in query.nodes)) for query in queries[:2]]
    random.shuffle(queries)
    queries = [query for query in queries if count_paths(analyse(query)) <= 64]
    assume(queries)
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


def test_the_papers_example_in_columns():
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
