"""One match of a large query, with whatever cycles, or the certainty that there is none.

``tuples`` gives values to variables one after the other and only then looks whether the next one still has any; a
query of thirty patterns can keep it busy for hours. Here every variable has the set of entities that it may still be,
and each choice is followed to its consequences for all of them: an entity stays only where each pattern still has a
partner for it. Most queries without a match are found out before the first choice, and the others after few. What it
costs is a scan of the relations of a query for each choice, so small queries are better off with ``tuples``.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from biqe.exact.adjacency import Adjacency, adjacency
from biqe.exact.answers import checkpoint
from biqe.graph.knowledge_graph import Graph
from biqe.query.bound import BoundQuery, Edge
from biqe.query.dag import components

Mask = NDArray[np.bool_]
Sets = dict[int, Mask]
"""(E,) for each variable: the entities that it may be."""


CHOICES = 10_000
"""Choices after which a part of a query is given up; those of AnyCQ's questions that have a match need some dozens."""


def first_match(graph: Graph, query: BoundQuery, choices: int = CHOICES) -> NDArray[np.int32] | None:
    """An entity for every node of the query, so that the graph holds all patterns; None where there are none, or where
    so many choices have not led to one."""
    table, nodes = adjacency(graph), np.array(query.nodes, np.int32)
    between = [edge for edge in query.edges if nodes[edge[0]] < 0 and nodes[edge[2]] < 0]
    sets = _beside_constants(table, query, graph.entity_count)
    if sets is None:
        return None
    # What only constants join is searched part by part: a part without a match ends it all.
    for part in components(len(nodes), between):
        variables = [node for node in part if nodes[node] < 0]
        edges = [edge for edge in between if edge[0] in variables]
        found = _searched(table, edges, {node: sets[node] for node in variables}, choices)
        if found is None:
            return None
        for node, value in found.items():
            nodes[node] = value
    return nodes


def _beside_constants(table: Adjacency, query: BoundQuery, entities: int) -> Sets | None:
    """What the patterns with constants leave each variable; None where they cannot all hold."""
    sets = {node: np.ones(entities, bool) for node, value in enumerate(query.nodes) if value < 0}
    for subject, relation, object_ in query.edges:
        head, tail = query.nodes[subject], query.nodes[object_]
        if head < 0 and tail < 0:
            continue
        if head < 0:
            head, relation, object_ = tail, int(table.inverse[relation]), subject
        there = _tails(table, head, relation)
        if object_ in sets:
            only = np.zeros(entities, bool)
            only[there] = True
            sets[object_] &= only
        elif query.nodes[object_] not in there:
            return None
    return sets if all(mask.any() for mask in sets.values()) else None


def _searched(table: Adjacency, edges: Sequence[Edge], sets: Sets, choices: int) -> dict[int, int] | None:
    """An entity for each variable, by trying those of the variable that has fewest left."""
    if not _consistent(table, edges, sets, set(sets)):
        return None
    tried: list[tuple[Sets, int, list[int]]] = []
    while True:
        checkpoint()
        sizes = {node: int(mask.sum()) for node, mask in sets.items()}
        left = [node for node, size in sizes.items() if size > 1]
        if not left:
            return {node: int(mask.argmax()) for node, mask in sets.items()}
        node = min(left, key=lambda node: (sizes[node], node))
        tried.append((sets, node, np.flatnonzero(sets[node])[::-1].tolist()))
        while tried and choices > 0:
            choices -= 1
            before, node, values = tried[-1]
            if not values:
                tried.pop()
                continue
            only = np.zeros(len(before[node]), bool)
            only[values.pop()] = True
            sets = {**before, node: only}
            if _consistent(table, edges, sets, {node}):
                break
        else:
            return None


def _consistent(table: Adjacency, edges: Sequence[Edge], sets: Sets, changed: set[int]) -> bool:
    """Take out what has no partner by some pattern, until nothing changes; False where a variable has nothing left.
    Masks are replaced, not written to."""
    while changed:
        node = changed.pop()
        for subject, relation, object_ in edges:
            for start, direction, end in (
                (subject, relation, object_),
                (object_, int(table.inverse[relation]), subject),
            ):
                if start != node:
                    continue
                # (end, its way back, start): who of ``end`` still has a partner in ``start``
                kept = sets[end] & _with_partner(table, int(table.inverse[direction]), sets[start], start == end)
                if not kept.any():
                    return False
                if kept.sum() < sets[end].sum():
                    sets[end] = kept
                    changed.add(end)
    return True


def _with_partner(table: Adjacency, direction: int, partners: Mask, is_loop: bool) -> Mask:
    """(E,) the entities from which a direction leads to one of ``partners``; for a loop, to themselves."""
    found = np.zeros(len(partners), bool)
    first, last = table.relation_offsets[direction], table.relation_offsets[direction + 1]
    if last == first:
        return found
    start, stop = table.group_offsets[first], table.group_offsets[last]
    sources, tails = table.group_sources[first:last], table.neighbours[start:stop]
    offsets = table.group_offsets[first:last] - start
    held = partners[tails]
    if is_loop:
        held = held & (tails == np.repeat(sources, np.diff(table.group_offsets[first : last + 1])))
    found[sources] = np.logical_or.reduceat(held, offsets)
    return found


def _tails(table: Adjacency, head: int, direction: int) -> NDArray[np.int32]:
    first, last = table.relation_offsets[direction], table.relation_offsets[direction + 1]
    group = first + int(np.searchsorted(table.group_sources[first:last], head))
    if group == last or table.group_sources[group] != head:
        return table.neighbours[:0]
    return table.neighbours[table.group_offsets[group] : table.group_offsets[group + 1]]
