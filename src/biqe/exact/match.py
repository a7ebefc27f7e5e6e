"""Full tuples of a query, distinct and in order, one target after the other.

With the first targets given values they are constants, so the values that the next target can take are again the
answers of a query, a smaller one. Every value tried is therefore part of some row: there are no dead ends, no
row comes twice, and hidden variables are never walked through one by one.

Most steps need no query at all: where the rest of the query hangs on one edge from an earlier target, the values
are that target's neighbours among the answers of the whole query. And where the last targets that got a new value
do not touch the rest, its values stand from before.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from biqe.exact.adjacency import Adjacency
from biqe.exact.batch import cyclic_queries, enlarged, solve_query
from biqe.exact.join import empty_search
from biqe.exact.plan import allocating_kernel, empty_plan, kernel
from biqe.exact.semi_join import clear, empty_sets, group_of, has, write_sorted
from biqe.query.bound import HIDDEN, BoundQuery, QuerySet

GLOBAL = -1
"""Step that depends on no earlier target: the answers of the whole query stand."""
SOLVE = -2
"""Step that needs the answers of a smaller query."""


@dataclass(frozen=True)
class Steps:
    """How each target finds its values once those before it have theirs. T targets."""

    depends: NDArray[np.int64]
    """(T,) the last earlier target that restricts this one, or -1."""
    by: NDArray[np.int64]
    """(T,) relation from that target to this one where its neighbours are the values; or GLOBAL, or SOLVE."""
    edge_offsets: NDArray[np.int64]
    """(T+1,) slice of each step's edges."""
    edges: NDArray[np.int64]
    """Edges of the smaller query of each step."""


def steps(query: BoundQuery, targets: tuple[int, ...], inverse: NDArray[np.int64]) -> Steps:
    """The steps of ``targets``, in this order."""
    depends, by, kept, offsets = [], [], [], [0]
    for position, target in enumerate(targets):
        earlier = {node: rank for rank, node in enumerate(targets[:position])}
        rest = _rest(query, target, earlier)
        edges = [edge for edge in query.edges if edge[0] in rest or edge[2] in rest]
        border = {
            (subject, relation, object_) if subject in earlier else (object_, int(inverse[relation]), subject)
            for subject, relation, object_ in edges
            if subject in earlier or object_ in earlier
        }
        depends.append(max((earlier[source] for source, _, _ in border), default=-1))
        if not border:
            by.append(GLOBAL)
        elif len(border) == 1 and (edge := next(iter(border)))[2] == target:
            by.append(edge[1])
        else:
            by.append(SOLVE)
            kept += edges
        offsets.append(len(kept))
    return Steps(
        np.array(depends, np.int64),
        np.array(by, np.int64),
        np.array(offsets, np.int64),
        np.array(kept, np.int64).reshape(-1, 3),
    )


def _rest(query: BoundQuery, target: int, earlier: dict[int, int]) -> set[int]:
    """Variables connected with ``target`` once the earlier targets are replaced by constants."""
    rest, frontier = {target}, [target]
    while frontier:
        node = frontier.pop()
        for subject, _, object_ in query.edges:
            if node in (subject, object_):
                other = object_ if node == subject else subject
                if other not in rest and other not in earlier and query.nodes[other] < 0:
                    rest.add(other)
                    frontier.append(other)
    return rest


def match(adjacency: Adjacency, query: BoundQuery, targets: tuple[int, ...], stop_after: int) -> NDArray[np.int32]:
    """Distinct rows over ``targets`` (at least one, no two the same), in order; at most ``stop_after`` of them."""
    plan_of_steps = steps(query, targets, adjacency.inverse)
    cyclic = cyclic_queries(adjacency, QuerySet.of([query]))[0]
    nodes = np.array(query.nodes, np.int64)
    edges = np.array(query.edges, np.int64).reshape(-1, 3)
    flat = match_rows(
        adjacency,
        nodes,
        edges,
        np.array(targets, np.int64),
        plan_of_steps.depends,
        plan_of_steps.by,
        plan_of_steps.edge_offsets,
        plan_of_steps.edges,
        empty_plan(len(nodes), len(edges)),
        empty_sets(len(nodes), adjacency),
        empty_search(len(nodes), adjacency) if cyclic else None,
        stop_after,
    )
    return flat.reshape(-1, len(targets))


@allocating_kernel
def match_rows(adjacency, nodes, edges, targets, depends, by, edge_offsets, step_edges, plan, sets, search, stop_after):
    """Rows one after the other. ``nodes`` is used as scratch."""
    width, last = len(targets), len(targets) - 1
    rows = np.empty(1024 * width, np.int32)
    used, start = np.int64(0), np.int64(0)
    # The answers of the whole query, as lists and as bits.
    solvable = solve_query(adjacency, nodes, edges, plan, sets, search)
    if not solvable:
        return rows[:0]
    true_bits = np.empty((width, sets.bits.shape[1]), np.uint64)
    lists = np.empty((width, adjacency.entity_count), np.int32)
    sizes = np.zeros(width, np.int64)
    for level in range(width):
        for position in range(true_bits.shape[1]):
            true_bits[level, position] = sets.bits[targets[level], position]
        sizes[level] = write_sorted(sets, targets[level], lists[level], start)
    for node in range(len(nodes)):
        clear(sets, node)
        if nodes[node] < 0:
            nodes[node] = HIDDEN
    cursor = np.zeros(width, np.int64)
    # A level's list stands while the level it depends on has the value it was made for.
    clock = 0
    changed = np.zeros(width, np.int64)
    made_for = np.full(width, -1, np.int64)
    level, opening = 0, True
    while level >= 0:
        target = targets[level]
        if opening:
            cursor[level] = 0
            if by[level] != GLOBAL and made_for[level] != changed[depends[level]]:
                made_for[level] = changed[depends[level]]
                if by[level] == SOLVE:
                    nodes[target] = -1
                    own = step_edges[edge_offsets[level] : edge_offsets[level + 1]]
                    solve_query(adjacency, nodes, own, plan, sets, search)
                    sizes[level] = write_sorted(sets, target, lists[level], start)
                    for node in range(len(nodes)):
                        clear(sets, node)
                    nodes[target] = HIDDEN
                else:
                    source = nodes[targets[depends[level]]]
                    sizes[level] = _true_neighbours(adjacency, source, by[level], true_bits[level], lists[level])
        if level == last:
            count = min(sizes[level], stop_after - used // width)
            if used + count * width > len(rows):
                rows = enlarged(rows, used, used + count * width)
            for position in range(count):
                for column in range(last):
                    rows[used + column] = nodes[targets[column]]
                rows[used + last] = lists[last, position]
                used += width
            if used // width >= stop_after:
                break
            level, opening = level - 1, False
        elif cursor[level] < sizes[level]:
            nodes[target] = lists[level, cursor[level]]
            cursor[level] += 1
            clock += 1
            changed[level] = clock
            level, opening = level + 1, True
        else:
            nodes[target] = HIDDEN
            level, opening = level - 1, False
    return rows[:used]


@kernel
def _true_neighbours(adjacency, source, relation, true_bits, out):
    """Write the neighbours whose bit is set, in order; returns how many."""
    group = group_of(adjacency, relation, source)
    size = 0
    for position in range(adjacency.group_offsets[group], adjacency.group_offsets[group + 1]):
        value = adjacency.neighbours[position]
        if has(true_bits, value):
            out[size] = value
            size += 1
    return size
