"""Neighbours by relation, both ways in one table, and plain numpy joins over it.

The joins are for single queries with few matches: nothing is compiled, so that a first question on a small graph is
answered at once. Where their table would exceed its cap, the caller uses the compiled kernels of this room, which walk
on the same neighbours and never build such products.

Relation ids run over 2R here, so that an inverse is walked like any other relation. The triples stand sorted by
(relation, source, neighbour); a *group* is the run of one (relation, source). A relation's groups are one slice,
sorted by source, and all its neighbours are one slice too, so a step of a join stays within a few kilobytes.
"""

from __future__ import annotations

import weakref
from collections.abc import Mapping
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from biqe.graph.index import stable_order
from biqe.graph.knowledge_graph import Graph
from biqe.query.bound import BoundQuery, Edge

CAP = 200_000
"""Largest number of rows of a table that numpy joins make."""

Int = NDArray[np.int32]
Offsets = NDArray[np.int64]


class Adjacency(NamedTuple):
    """Groups and neighbours of one graph. A NamedTuple, so that numba takes it as it is."""

    relation_offsets: Offsets
    """(2R+1,) slice of each relation in ``group_sources`` and ``group_offsets``."""
    group_sources: Int
    """(G,) source entity of each group."""
    group_offsets: Offsets
    """(G+1,) slice of each group in ``neighbours``."""
    neighbours: Int
    """(2n,)"""
    inverse: Offsets
    """(2R,) the relation walked the other way."""
    entity_count: int


_CACHE: dict[int, Adjacency] = {}


def adjacency(graph: Graph) -> Adjacency:
    """The table of ``graph``; built on first use and kept as long as the graph lives."""
    key = id(graph)
    table = _CACHE.get(key)
    if table is None:
        table = _CACHE[key] = _build(graph)
        weakref.finalize(graph, _CACHE.pop, key, None)
    return table


def _build(graph: Graph) -> Adjacency:
    index, count = graph.index, graph.relation_count
    relation = np.repeat(np.arange(count, dtype=np.int32), np.diff(index.relation_offsets))
    # relation_subjects and relation_objects stand by (relation, subject, object): the forward half as it is.
    # in_subjects stand by (object, relation, subject), so that one stable sort makes the other half of them.
    backward = stable_order(index.in_relations)
    objects = np.repeat(np.arange(graph.entity_count, dtype=np.int32), np.diff(index.in_offsets))
    relations = np.concatenate([relation, relation + count])
    sources = np.concatenate([index.relation_subjects, objects[backward]])
    neighbours = np.concatenate([index.relation_objects, index.in_subjects[backward]])
    first = np.ones(len(sources), bool)
    first[1:] = (sources[1:] != sources[:-1]) | (relations[1:] != relations[:-1])
    starts = np.flatnonzero(first)
    relation_offsets = np.zeros(2 * count + 1, np.int64)
    np.cumsum(np.bincount(relations[starts], minlength=2 * count), out=relation_offsets[1:])
    return Adjacency(
        relation_offsets,
        np.ascontiguousarray(sources[starts], np.int32),
        np.append(starts, len(sources)).astype(np.int64),
        np.ascontiguousarray(neighbours, np.int32),
        np.array([graph.vocabulary.inverse(relation) for relation in range(2 * count)], np.int64),
        graph.entity_count,
    )


def numpy_join(
    adjacency: Adjacency,
    query: BoundQuery,
    targets: tuple[int, ...],
    cap: int = CAP,
    allowed: Mapping[int, NDArray[np.bool_]] | None = None,
) -> NDArray[np.int32] | None:
    """Distinct rows over ``targets``, sorted; None if a table of more than ``cap`` rows would be needed for them.

    One pattern after the other is joined to a table of the variables bound so far, and a hidden variable is dropped
    after its last pattern.
    ``allowed`` gives, for some nodes, (E,) whether an entity is allowed there; other rows are dropped at once.
    """
    columns: dict[int, Int] = {}
    size = 1
    pending = list(dict.fromkeys(query.edges))
    while pending:
        edge = min(pending, key=lambda edge: _growth(adjacency, query, columns, edge))
        pending.remove(edge)
        joined = _join(adjacency, query, columns, size, edge, cap)
        if joined is None:
            return None
        columns, size = joined
        for node in (edge[0], edge[2]):
            if allowed is not None and node in allowed and node in columns:
                keep = allowed[node][columns[node]]
                columns, size = {other: column[keep] for other, column in columns.items()}, int(keep.sum())
        still = {node for s, _, o in pending for node in (s, o)}.union(targets)
        if not columns.keys() <= still:
            columns = {node: column for node, column in columns.items() if node in still}
            columns, size = _distinct(columns, size)
    for target in targets:
        if target not in columns:  # it has no pattern
            if size * adjacency.entity_count > cap:
                return None
            every = np.arange(adjacency.entity_count, dtype=np.int32)
            if allowed is not None and target in allowed:
                every = every[allowed[target]]
            columns = {node: np.repeat(column, len(every)) for node, column in columns.items()}
            columns[target] = np.tile(every, size)
            size *= len(every)
    columns, size = _distinct({target: columns[target] for target in targets}, size)
    return np.stack(list(columns.values()), axis=1) if targets else np.empty((size, 0), np.int32)


