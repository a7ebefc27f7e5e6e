"""Where nodes, links and labels of a query graph stand: nothing on top of anything else."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from biqe.explain import graph_layout
from biqe.query.bound import HIDDEN, TARGET, BoundQuery


@st.composite
def queries(draw) -> BoundQuery:
    """Any query graph of up to six nodes: cyclic, disconnected, with loops and parallel links."""
    count = draw(st.integers(1, 6))
    nodes = draw(st.lists(st.sampled_from([0, 1, TARGET, HIDDEN]), min_size=count, max_size=count))
    node = st.integers(0, count - 1)
    edges = draw(st.lists(st.tuples(node, st.integers(0, 3), node), max_size=7, unique=True))
    return BoundQuery(tuple(nodes), tuple(edges), tuple(n for n, value in enumerate(nodes) if value == TARGET))


@settings(max_examples=150)
@given(query=queries(), wide=st.floats(20, 300))
def test_nothing_stands_on_anything_else(query, wide):
    depth = graph_layout.depths(query, 2)
    assert all(depth[s] != depth[o] for s, _, o in query.edges if s != o)
    sizes = [(wide if number % 2 else 40.0, 30.0 + 16.0 * (number % 2)) for number in range(len(query.nodes))]
    labels = [(wide / 2 + 10, 20.0 + 14.0 * (number % 2)) for number in range(len(query.edges))]
    found = graph_layout.place(depth, [(s, o) for s, _, o in query.edges], sizes, labels)
    boxes = [
        (x - w / 2, y - h / 2, x + w / 2, y + h / 2)
        for (x, y), (w, h) in zip((*found.nodes, *found.labels), (*sizes, *labels), strict=True)
    ]
    for number, one in enumerate(boxes):
        assert not [other for other in boxes[:number] if _overlap(one, other)]
        assert one[0] >= -1e-6 and one[1] >= -1e-6
        assert one[2] <= found.width + 1e-6 and one[3] <= found.height + 1e-6
    for (subject, _, object_), (first, second) in zip(query.edges, found.lines, strict=True):
        _touches(first[0], boxes[subject])
        _touches(second[-1], boxes[object_])
        for x, y in (*first, *second):
            for left, top, right, bottom in boxes:
                assert not (left + 1e-6 < x < right - 1e-6 and top + 1e-6 < y < bottom - 1e-6)


def _overlap(one, other) -> bool:
    return one[0] < other[2] and other[0] < one[2] and one[1] < other[3] and other[1] < one[3]


def _touches(point, box) -> None:
    assert point[0] == pytest.approx(box[0]) or point[0] == pytest.approx(box[2])
    assert box[1] - 1e-6 <= point[1] <= box[3] + 1e-6


def test_constants_stand_left_of_what_they_lead_to(rivers):
    assert graph_layout.depths(rivers.query, 2) == (1, 0, 2)
    assert graph_layout.depths(rivers.hidden, 2) == (2, 1, 0, 0)
