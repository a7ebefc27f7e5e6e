"""A graph with a few triples inserted or deleted: its sorted arrays are patched instead of sorted again.

A few binary searches find the positions of the changed triples, and copying an array around them is as fast as memory;
sorting it three times is not.
"""

from __future__ import annotations

from bisect import bisect_left
from typing import Any

import numpy as np
from numpy.typing import NDArray

from biqe.graph.index import Index, Int, Offsets
from biqe.graph.knowledge_graph import Graph
from biqe.graph.triples import Triples, as_triples, difference, union
from biqe.graph.vocabulary import Vocabulary

MANY = 2_000
"""Number of changed triples from which on everything is sorted again, which is then faster."""

Triple = tuple[int, int, int]


def place_of(triples: Triples, triple: Triple) -> int:
    """Position of a triple among sorted ones, or where it would be inserted."""
    return bisect_left(range(len(triples)), triple, key=lambda place: tuple(triples[place].tolist()))


def holds(triples: Triples, triple: Triple) -> bool:
    """Whether sorted triples contain this one."""
    place = place_of(triples, triple)
    return place < len(triples) and tuple(triples[place].tolist()) == triple


def patched(graph: Graph, vocabulary: Vocabulary, inserted: Triples, deleted: Triples) -> Graph:
    """``graph`` with ``inserted`` (all of them new) and without ``deleted`` (all of them present).

    ``vocabulary`` is the graph's own or an extension of it. If the graph has an index, so has the new one.
    """
    many = len(inserted) + len(deleted) >= MANY
    if many:
        triples = union(difference(graph.triples, deleted), inserted)
    else:
        inserted, deleted = as_triples(inserted), as_triples(deleted)
        triples = _patched_rows(graph.triples, inserted, deleted)
    found = Graph(vocabulary, triples)
    if "index" in graph.__dict__ and not many:
        found.__dict__["index"] = _patched_index(
            graph.index, inserted, deleted, len(vocabulary.entities), len(vocabulary.relations)
        )
    return found


def _patched_rows(triples: Triples, inserted: Triples, deleted: Triples) -> Triples:
    if len(deleted):
        triples = np.delete(triples, [place_of(triples, tuple(row)) for row in deleted.tolist()], axis=0)
    if len(inserted):
        triples = np.insert(triples, [place_of(triples, tuple(row)) for row in inserted.tolist()], inserted, axis=0)
    return triples


def _patched_index(index: Index, inserted: Triples, deleted: Triples, entities: int, relations: int) -> Index:
    orders: list[NDArray[Any]] = []
    for (offsets, first, second), columns, count in zip(
        (index[0:3], index[3:6], index[6:9]),
        ((0, 1, 2), (2, 1, 0), (1, 0, 2)),
        (entities, entities, relations),
        strict=True,
    ):
        order = _grown_offsets(offsets, count), first, second
        for rows, step in ((deleted, -1), (inserted, 1)):
            if len(rows):
                order = _patched_order(*order, rows[:, columns], step)
        orders += order
    return Index(*orders)


def _grown_offsets(offsets: Offsets, count: int) -> Offsets:
    more = count + 1 - len(offsets)
    return np.concatenate([offsets, np.full(more, offsets[-1])]) if more else offsets


def _patched_order(offsets: Offsets, first: Int, second: Int, rows: Triples, step: int) -> tuple[Offsets, Int, Int]:
    """One of the three orders of an index, with keys (slice, first, second) deleted (-1) or inserted (1)."""
    rows = rows[np.lexsort((rows[:, 2], rows[:, 1], rows[:, 0]))]
    places = [_place(offsets, first, second, row) for row in rows.tolist()]
    if step < 0:
        first, second = np.delete(first, places), np.delete(second, places)
    else:
        first, second = np.insert(first, places, rows[:, 1]), np.insert(second, places, rows[:, 2])
    counts: NDArray[np.int64] = np.bincount(rows[:, 0], minlength=len(offsets) - 1)
    offsets = offsets.copy()
    offsets[1:] += step * np.cumsum(counts)
    return offsets, first, second


def _place(offsets: Offsets, first: Int, second: Int, row: list[int]) -> int:
    start, stop = int(offsets[row[0]]), int(offsets[row[0] + 1])
    low, high = np.searchsorted(first[start:stop], [row[1], row[1] + 1]).tolist()
    return start + low + int(np.searchsorted(second[start + low : start + high], row[2]))
