"""Answers, tuples, known and missing: hand-made cases, hubs, limits, bad input."""

from __future__ import annotations

import subprocess
import sys
import time

import numpy as np
import pytest

from biqe.errors import BiqeError, InvalidOption
from biqe.exact.answers import answer_sets, answers, holds, tuples
from biqe.graph.knowledge_graph import Graph
from biqe.graph.triples import as_triples
from biqe.graph.vocabulary import Vocabulary
from biqe.query.bound import HIDDEN, TARGET, BoundQuery, QuerySet

# flows_through, located_on, borders; 0 Germany, 1 France, 2 Rhine, 3 Elbe, 4 Cologne, 5 Strasbourg, 6 Dresden
FLOWS, ON, BORDERS = 0, 1, 2
COUNTRIES = [
    (2, FLOWS, 0),
    (2, FLOWS, 1),
    (3, FLOWS, 0),
    (4, ON, 2),
    (5, ON, 2),
    (6, ON, 3),
    (0, BORDERS, 1),
    (1, BORDERS, 0),
]


def graph_of(rows: object, entities: int = 7, relations: int = 3) -> Graph:
    vocabulary = Vocabulary([f"e{i}" for i in range(entities)], [f"r{i}" for i in range(relations)])
    return Graph(vocabulary, as_triples(rows))


@pytest.fixture(scope="module")
def small() -> Graph:
    return graph_of(COUNTRIES)


# Cities located on rivers that flow through Germany and France: ?river ?city.
PAPER = BoundQuery((0, 1, TARGET, TARGET), ((2, FLOWS, 0), (2, FLOWS, 1), (3, ON, 2)), (2, 3))


def test_the_question_of_the_paper(small: Graph) -> None:
    assert [values.tolist() for values in answers(small, PAPER)] == [[2], [4, 5]]
    assert tuples(small, PAPER).tolist() == [[2, 4], [2, 5]]


def test_columns_follow_the_select_order(small: Graph) -> None:
    turned = BoundQuery(PAPER.nodes, PAPER.edges, (3, 2))
    assert [values.tolist() for values in answers(small, turned)] == [[4, 5], [2]]
    assert tuples(small, turned).tolist() == [[4, 2], [5, 2]]


def test_a_target_asked_for_twice_is_given_twice(small: Graph) -> None:
    twice = BoundQuery(PAPER.nodes, PAPER.edges, (3, 2, 3))
    assert tuples(small, twice).tolist() == [[4, 2, 4], [5, 2, 5]]
    assert [values.tolist() for values in answers(small, twice)] == [[4, 5], [2], [4, 5]]


def test_inverse_relations_are_walked_backwards(small: Graph) -> None:
    inverse = BoundQuery((0, TARGET, TARGET), ((0, FLOWS + 3, 1), (1, ON + 3, 2)), (1, 2))
    assert tuples(small, inverse).tolist() == [[2, 4], [2, 5], [3, 6]]


def test_a_ground_pattern_must_hold(small: Graph) -> None:
    held = BoundQuery((0, 1, TARGET), ((0, BORDERS, 1), (2, FLOWS, 0)), (2,))
    assert answers(small, held)[0].tolist() == [2, 3]
    broken = BoundQuery((0, 2, TARGET), ((0, BORDERS, 1), (2, FLOWS, 0)), (2,))
    assert answers(small, broken)[0].tolist() == []
    assert tuples(small, broken).shape == (0, 1)


def test_a_part_without_match_empties_the_others(small: Graph) -> None:
    part = ((0, FLOWS, 1), (2, BORDERS, 2))  # no country borders itself
    assert answers(small, BoundQuery((TARGET, 0, HIDDEN), part, (0,)))[0].tolist() == []
    part = ((0, FLOWS, 1), (2, BORDERS, 3))
    assert answers(small, BoundQuery((TARGET, 0, HIDDEN, HIDDEN), part, (0,)))[0].tolist() == [2, 3]


