"""Ranked tuples, tuples that are left out of a ranking, and the simplest ranking: by the product of marginals."""

from __future__ import annotations

import heapq
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

Tuples = NDArray[np.int32]
TRIED = 100_000
"""Tuples that ``product`` looks at before it gives up finding more that are not excluded."""


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
    def _set(self) -> set[tuple[int, ...]]:
        return set(map(tuple, self._rows.tolist()))

    def holds(self, rows: Tuples) -> NDArray[np.bool_]:
        return np.array([tuple(row) in self._set for row in rows.tolist()], bool)

    def completing(self, filled: Tuples, column: int) -> list[NDArray[np.int32]]:
        others = np.arange(self._rows.shape[1]) != column
        stored = self._rows[:, others]
        return [self._rows[(stored == row[others]).all(axis=1), column] for row in filled]


def product(
    marginals: NDArray[np.float32], exclude: Tuples | Excluded, *, count: int, injective: bool = False
) -> Ranked:
    """The ``count`` best tuples under the product of the targets' own distributions, (T, E) log-probabilities,
    without those in ``exclude``; fewer where the first TRIED hold fewer."""
    excluded = Listed(exclude) if isinstance(exclude, np.ndarray) else exclude
    order = np.argsort(-marginals, axis=1, kind="stable").astype(np.int32)
    sorted_scores = np.take_along_axis(marginals, order, axis=1).astype(np.float64)
    columns = np.arange(len(order))
    found: list[NDArray[np.int64]] = []
    enough, tried = 0, 0
    ranks_of = _best_first(sorted_scores)
    while enough < count and tried < TRIED:
        block = np.array([ranks for _, ranks in zip(range(max(64, count)), ranks_of, strict=False)], np.int64)
        if len(block) == 0:
            break
        tried += len(block)
        values = order[columns, block]
        kept = ~excluded.holds(values)
        if injective:
            kept &= _all_different(values)
        found.append(block[kept])
        enough += int(kept.sum())
    ranks = np.concatenate([np.zeros((0, len(order)), np.int64), *found])[:count]
    return Ranked(order[columns, ranks], sorted_scores[columns, ranks].sum(axis=1))


def _best_first(sorted_scores: NDArray[np.float64]) -> Iterator[tuple[int, ...]]:
    """Places in the sorted columns, one for each column, the largest sum of scores first."""
    scores = [column.tolist() for column in sorted_scores]
    heap = [(-sum(column[0] for column in scores), (0,) * len(scores), 0)]
    while heap and heap[0][0] < np.inf:
        cost, ranks, first = heapq.heappop(heap)
        yield ranks
        # Only columns from the last one that moved on: so each place is reached along one way.
        for column in range(first, len(scores)):
            rank = ranks[column]
            # Entities that cannot be (-inf) make no tuple.
            if rank + 1 < len(scores[column]) and scores[column][rank + 1] > -np.inf:
                following = (*ranks[:column], rank + 1, *ranks[column + 1 :])
                heapq.heappush(heap, (cost + scores[column][rank] - scores[column][rank + 1], following, column))


def _all_different(rows: Tuples) -> NDArray[np.bool_]:
    return (np.diff(np.sort(rows, axis=1), axis=1) != 0).all(axis=1)
