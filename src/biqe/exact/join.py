"""Search for full matches of the parts of a query that have cycles.

Candidate sets come reduced by semi-joins along a spanning forest. What is left is made consistent along every
edge, and then each value of each target is either seen in a match or shown to have none: a match found for one
value vouches for the values of all other targets in it, so few searches run.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from biqe.exact.adjacency import Adjacency
from biqe.exact.plan import CYCLE, TREE, kernel
from biqe.exact.semi_join import group_of, has, holds, keep_joined, keep_marked

ROUNDS = 8
"""Largest number of arc-consistency sweeps; further ones cost more than they prune."""
NOBODY: Any = np.int64(-1)
_ONE = np.uint64(1)


class Search(NamedTuple):
    """Scratch for the search of one query of at most K nodes."""

    order: NDArray[np.int64]
    """(K,) the variables of one component in the order in which they get values."""
    values: NDArray[np.int64]
    """(K,) value of each node on the way to a match; constants have theirs."""
    bound: NDArray[np.bool_]
    """(K,) whether the node has a value now."""
    cursor: NDArray[np.int64]
    """(K,) next place to look at in ``neighbours``, by position in ``order``."""
    stop: NDArray[np.int64]
    """(K,) where the slice ends."""
    seen: NDArray[np.uint64]
    """(K, E/64) values that were in a match; all 0 between queries."""


def empty_search(nodes: int, adjacency: Adjacency) -> Search:
    """Scratch for queries of at most so many nodes. Pages that no cyclic query reaches are never touched."""
    return Search(
        np.zeros(nodes, np.int64),
        np.zeros(nodes, np.int64),
        np.zeros(nodes, np.bool_),
        np.zeros(nodes, np.int64),
        np.zeros(nodes, np.int64),
        np.zeros((nodes, (adjacency.entity_count + 63) // 64), np.uint64),
    )


@kernel
def match_cycles(adjacency, sets, plan, nodes, edges, search):
    """Reduce the targets' sets to the values that some match has; False if the query has none."""
    if not _sweep(adjacency, sets, plan, edges):
        return False
    for edge in range(len(edges)):
        if plan.edge_kinds[edge] != CYCLE:
            continue
        component = plan.component[edges[edge, 0]]
        first = True
        for earlier in range(edge):
            if plan.edge_kinds[earlier] == CYCLE and plan.component[edges[earlier, 0]] == component:
                first = False
        if first and not _match_component(adjacency, sets, plan, nodes, edges, search, component):
            return False
    return True


@kernel
def _sweep(adjacency, sets, plan, edges):
    """Arc consistency along all edges; False if a set runs empty."""
    for _ in range(ROUNDS):
        changed = False
        for edge in range(len(edges)):
            if plan.edge_kinds[edge] != CYCLE and plan.edge_kinds[edge] != TREE:
                continue
            subject, relation, object_ = edges[edge, 0], edges[edge, 1], edges[edge, 2]
            before = sets.sizes[subject] + sets.sizes[object_]
            keep_joined(adjacency, sets, subject, object_, relation)
            keep_joined(adjacency, sets, object_, subject, adjacency.inverse[relation])
            if sets.sizes[subject] == 0 or sets.sizes[object_] == 0:
                return False
            changed |= sets.sizes[subject] + sets.sizes[object_] != before
        if not changed:
            break
    return True


@kernel
def _match_component(adjacency, sets, plan, nodes, edges, search, component):
    """Keep of each target's set the values that are in a match of the component."""
    smallest, targets = NOBODY, 0
    for node in range(len(nodes)):
        if nodes[node] >= 0 or plan.component[node] != component:
            continue
        targets += nodes[node] == -1
        if smallest == NOBODY or sets.sizes[node] < sets.sizes[smallest]:
            smallest = node
    if targets == 0:
        count = _order_from(sets, plan, nodes, edges, search, smallest)
        for position in range(sets.sizes[smallest]):
            value = np.int64(sets.members[smallest, position])
            if _find(adjacency, sets, plan, nodes, edges, search, count, value):
                return True
        return False
    found = True
    for target in range(len(nodes)):
        if nodes[target] != -1 or plan.component[target] != component:
            continue
        count = _order_from(sets, plan, nodes, edges, search, target)
        for position in range(sets.sizes[target]):
            value = np.int64(sets.members[target, position])
            if not has(search.seen[target], value) and _find(adjacency, sets, plan, nodes, edges, search, count, value):
                for step in range(count):
                    node = search.order[step]
                    value = search.values[node]
                    search.seen[node, value >> 6] |= _ONE << np.uint64(value & 63)
        # Later targets are searched among values that are right for this one.
        keep_marked(sets, target, search.seen[target])
        found = found and sets.sizes[target] > 0
    for node in range(len(nodes)):
        search.seen[node, :] = 0
    return found