def test_parts_multiply_in_tuples_only(small: Graph) -> None:
    query = BoundQuery((TARGET, 0, TARGET, 2), ((0, FLOWS, 1), (2, ON, 3)), (0, 2))
    assert [values.tolist() for values in answers(small, query)] == [[2, 3], [4, 5]]
    assert tuples(small, query).tolist() == [[2, 4], [2, 5], [3, 4], [3, 5]]


def test_a_variable_without_pattern_takes_every_entity(small: Graph) -> None:
    assert answers(small, BoundQuery((TARGET,), (), (0,)))[0].tolist() == list(range(7))


@pytest.mark.parametrize(
    ("nodes", "edges", "expected"),
    [
        ((), (), True),
        ((0, 1), ((0, BORDERS, 1),), True),
        ((0, 2), ((0, BORDERS, 1),), False),
        ((HIDDEN, 0), ((0, FLOWS, 1),), True),
        ((TARGET, 2), ((0, FLOWS, 1),), False),
        ((HIDDEN, HIDDEN), ((0, BORDERS, 1), (1, BORDERS, 0)), True),
        ((HIDDEN, HIDDEN), ((0, BORDERS, 1), (1, FLOWS, 0)), False),
    ],
)
def test_holds_is_whether_there_is_a_match(
    small: Graph, nodes: tuple[int, ...], edges: tuple[tuple[int, int, int], ...], expected: bool
) -> None:
    assert holds(small, BoundQuery(nodes, edges, ())) is expected
    assert tuples(small, BoundQuery(nodes, edges, ())).shape == (int(expected), 0)


# --- empty ends


def test_an_empty_graph_has_no_answers() -> None:
    assert [values.tolist() for values in answers(graph_of([]), PAPER)] == [[], []]


def test_an_empty_query_set_has_no_sets(small: Graph) -> None:
    sets = answer_sets(small, QuerySet.of([]))
    assert len(sets) == 0 and len(sets.values) == 0


# --- hubs

LEAVES = 200_000


@pytest.fixture(scope="module")
def star() -> Graph:
    """Leaves 1..LEAVES around the hub 0, by one relation."""
    rows = np.zeros((LEAVES, 3), np.int32)
    rows[:, 2] = np.arange(1, LEAVES + 1)
    return graph_of(rows, LEAVES + 1, 1)


def test_a_hub_costs_its_edges_and_not_its_rows(star: Graph) -> None:
    # Four variables around the hub: 1.6e21 rows, of which the engine must touch none.
    around = ((0, 0, 1), (0, 0, 2), (0, 0, 3), (0, 0, 4))
    started = time.process_time()
    for hub in (0, TARGET, HIDDEN):
        nodes = (hub, TARGET, TARGET, TARGET, TARGET)
        sets = answer_sets(star, QuerySet.of([BoundQuery(nodes, around, ())]))
        expected = [1] * (hub == TARGET) + [LEAVES] * 4
        assert np.diff(sets.offsets).tolist() == expected
        assert (sets[len(sets) - 1] == np.arange(1, LEAVES + 1)).all()
    # A walk over a millionth of the rows would take years; minutes are for compilation on a busy machine.
    assert time.process_time() - started < 120


def test_a_path_through_a_hub_and_back(star: Graph) -> None:
    # leaf 5 -> hub -> leaf -> hub -> leaf, with inverse steps: reach sets of all leaves, twice
    path = BoundQuery((5, TARGET, TARGET, TARGET, TARGET), ((0, 1, 1), (1, 0, 2), (2, 1, 3), (3, 0, 4)), (1, 2, 3, 4))
    assert [len(values) for values in answers(star, path)] == [1, LEAVES, 1, LEAVES]


def test_tuples_of_a_hub_stop_at_the_limit(star: Graph) -> None:
    pair = BoundQuery((0, TARGET, TARGET), ((0, 0, 1), (0, 0, 2)), (1, 2))
    assert tuples(star, pair, limit=3).tolist() == [[1, 1], [1, 2], [1, 3]]
    assert len(tuples(star, pair, limit=LEAVES + 2)) == LEAVES + 2
    assert tuples(star, pair, limit=0).shape == (0, 2)
    # With the hub hidden between them.
    hidden = BoundQuery((HIDDEN, TARGET, TARGET), ((0, 0, 1), (0, 0, 2)), (1, 2))
    assert tuples(star, hidden, limit=3).tolist() == [[1, 1], [1, 2], [1, 3]]


