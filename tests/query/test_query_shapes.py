"""Names of shapes, however a query is written."""

from __future__ import annotations

from itertools import permutations, product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from biqe.query.bound import HIDDEN, TARGET, BoundQuery
from biqe.query.dag import analyse, orient
from biqe.query.shapes import SHAPES, shape_of

RELATIONS = 3
A, B, C = 0, 1, 2


NAMED = {
    "1p": ((A, TARGET), ((0, 0, 1),)),
    "2p": ((A, HIDDEN, TARGET), ((0, 0, 1), (1, 1, 2))),
    "3p": ((A, HIDDEN, HIDDEN, TARGET), ((0, 0, 1), (1, 1, 2), (2, 2, 3))),
    "2i": ((A, B, TARGET), ((0, 0, 2), (1, 1, 2))),
    "3i": ((A, B, C, TARGET), ((0, 0, 3), (1, 1, 3), (2, 2, 3))),
    "ip": ((A, B, HIDDEN, TARGET), ((0, 0, 2), (1, 1, 2), (2, 2, 3))),
    "pi": ((A, HIDDEN, B, TARGET), ((0, 0, 1), (1, 1, 3), (2, 2, 3))),
}


@pytest.mark.parametrize("shape", NAMED)
def test_named_shapes_however_they_are_written(shape: str) -> None:
    nodes, edges = NAMED[shape]
    for order in permutations(range(len(nodes))):
        renumbered = [0] * len(nodes)
        for old, new in enumerate(order):
            renumbered[new] = nodes[old]
        for flipped in product((False, True), repeat=len(edges)):
            turned = tuple(
                (order[o], r + RELATIONS, order[s]) if flip else (order[s], r, order[o])
                for flip, (s, r, o) in zip(flipped, edges, strict=True)
            )
            query = BoundQuery(tuple(renumbered), turned, (order[nodes.index(TARGET)],))
            assert shape_of(query) == shape


@pytest.mark.parametrize(
    ("shape", "nodes", "edges"),
    [
        ("2i", (A, TARGET), ((0, 0, 1), (0, 1, 1))),  # one constant, two relations
        ("path", (A, TARGET, TARGET), ((0, 0, 1), (1, 1, 2))),  # two targets
        ("path", (A, HIDDEN, HIDDEN, HIDDEN, TARGET), tuple((i, 0, i + 1) for i in range(4))),  # 4p has no name
        ("path", (TARGET, TARGET), ((0, 0, 1),)),  # no constant
        ("pi", (A, TARGET, HIDDEN), ((1, 1, 2), (0, 0, 1), (0, 1, 2))),  # one constant begins both branches
        ("dag", (A, TARGET, HIDDEN, B), ((0, 0, 1), (3, 0, 1), (1, 1, 2))),  # a dangling hidden variable
        ("dag", (A, B, TARGET, TARGET), ((0, 0, 2), (1, 0, 2), (2, 1, 3))),  # the mined star with a tail
        ("dag", (A, HIDDEN, TARGET), ((0, 0, 1), (1, 0, 2), (1, 1, 2))),  # one hidden variable feeds both branches
        ("dag", (A, TARGET, B), ((0, 0, 1), (1, 1, 2), (2, 1, 0))),  # constants that are joined
        ("other", (A, TARGET, B, TARGET), ((0, 0, 1), (2, 0, 3))),  # two queries in one
        ("other", (A, TARGET), ((0, 0, 1), (1, 0, 1))),  # a loop
        ("other", (TARGET, TARGET, TARGET), ((0, 0, 1), (1, 0, 2), (2, 0, 0))),  # a cycle without constant
    ],
)
def test_other_shapes(shape: str, nodes: tuple[int, ...], edges: tuple[tuple[int, int, int], ...]) -> None:
    assert shape_of(BoundQuery(nodes, edges, tuple(i for i, v in enumerate(nodes) if v == TARGET))) == shape


@given(st.from_type(BoundQuery))
def test_every_query_has_a_shape(query: BoundQuery) -> None:
    shape = shape_of(query)
    assert shape in SHAPES
    assert shape_of(orient(query, RELATIONS)) == shape
    if shape == "other":
        dag = analyse(orient(query, RELATIONS))
        assert not (dag.is_acyclic and dag.is_connected)
