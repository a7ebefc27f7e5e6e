"""Ranked tuples, tuples that are left out of a ranking, and the simplest ranking: by the product of marginals."""

from __future__ import annotations

import heapq
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from biqe.answer.top import Descent

Tuples = NDArray[np.int32]
TRIED = 100_000
"""Tuples that ``product`` looks at before it gives up finding more that are not excluded."""

MIXER = np.uint64(0x9E3779B97F4A7C15)
"""An odd number with bits all over: multiplying by it spreads what differs in a few bits."""


@dataclass(frozen=True)
class Ranked:
    """Tuples, most probable first."""

    tuples: Tuples
    """(n, targets) entity ids, in SELECT order."""
    log_probabilities: NDArray[np.float64]
    """(n,)"""


class Excluded(Protocol):
    """Tuples that are not to be found: known ones, say."""

    def holds(self, rows: Tuples) -> NDArray[np.bool_]:
        """(n,) whether each of the tuples is excluded."""

    def completing(self, filled: Tuples, column: int) -> Sequence[NDArray[np.int32]]:
        """For each row, the values of ``column`` that would make an excluded tuple of it."""


class Listed:
    """Excluded tuples that are all at hand."""

    def __init__(self, rows: Tuples) -> None:
        self._rows = rows

    @cached_property
    def _sorted(self) -> tuple[NDArray[np.uint64], NDArray[np.int64]]:
        """Keys of the tuples, ascending, and the tuple of each."""
        keys = _keys(self._rows)
        order = np.argsort(keys)
        return keys[order], order

    def holds(self, rows: Tuples) -> NDArray[np.bool_]:
        if len(self._rows) == 0 or len(rows) == 0:
            return np.zeros(len(rows), bool)
        keys, order = self._sorted
        wanted = _keys(rows)
        first, last = np.searchsorted(keys, wanted), np.searchsorted(keys, wanted, "right")
        held = (self._rows[order[np.minimum(first, len(keys) - 1)]] == rows).all(axis=1) & (first < last)
        for row in np.flatnonzero((last - first > 1) & ~held):  # two tuples of one key
            held[row] = (self._rows[order[first[row] : last[row]]] == rows[row]).all(axis=1).any()
        return held

    def completing(self, filled: Tuples, column: int) -> list[NDArray[np.int32]]:
        others = np.arange(self._rows.shape[1]) != column
        stored = self._rows[:, others]
        return [self._rows[(stored == row[others]).all(axis=1), column] for row in filled]


def _keys(rows: Tuples) -> NDArray[np.uint64]:
    """(n,) a number for each tuple, such that different tuples hardly ever have the same."""
    keys = np.zeros(len(rows), np.uint64)
    for column in rows.T:
        keys = (keys ^ column.astype(np.uint64)) * MIXER
        keys ^= keys >> np.uint64(29)
    return keys


def product(
    marginals: NDArray[np.float32], exclude: Tuples | Excluded, *, count: int, injective: bool = False
) -> Ranked:
    """The ``count`` best tuples under the product of the targets' own distributions, (T, E) log-probabilities,
    without those in ``exclude``; fewer where the first TRIED hold fewer."""
    excluded = Listed(exclude) if isinstance(exclude, np.ndarray) else exclude
    columns = [Descent(row) for row in marginals]
    found: list[Tuples] = []
    scores: list[NDArray[np.float64]] = []
    enough, tried = 0, 0
    ranks_of = _best_first(columns)
    while enough < count and tried < TRIED:
        block = np.array([ranks for _, ranks in zip(range(max(64, count)), ranks_of, strict=False)], np.int64)
        if len(block) == 0:
            break
        tried += len(block)
        pairs = list(zip(columns, block.T, strict=True))
        values = np.stack([column.entities[ranks] for column, ranks in pairs], axis=1)
        kept = ~excluded.holds(values)
        if injective:
            kept &= all_different(values)
        found.append(values[kept])
        each = np.stack([np.array(column.scores)[ranks[kept]] for column, ranks in pairs], axis=1)
        scores.append(each.sum(axis=1))
        enough += int(kept.sum())
    rows = np.concatenate([np.zeros((0, len(columns)), np.int32), *found])[:count]
    return Ranked(rows, np.concatenate([np.zeros(0), *scores])[:count])


def _best_first(columns: Sequence[Descent]) -> Iterator[tuple[int, ...]]:
    """Ranks, one for each column, the largest sum of scores first."""
    if not all(column.reaches(0) for column in columns):
        return
    heap = [(-sum(column.scores[0] for column in columns), (0,) * len(columns), 0)]
    while heap and heap[0][0] < np.inf:
        cost, ranks, first = heapq.heappop(heap)
        yield ranks
        # Only columns from the last one that moved on: so each place is reached along one way.
        for number in range(first, len(columns)):
            column, rank = columns[number], ranks[number]
            # Entities that cannot be (-inf) make no tuple.
            if column.reaches(rank + 1) and column.scores[rank + 1] > -np.inf:
                following = (*ranks[:number], rank + 1, *ranks[number + 1 :])
                heapq.heappush(heap, (cost + column.scores[rank] - column.scores[rank + 1], following, number))


def all_different(rows: Tuples) -> NDArray[np.bool_]:
    """(n,) which tuples have no entity twice."""
    return (np.diff(np.sort(rows, axis=1), axis=1) != 0).all(axis=1)
