"""Answer sets of many queries: the loop over the columns of a query set, compiled, on several threads."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from queue import SimpleQueue

import numpy as np
from numpy.typing import NDArray

from biqe.exact.adjacency import Adjacency
from biqe.exact.join import empty_search, match_cycles
from biqe.exact.plan import allocating_kernel, empty_plan, kernel, make_plan
from biqe.exact.semi_join import clear, empty_sets, reduce_sets, write_sorted
from biqe.query.bound import AnswerSets, QuerySet

Columns = tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]
"""Node offsets, nodes, edge offsets, edges."""
CHUNK = 256
"""Queries of one task: few enough to balance the threads, many enough to hide the cost of Python."""
FIRST_BUFFER = 1 << 16
"""Values that a thread's output buffer holds at first; it doubles as needed."""


def solve_batch(adjacency: Adjacency, queries: QuerySet, threads: int) -> AnswerSets:
    """The sorted true values of every target of every query."""
    cyclic = cyclic_queries(adjacency, queries)
    if not cyclic.any() or cyclic.all():
        return _solve_alike(adjacency, queries, threads, bool(cyclic.any()))
    # Cyclic queries are answered apart, so that their search is compiled only when there are some.
    rows = [np.flatnonzero(~cyclic), np.flatnonzero(cyclic)]
    trees, cycles = (_solve_alike(adjacency, queries.take(part), threads, part is rows[1]) for part in rows)
    both = AnswerSets(
        np.concatenate([trees.offsets, trees.offsets[-1] + cycles.offsets[1:]]),
        np.concatenate([trees.values, cycles.values]),
    )
    of_cycle = np.repeat(cyclic, np.diff(queries.target_offsets))
    place = np.empty(len(of_cycle), np.int64)
    place[~of_cycle], place[of_cycle] = np.arange(len(trees)), len(trees) + np.arange(len(cycles))
    return both.take(place)


def cyclic_queries(adjacency: Adjacency, queries: QuerySet) -> NDArray[np.bool_]:
    """(Q,) whether the query has edges outside a forest, once its anchors are split."""
    columns = _columns(queries)
    return find_cyclic(adjacency, *columns, empty_plan(*_largest(columns)))


def _solve_alike(adjacency: Adjacency, queries: QuerySet, threads: int, cyclic: bool) -> AnswerSets:
    chunks = range(0, len(queries), CHUNK)
    workers = max(1, min(threads, len(chunks)))
    columns = _columns(queries)
    scratches: SimpleQueue[_Scratch] = SimpleQueue()
    for _ in range(workers):
        scratches.put(_Scratch(adjacency, columns, cyclic))
    target_offsets = queries.target_offsets
    sizes = np.zeros(target_offsets[-1], np.int64)

    def solve(first: int) -> NDArray[np.int32]:
        scratch = scratches.get()
        try:
            last = min(first + CHUNK, len(queries))
            return scratch.solve(first, last, sizes[target_offsets[first] : target_offsets[last]])
        finally:
            scratches.put(scratch)

    if workers == 1:
        parts = [solve(first) for first in chunks]
    else:
        with ThreadPoolExecutor(workers) as pool:
            parts = list(pool.map(solve, chunks))
    offsets = np.zeros(len(sizes) + 1, np.int64)
    np.cumsum(sizes, out=offsets[1:])
    return AnswerSets(offsets, _join(parts, int(offsets[-1])))


def _columns(queries: QuerySet) -> Columns:
    """The columns with one integer type for all ids: each kernel is then compiled once."""
    return (
        np.ascontiguousarray(queries.node_offsets, np.int64),
        queries.nodes.astype(np.int64),
        np.ascontiguousarray(queries.edge_offsets, np.int64),
        queries.edges.astype(np.int64, order="C"),
    )


def _largest(columns: Columns) -> tuple[int, int]:
    """The most nodes and the most edges of a query."""
    return int(np.diff(columns[0]).max(initial=0)), int(np.diff(columns[2]).max(initial=0))


class _Scratch:
    """What one thread works in; lives for one batch."""

    def __init__(self, adjacency: Adjacency, columns: Columns, cyclic: bool) -> None:
        self.adjacency = adjacency
        self.columns = columns
        nodes, edges = _largest(columns)
        self.plan = empty_plan(nodes, edges)
        self.sets = empty_sets(nodes, adjacency)
        self.search = empty_search(nodes, adjacency) if cyclic else None
        self.buffer = np.empty(FIRST_BUFFER, np.int32)

    def solve(self, first: int, last: int, sizes: NDArray[np.int64]) -> NDArray[np.int32]:
        """Values of the queries first..last-1, one target after the other; their numbers go to ``sizes``."""
        self.buffer, used = solve_queries(
            self.adjacency, *self.columns, first, last, self.plan, self.sets, self.search, self.buffer, sizes
        )
        return self.buffer[:used].copy()


def _join(parts: list[NDArray[np.int32]], size: int) -> NDArray[np.int32]:
    """The parts as one array. Each part is freed once it is copied, so that memory is not needed twice."""
    values = np.empty(size, np.int32)
    parts.reverse()
    start = 0
    while parts:
        part = parts.pop()
        values[start : start + len(part)] = part
        start += len(part)
    return values


@allocating_kernel
def solve_queries(
    adjacency, node_offsets, all_nodes, edge_offsets, all_edges, first, last, plan, sets, search, buffer, sizes
):
    """Answer the queries first..last-1; returns the buffer, perhaps a larger one, and how much of it is used."""
    used, target = np.int64(0), np.int64(0)
    for query in range(first, last):
        nodes = all_nodes[node_offsets[query] : node_offsets[query + 1]]
        edges = all_edges[edge_offsets[query] : edge_offsets[query + 1]]
        solvable = solve_query(adjacency, nodes, edges, plan, sets, search)
        for node in range(len(nodes)):
            if nodes[node] != -1:
                continue
            sizes[target] = sets.sizes[node] if solvable else 0
            if used + sizes[target] > len(buffer):
                buffer = enlarged(buffer, used, used + sizes[target])
            if solvable:
                used = write_sorted(sets, node, buffer, used)
            target += 1
        for node in range(len(nodes)):
            clear(sets, node)
    return buffer, used


@allocating_kernel
def enlarged(buffer, used, needed):
    """A buffer with the same first values and room for ``needed``; at least twice as large."""
    larger = np.empty(max(2 * len(buffer), needed), np.int32)
    for position in range(used):
        larger[position] = buffer[position]
    return larger


@kernel
def solve_query(adjacency, nodes, edges, plan, sets, search):
    """Leave in ``sets`` the true values of each target; False if the query has no answer.

    ``search`` may be None where the query has no cycles; numba then leaves the branch out.
    """
    variables, cycles = make_plan(nodes, edges, adjacency.inverse, plan)
    if not reduce_sets(adjacency, sets, plan, nodes, edges, variables, cycles > 0):
        return False
    if search is not None:
        return cycles == 0 or match_cycles(adjacency, sets, plan, nodes, edges, search)
    return True


@allocating_kernel
def find_cyclic(adjacency, node_offsets, all_nodes, edge_offsets, all_edges, plan):
    """For each query, whether it has an edge outside the forest of its plan."""
    cyclic = np.zeros(len(node_offsets) - 1, np.bool_)
    for query in range(len(cyclic)):
        nodes = all_nodes[node_offsets[query] : node_offsets[query + 1]]
        edges = all_edges[edge_offsets[query] : edge_offsets[query + 1]]
        cyclic[query] = make_plan(nodes, edges, adjacency.inverse, plan)[1] > 0
    return cyclic
