"""The paper's encoding, token by token."""

from __future__ import annotations

from hypothesis import assume, given
from hypothesis import strategies as st

from biqe.graph.vocabulary import Vocabulary
from biqe.query.bound import HIDDEN, TARGET, BoundQuery
from biqe.query.dag import analyse, count_paths, paths
from biqe.query.tokens import ENTITY, MASK, RELATION, tokens

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
                row.append((MASK if value == TARGET else ENTITY, value, node))
            if step:
                edge = path.edges[step - 1]
                row.append((RELATION, query.edges[edge][1], len(query.nodes) + edge))
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
