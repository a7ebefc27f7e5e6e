"""Questions by shape: their layout, and the way into columns and back."""

from __future__ import annotations

import numpy as np
import pytest

from biqe.benchmarks.shaped import LAYOUTS, ShapedQueries, from_columns, join_shapes, lay_out, rows_of, to_columns
from biqe.errors import InvalidOption, UnreadableFile
from biqe.query.bound import AnswerSets
from biqe.query.shapes import shape_of


@pytest.mark.parametrize("shape", LAYOUTS)
def test_layouts_are_of_their_shape(shape):
    layout = LAYOUTS[shape]
    queries = lay_out(shape, np.arange(2 * layout.anchors).reshape(2, -1), np.ones((2, len(layout.edges)), np.int64))
    # The name of a shape is that of its edges; which of them are negated is told apart.
    without_negation = {"2in": "2i", "3in": "3i", "inp": "ip", "pin": "pi", "pni": "pi"}
    assert {shape_of(query) for query in queries} == {without_negation.get(shape, shape)}
    assert (queries.negated is not None) == (shape in without_negation)
    with pytest.raises(InvalidOption, match=f"{shape} has"):
        lay_out(shape, np.zeros((2, 5), np.int64), np.zeros((2, 1), np.int64))


def questions() -> ShapedQueries:
    parts = []
    for shape, anchors, relations in (("2i", [[1, 2], [3, 4]], [[0, 1], [1, 2]]), ("up", [[1, 2]], [[0, 1, 3]])):
        rows, owner = rows_of(shape, np.array(anchors), np.array(relations))
        count = len(anchors)
        sets = AnswerSets(np.arange(count + 1), np.arange(count, dtype=np.int32))
        parts.append(ShapedQueries(rows, owner, (shape,), np.zeros(count, np.int8), sets, hard=sets))
    return join_shapes(parts)


def test_questions_survive_their_columns():
    before = questions()
    after = from_columns(to_columns(before), entity_count=5, relation_count=2)
    assert after.shapes == before.shapes == ("2i", "up") and after.owner.tolist() == [0, 1, 2, 2]
    assert [list(query.edges) for query in after.of_shape("up").rows] == [
        [(0, 0, 1), (1, 3, 2)],
        [(0, 1, 1), (1, 3, 2)],
    ]
    assert after.negatives is None and after.answers.values.tolist() == [0, 1, 0]


@pytest.mark.parametrize(("entities", "relations"), [(4, 2), (5, 1)])
def test_kept_questions_of_another_graph_are_refused(entities, relations):
    with pytest.raises(UnreadableFile, match="not of this graph"):
        from_columns(to_columns(questions()), entity_count=entities, relation_count=relations)


def test_columns_that_do_not_fit_are_refused():
    columns = to_columns(questions())
    for broken in ({**columns, "owner": columns["owner"][:1]}, {k: v for k, v in columns.items() if k != "shape"}):
        with pytest.raises(UnreadableFile, match="damaged"):
            from_columns(broken, entity_count=5, relation_count=2)
