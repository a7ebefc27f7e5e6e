"""Operations on many sorted sets of entities at once."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from biqe.query.queryset import AnswerSets


def sorted_sets(owner: NDArray[np.integer], values: NDArray[np.integer], count: int) -> AnswerSets:
    """``count`` sets from pairs of set and member, in any order, repeated or not."""
    keys = np.unique(np.asarray(owner, np.int64) << 32 | np.asarray(values, np.int64))
    offsets = np.zeros(count + 1, np.int64)
    np.cumsum(np.bincount(keys >> 32, minlength=count), out=offsets[1:])
    return AnswerSets(offsets, (keys & 0xFFFFFFFF).astype(np.int32))


def merge_rows(sets: AnswerSets, owner: NDArray[np.integer], count: int) -> AnswerSets:
    """The union of the sets of each of ``count`` owners."""
    if len(owner) == count and (owner == np.arange(count)).all():
        return sets
    return sorted_sets(np.repeat(owner, np.diff(sets.offsets)), sets.values, count)


def subtract(sets: AnswerSets, less: AnswerSets) -> AnswerSets:
    """Members of each set that are not in the other's set of the same place."""
    mine, theirs = (
        np.repeat(np.arange(len(some), dtype=np.int64), np.diff(some.offsets)) << 32 | some.values.astype(np.int64)
        for some in (sets, less)
    )
    left = np.ones(len(mine), bool)
    if len(theirs):
        places = np.searchsorted(theirs, mine)
        left = theirs[np.minimum(places, len(theirs) - 1)] != mine
    lengths = np.bincount(mine[left] >> 32, minlength=len(sets))
    offsets = np.zeros(len(sets) + 1, np.int64)
    np.cumsum(lengths, out=offsets[1:])
    return AnswerSets(offsets, sets.values[left])