def _growth(adjacency: Adjacency, query: BoundQuery, columns: dict[int, Int], edge: Edge) -> float:
    """Estimated rows that one row of the table becomes when the edge is joined."""
    subject, relation, object_ = edge
    bound = [query.nodes[node] >= 0 or node in columns for node in (subject, object_)]
    if all(bound):
        return 0
    if not bound[0]:
        relation = adjacency.inverse[relation]
    low, high = adjacency.relation_offsets[relation : relation + 2]
    edges = adjacency.group_offsets[high] - adjacency.group_offsets[low]
    return edges / max(high - low, 1) if any(bound) else 1 + edges


def _join(
    adjacency: Adjacency, query: BoundQuery, columns: dict[int, Int], size: int, edge: Edge, cap: int
) -> tuple[dict[int, Int], int] | None:
    """The table with the edge joined to it, and its number of rows; None if there would be more than ``cap``."""
    subject, relation, object_ = edge
    source, target = (_column(query, columns, size, node) for node in (subject, object_))
    if source is None and target is not None:
        subject, relation, object_ = object_, int(adjacency.inverse[relation]), subject
        source, target = target, None
    low, high = adjacency.relation_offsets[relation : relation + 2]
    sources, starts = adjacency.group_sources[low:high], adjacency.group_offsets[low : high + 1]
    if source is None:
        # The relation's pairs beside every row.
        pairs = int(starts[-1] - starts[0])
        if size * pairs > cap:
            return None
        rows = np.repeat(np.arange(size), pairs)
        source = np.tile(np.repeat(sources, np.diff(starts)), size)
        neighbour = np.tile(adjacency.neighbours[starts[0] : starts[-1]], size)
    else:
        groups = np.minimum(np.searchsorted(sources, source), max(len(sources) - 1, 0))
        found = np.flatnonzero(sources[groups] == source) if len(sources) else np.empty(0, np.int64)
        lengths = starts[groups[found] + 1] - starts[groups[found]]
        # Where the other end is bound, too, these rows are only looked through, and no more stay than there were.
        if lengths.sum() > (cap if target is None else 4 * cap):
            return None
        rows = np.repeat(found, lengths)
        ends = np.cumsum(lengths)
        within = np.arange(len(rows)) - np.repeat(ends - lengths, lengths)
        neighbour = adjacency.neighbours[np.repeat(starts[groups[found]], lengths) + within]
        source = source[rows]
    if target is not None:
        keep = neighbour == target[rows]
    elif subject == object_:
        keep = neighbour == source
    else:
        keep = np.ones(len(rows), bool)
    rows, source, neighbour = rows[keep], source[keep], neighbour[keep]
    columns = {node: column[rows] for node, column in columns.items()}
    for node, column in ((subject, source), (object_, neighbour)):
        if query.nodes[node] < 0:
            columns[node] = column
    return columns, len(rows)


def _column(query: BoundQuery, columns: dict[int, Int], size: int, node: int) -> Int | None:
    """Values of the node in every row; None if it is not bound yet."""
    if query.nodes[node] >= 0:
        return np.full(size, query.nodes[node], np.int32)
    return columns.get(node)


def _distinct(columns: dict[int, Int], size: int) -> tuple[dict[int, Int], int]:
    """The table sorted by its columns, first one first, without doubles."""
    if not columns:
        return columns, min(size, 1)
    order = np.lexsort(list(columns.values())[::-1])
    columns = {node: column[order] for node, column in columns.items()}
    keep = np.zeros(size, bool)
    keep[:1] = True
    for column in columns.values():
        keep[1:] |= column[1:] != column[:-1]
    return {node: column[keep] for node, column in columns.items()}, int(keep.sum())
