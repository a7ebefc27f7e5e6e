"""Neighbours by relation, both ways in one table: what the kernels of this room walk on.

Relation ids run over 2R here, so that an inverse is walked like any other relation. The triples stand sorted by
(relation, source, neighbour); a *group* is the run of one (relation, source). A relation's groups are one slice,
sorted by source, and all its neighbours are one slice too, so a step of a join stays within a few kilobytes.
"""

from __future__ import annotations

import weakref
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from biqe.graph.index import stable_order
from biqe.graph.knowledge_graph import Graph

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
