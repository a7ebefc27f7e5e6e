"""Neighbours of an entity, both ways, in plain arrays that numba kernels can read.

Triples stand sorted three ways: by (subject, relation, object), by (object, relation, subject) and by
(relation, subject, object). An entity's edges are one slice, its edges of one relation a sub-slice found
by binary search. Memory is 24 bytes a triple, whatever the number of relations.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

Int = NDArray[np.int32]
Offsets = NDArray[np.int64]


class Index(NamedTuple):
    """Three sorted views of one set of triples. A NamedTuple, so that numba takes it as it is."""

    out_offsets: Offsets
    """(E+1,) slice of each subject in ``out_relations`` and ``out_objects``."""
    out_relations: Int
    out_objects: Int
    in_offsets: Offsets
    """(E+1,) slice of each object in ``in_relations`` and ``in_subjects``."""
    in_relations: Int
    in_subjects: Int
    relation_offsets: Offsets
    """(R+1,) slice of each relation in ``relation_subjects`` and ``relation_objects``."""
    relation_subjects: Int
    relation_objects: Int


def build_index(triples: Int, entities: int, relations: int) -> Index:
    """Index of ``triples``, (n, 3) ids free of duplicates; sorted ones, as a Graph has them, are indexed faster."""
    subject, relation, object_ = (np.ascontiguousarray(triples[:, column]) for column in range(3))
    if not _is_sorted(subject, relation, object_):
        order = np.lexsort((object_, relation, subject))
        subject, relation, object_ = subject[order], relation[order], object_[order]
    # From (subject, relation, object) one stable sort leads to (relation, subject, object), and from there one more to
    # (object, relation, subject): a third of the work of sorting each time by three keys.
    by_relation = stable_order(relation)
    relation_subjects, relation_objects = _column(subject, by_relation), _column(object_, by_relation)
    into = by_relation[stable_order(relation_objects)]
    return Index(
        _offsets(subject, entities),
        _column(relation),
        _column(object_),
        _offsets(object_, entities),
        _column(relation, into),
        _column(subject, into),
        _offsets(relation, relations),
        relation_subjects,
        relation_objects,
    )


def stable_order(ids: Int) -> NDArray[np.intp]:
    """The stable argsort of ``ids``, none of which is negative.

    numpy sorts 16-bit integers by radix, in linear time, so ids are sorted by their lower, then by their upper half.
    """
    by_lower = np.argsort((ids & 0xFFFF).astype(np.uint16), kind="stable")
    if len(ids) == 0 or ids.max() <= 0xFFFF:
        return by_lower
    upper = (ids >> 16).astype(np.uint16)
    return by_lower[np.argsort(upper[by_lower], kind="stable")]


def _is_sorted(subject: Int, relation: Int, object_: Int) -> bool:
    later = subject[1:] > subject[:-1]
    level = subject[1:] == subject[:-1]
    later |= level & (relation[1:] > relation[:-1])
    level &= relation[1:] == relation[:-1]
    later |= level & (object_[1:] > object_[:-1])
    return bool(later.all())


def _offsets(keys: Int, count: int) -> Offsets:
    offsets = np.zeros(count + 1, np.int64)
    np.cumsum(np.bincount(keys, minlength=count), out=offsets[1:])
    return offsets


def _column(values: Int, order: NDArray[np.intp] | None = None) -> Int:
    return np.ascontiguousarray(values if order is None else values[order], np.int32)
