"""What the graph itself answers: the true values of each target, and full rows.

Two ways lead to the same answers. A single query is joined in numpy first (``adjacency``), which compiles nothing. A
batch, and a query whose joins would grow too large, goes through the compiled kernels: ``batch`` for the values of each
target, ``match`` for whole rows.

Long work can be cancelled. A server runs each question under ``checked_by`` with a function that raises when the
question must stop; exact answers and model calls run that function from time to time through ``checkpoint``.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import numpy as np
from numpy.typing import NDArray

from biqe.errors import BiqeError, InvalidOption
from biqe.exact.adjacency import Adjacency, adjacency, numpy_join
from biqe.graph.knowledge_graph import Graph
from biqe.query.bound import HIDDEN, TARGET, AnswerSets, BoundQuery, QuerySet
from biqe.query.dag import reduced

MAX_ROWS = 10_000_000
"""Rows that ``tuples`` returns at most where no limit is given."""


def answers(graph: Graph, query: BoundQuery) -> list[NDArray[np.int32]]:
    """The true values of each target, in the order of ``query.targets``; each sorted.

    A value is true if some match of the whole query in ``graph`` gives it to the target.
    """
    checkpoint()
    _check_targets(query)
    table = adjacency(graph)
    _check_one(table, query)
    query = reduced(query, graph.relation_count)
    rows = numpy_join(table, query, _distinct(query.targets))
    if rows is not None:
        of_target = dict(zip(_distinct(query.targets), rows.T, strict=True))
        return [np.unique(of_target[node]) for node in query.targets]
    sets = answer_sets(graph, QuerySet.of([query]), threads=1)
    every_target = [node for node, value in enumerate(query.nodes) if value == TARGET]
    return [sets[every_target.index(node)] for node in query.targets]


def answer_sets(graph: Graph, queries: QuerySet, *, threads: int = 2) -> AnswerSets:
    """The sorted true values of every target of every query, in the order of ``queries.target_nodes``.

    Queries without cycles cost what their edges cost to touch, however many matches there are. Chunks of queries
    run on ``threads`` threads.
    """
    if threads < 1:
        raise InvalidOption(f"threads must be at least 1. Got {threads}")
    table = adjacency(graph)
    _check(table, queries)
    from biqe.exact.batch import solve_batch  # numba: not before a batch needs it

    return solve_batch(table, queries, threads)


def tuples(graph: Graph, query: BoundQuery, *, limit: int | None = None, max_rows: int = MAX_ROWS) -> NDArray[np.int32]:
    """Distinct rows over ``query.targets``, sorted; the first ``limit`` of them where a limit is given.

    Without a limit, more than ``max_rows`` rows are refused: a query over two hubs has billions. The limit is
    the argument's alone; ``query.limit`` is for the caller to pass on. A query without targets has one empty row
    if the graph matches it, else none.
    """
    for option, value in (("limit", limit), ("max_rows", max_rows)):
        if value is not None and value < 0:
            raise InvalidOption(f"{option} must be at least 0. Got {value}")
    checkpoint()
    _check_targets(query)
    table = adjacency(graph)
    _check_one(table, query)
    query = reduced(query, graph.relation_count)
    columns = _distinct(query.targets)
    rows = numpy_join(table, query, columns)
    if rows is None and not columns:
        rows = np.empty((int(holds(graph, query)), 0), np.int32)
    elif rows is None:
        from biqe.exact.match import match  # numba: not before a query needs it

        rows = match(table, query, columns, max_rows + 1 if limit is None else limit)
    rows = rows[:limit]
    if limit is None and len(rows) > max_rows:
        raise BiqeError(
            f"the query has more than {max_rows:,} rows on this graph",
            hint="give a limit, or ask for the answers of each target, which no product blows up",
        )
    return rows if columns == query.targets else rows[:, [columns.index(target) for target in query.targets]]


def _distinct(targets: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(dict.fromkeys(targets))


def holds(graph: Graph, query: BoundQuery) -> bool:
    """Whether ``graph`` matches the query at all: what ASK asks."""
    if not query.nodes:
        return True
    # One variable as the only target: whether it has a value is whether there is a match.
    nodes = [min(value, HIDDEN) if value < 0 else value for value in query.nodes]
    asked = next((node for node, value in enumerate(nodes) if value < 0), None)
    if asked is None:
        # Ground patterns alone; a loose variable beside them changes nothing.
        nodes.append(TARGET)
        asked = len(nodes) - 1
    nodes[asked] = TARGET
    return len(answers(graph, BoundQuery(tuple(nodes), query.edges, (asked,)))[0]) > 0


def _check_targets(query: BoundQuery) -> None:
    for node in query.targets:
        if not 0 <= node < len(query.nodes) or query.nodes[node] != TARGET:
            every_target = [node for node, value in enumerate(query.nodes) if value == TARGET]
            raise InvalidOption(f"targets must be nodes that are marked as targets, here {every_target}. Got {node}")


def _check_one(table: Adjacency, query: BoundQuery) -> None:
    """Refuse what ``_check`` refuses, after a quick test in plain Python that valid queries pass."""
    entities, relations, count = table.entity_count, len(table.inverse), len(query.nodes)
    are_nodes_right = all(HIDDEN <= value < entities for value in query.nodes)
    if not are_nodes_right or not all(
        0 <= subject < count and 0 <= relation < relations and 0 <= object_ < count
        for subject, relation, object_ in query.edges
    ):
        _check(table, QuerySet.of([query]))


def _check(table: Adjacency, queries: QuerySet) -> None:
    """Refuse ids outside the graph: the kernels would read beyond their arrays."""
    entities, relations = table.entity_count, len(table.inverse)
    _check_range("entity id", queries.nodes, HIDDEN, entities)
    _check_range("relation id", queries.edges[:, 1], 0, relations)
    lengths = np.repeat(np.diff(queries.node_offsets), np.diff(queries.edge_offsets))
    for column in (0, 2):
        ends = queries.edges[:, column]
        wrong = np.flatnonzero((ends < 0) | (ends >= lengths))
        if len(wrong):
            raise InvalidOption(
                f"edge {wrong[0]:,} of the queries touches node {ends[wrong[0]]}; "
                f"its query has nodes 0 to {lengths[wrong[0]] - 1}"
            )


def _check_range(what: str, ids: NDArray[np.int32], low: int, high: int) -> None:
    if len(ids) and (ids.min() < low or ids.max() >= high):
        wrong = ids[(ids < low) | (ids >= high)][0]
        raise InvalidOption(
            f"{what} must be in [0, {high:,}) for this graph. Got {wrong}",
            hint="was the query bound to the vocabulary of another graph?",
        )


_own = threading.local()


@contextmanager
def checked_by(check: Callable[[], None] | None) -> Iterator[None]:
    """Within this block, and in this thread only, ``checkpoint`` calls ``check``. With None nothing is checked."""
    before = getattr(_own, "check", None)
    _own.check = check
    try:
        yield
    finally:
        _own.check = before


def checkpoint() -> None:
    """Run the current check, if any. Called at places where stopping leaves nothing half done."""
    check = getattr(_own, "check", None)
    if check is not None:
        check()