@kernel
def _order_from(sets, plan, nodes, edges, search, first):
    """Order the component's variables: each joined to an earlier one, the smallest set first."""
    search.bound[: len(nodes)] = False
    search.order[0] = first
    search.bound[first] = True
    count = 1
    while True:
        best = -1
        for edge in range(len(edges)):
            if plan.edge_kinds[edge] != CYCLE and plan.edge_kinds[edge] != TREE:
                continue
            subject, object_ = edges[edge, 0], edges[edge, 2]
            if search.bound[subject] == search.bound[object_]:
                continue
            node = object_ if search.bound[subject] else subject
            if best < 0 or sets.sizes[node] < sets.sizes[best]:
                best = node
        if best < 0:
            return count
        search.order[count] = best
        search.bound[best] = True
        count += 1


@kernel
def _find(adjacency, sets, plan, nodes, edges, search, count, value):
    """Whether some match gives the first variable of the order this value; the match is left in ``values``."""
    search.bound[: len(nodes)] = False
    search.values[search.order[0]] = value
    search.bound[search.order[0]] = True
    if count == 1:
        return True
    step: Any = np.int64(1)
    _open(adjacency, plan, edges, search, step)
    while step > 0:
        node = search.order[step]
        search.bound[node] = False
        advanced = False
        while search.cursor[step] < search.stop[step]:
            candidate = np.int64(adjacency.neighbours[search.cursor[step]])
            search.cursor[step] += 1
            if has(sets.bits[node], candidate) and _fits(adjacency, plan, edges, search, node, candidate):
                search.values[node] = candidate
                search.bound[node] = True
                advanced = True
                break
        if not advanced:
            step -= 1
        elif step == count - 1:
            return True
        else:
            step += 1
            _open(adjacency, plan, edges, search, step)
    return False


@kernel
def _open(adjacency, plan, edges, search, step):
    """Point the step's cursor at the shortest run of neighbours that an earlier variable gives it."""
    node = search.order[step]
    search.cursor[step], search.stop[step] = 0, np.int64(1) << 62
    for edge in range(len(edges)):
        if plan.edge_kinds[edge] != CYCLE and plan.edge_kinds[edge] != TREE:
            continue
        subject, relation, object_ = edges[edge, 0], edges[edge, 1], edges[edge, 2]
        if subject == node and search.bound[object_]:
            group = group_of(adjacency, adjacency.inverse[relation], search.values[object_])
        elif object_ == node and search.bound[subject]:
            group = group_of(adjacency, relation, search.values[subject])
        else:
            continue
        if group < 0:
            search.cursor[step], search.stop[step] = 0, 0
            return
        low, high = adjacency.group_offsets[group], adjacency.group_offsets[group + 1]
        if high - low < search.stop[step] - search.cursor[step]:
            search.cursor[step], search.stop[step] = low, high


@kernel
def _fits(adjacency, plan, edges, search, node, candidate):
    """Whether all edges between the node and variables that have values hold."""
    for edge in range(len(edges)):
        if plan.edge_kinds[edge] != CYCLE and plan.edge_kinds[edge] != TREE:
            continue
        subject, relation, object_ = edges[edge, 0], edges[edge, 1], edges[edge, 2]
        if subject == node and search.bound[object_]:
            if not holds(adjacency, candidate, relation, search.values[object_]):
                return False
        elif object_ == node and search.bound[subject]:
            if not holds(adjacency, search.values[subject], relation, candidate):
                return False
    return True