def test_tuples_of_a_hub_are_refused_without_a_limit(star: Graph) -> None:
    pair = BoundQuery((0, TARGET, TARGET), ((0, 0, 1), (0, 0, 2)), (1, 2))
    with pytest.raises(BiqeError, match="more than 1,000,000 rows") as refused:
        tuples(star, pair, max_rows=1_000_000)
    assert "limit" in (refused.value.hint or "")
    one = BoundQuery((0, TARGET), ((0, 0, 1),), (1,))
    assert len(tuples(star, one, max_rows=LEAVES)) == LEAVES


def test_hidden_variables_do_not_multiply_the_work(star: Graph) -> None:
    # ?x and ?y joined through a hidden leaf, with three more beside them: one row, 1.6e21 ways to match it.
    nodes = (TARGET, HIDDEN, HIDDEN, TARGET, HIDDEN, HIDDEN)
    query = BoundQuery(nodes, ((0, 0, 1), (0, 0, 2), (3, 0, 1), (3, 0, 4), (3, 0, 5)), (0, 3))
    assert tuples(star, query).tolist() == [[0, 0]]


# --- bad input


@pytest.mark.parametrize(
    ("query", "message"),
    [
        (BoundQuery((7, TARGET), ((0, 0, 1),), (1,)), r"entity id must be in \[0, 7\).*Got 7"),
        (BoundQuery((-3, TARGET), ((0, 0, 1),), (1,)), "Got -3"),
        (BoundQuery((0, TARGET), ((0, 6, 1),), (1,)), r"relation id must be in \[0, 6\).*Got 6"),
        (BoundQuery((0, TARGET), ((0, -1, 1),), (1,)), "Got -1"),
        (BoundQuery((0, TARGET), ((0, 0, 2),), (1,)), "touches node 2; its query has nodes 0 to 1"),
        (BoundQuery((0, TARGET), ((-1, 0, 1),), (1,)), "touches node -1"),
    ],
)
def test_ids_outside_the_graph_are_refused(small: Graph, query: BoundQuery, message: str) -> None:
    for ask in (answers, tuples):
        with pytest.raises(InvalidOption, match=message):
            ask(small, query)


def test_targets_that_are_not_target_nodes_are_refused(small: Graph) -> None:
    for targets in ((0,), (5,), (1, -1)):
        for ask in (answers, tuples):
            with pytest.raises(InvalidOption, match="targets"):
                ask(small, BoundQuery((0, TARGET), ((1, FLOWS, 0),), targets))


def test_options_out_of_range_are_refused(small: Graph) -> None:
    with pytest.raises(InvalidOption, match="threads must be at least 1. Got 0"):
        answer_sets(small, QuerySet.of([PAPER]), threads=0)
    with pytest.raises(InvalidOption, match="limit must be at least 0. Got -1"):
        tuples(small, PAPER, limit=-1)
    with pytest.raises(InvalidOption, match="max_rows must be at least 0. Got -5"):
        tuples(small, PAPER, max_rows=-5)


def test_a_small_question_is_answered_without_compilation() -> None:
    code = """
import sys
from biqe.exact.answers import answers, tuples
from biqe.graph.knowledge_graph import Graph
from biqe.graph.triples import as_triples
from biqe.graph.vocabulary import Vocabulary
from biqe.query.bound import BoundQuery
graph = Graph(Vocabulary("ab", "r"), as_triples([(0, 0, 1)]))
query = BoundQuery((0, -1), ((0, 0, 1),), (1,))
assert answers(graph, query)[0].tolist() == [1] and tuples(graph, query).tolist() == [[1]]
print({"numba", "torch"} & set(sys.modules))
"""
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "set()\n"
