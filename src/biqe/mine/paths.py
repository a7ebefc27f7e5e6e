"""Walks as path queries: the source is given, every entity after it is asked for.

Paper: section "Datasets": "predicting all entities except the source entity in paths".
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from biqe.mine.walks import Walks
from biqe.query.bound import TARGET
from biqe.query.queryset import KINDS, ROLES, QuerySet

_NONE, _TAIL, _BRANCH = ROLES.index("none"), ROLES.index("tail"), ROLES.index("branch")


def path_queries(walks: Walks) -> QuerySet:
    """One query a walk: nodes in the order of the walk, node 0 the source, the last one the tail.

    A path has no intersection, so the targets before the tail have role ``branch``.
    """
    column = np.arange(walks.entities.shape[1])
    lengths = walks.lengths[:, None]
    is_node = column <= lengths
    is_edge = column[:-1] < lengths
    gold = walks.entities[is_node]
    place = np.broadcast_to(column, is_node.shape)[is_node]
    last = np.repeat(walks.lengths, walks.lengths + 1)
    step = np.broadcast_to(column[:-1], is_edge.shape)[is_edge]
    return QuerySet(
        offsets(walks.lengths + 1),
        np.where(place == 0, gold, TARGET).astype(np.int32),
        gold,
        np.where(place == 0, _NONE, np.where(place == last, _TAIL, _BRANCH)).astype(np.int8),
        offsets(walks.lengths),
        np.stack([step, walks.relations[is_edge], step + 1], axis=1).astype(np.int32),
        np.full(len(walks), KINDS.index("path"), np.int8),
    )


def offsets(lengths: NDArray[np.integer]) -> NDArray[np.int64]:
    """(n+1,) where slices of these lengths begin and end."""
    result = np.zeros(len(lengths) + 1, np.int64)
    np.cumsum(lengths, out=result[1:])
    return result
