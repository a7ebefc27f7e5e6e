"""Rows that are left out of a ranking, and the simplest ranking: by the product of marginals."""

from __future__ import annotations

import heapq
from collections.abc import Iterator, Sequence
from functools import cached_property
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from biqe.predict.rows import Entities, Rows

TRIED = 100_000
"""Rows that ``product`` looks at before it gives up finding more that are not excluded."""
MIXER = np.uint64(0x9E3779B97F4A7C15)
"""An odd number with bits all over: multiplying by it spreads what differs in a few bits."""
BLOCK = 1 << 16
"""Scores that ``top`` looks at together."""
FIRST = 256
"""Entities that a ``Descent`` sorts at first; each time it needs more, eight times as many."""


class Excluded(Protocol):
    """Rows that are not to be found: known ones, say."""

    def holds(self, rows: Entities) -> NDArray[np.bool_]:
        """(n,) whether each of the rows is excluded."""

    def completing(self, filled: Entities, column: int) -> Sequence[NDArray[np.int32]]:
        """For each row, the values of ``column`` that would make an excluded row of it."""


class Listed:
    """Excluded rows that are all at hand."""

    def __init__(self, rows: Entities) -> None:
        self._rows = rows

    @cached_property
    def _sorted(self) -> tuple[NDArray[np.uint64], NDArray[np.int64]]:
        """Keys of the rows, ascending, and the row of each."""
        keys = _keys(self._rows)
        order = np.argsort(keys)
        return keys[order], order

    def holds(self, rows: Entities) -> NDArray[np.bool_]:
        if len(self._rows) == 0 or len(rows) == 0:
            return np.zeros(len(rows), bool)
        keys, order = self._sorted
        wanted = _keys(rows)
        first, last = np.searchsorted(keys, wanted), np.searchsorted(keys, wanted, "right")
        held = (self._rows[order[np.minimum(first, len(keys) - 1)]] == rows).all(axis=1) & (first < last)
        for row in np.flatnonzero((last - first > 1) & ~held):  # two rows with the same key
            held[row] = (self._rows[order[first[row] : last[row]]] == rows[row]).all(axis=1).any()
        return held

    def completing(self, filled: Entities, column: int) -> list[NDArray[np.int32]]:
        others = np.arange(self._rows.shape[1]) != column
        stored = self._rows[:, others]
        return [self._rows[(stored == row[others]).all(axis=1), column] for row in filled]


def _keys(rows: Entities) -> NDArray[np.uint64]:
    """(n,) a number for each row, such that different rows hardly ever have the same."""
    keys = np.zeros(len(rows), np.uint64)
    for column in rows.T:
        keys = (keys ^ column.astype(np.uint64)) * MIXER
        keys ^= keys >> np.uint64(29)
    return keys


def product(marginals: NDArray[np.float32], excluded: Excluded, *, count: int, injective: bool = False) -> Rows:
    """The ``count`` best rows under the product of the targets' own distributions, (T, E) log-probabilities; fewer
    where the first TRIED hold fewer that are not excluded."""
    columns = [Descent(row) for row in marginals]
    found: list[Entities] = []
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
    return Rows.scored(rows, np.concatenate([np.zeros(0), *scores])[:count])


def _best_first(columns: Sequence[Descent]) -> Iterator[tuple[int, ...]]:
    """Ranks, one for each column, the largest sum of scores first."""
    if not all(column.reaches(0) for column in columns):
        return
    heap = [(-sum(column.scores[0] for column in columns), (0,) * len(columns), 0)]
    while heap and heap[0][0] < np.inf:
        cost, ranks, first = heapq.heappop(heap)
        yield ranks
        # Only columns from the last one that moved on: so each combination is reached along one way.
        for number in range(first, len(columns)):
            column, rank = columns[number], ranks[number]
            # Impossible entities (-inf) make no row.
            if column.reaches(rank + 1) and column.scores[rank + 1] > -np.inf:
                following = (*ranks[:number], rank + 1, *ranks[number + 1 :])
                heapq.heappush(heap, (cost + column.scores[rank] - column.scores[rank + 1], following, number))


def all_different(rows: Entities) -> NDArray[np.bool_]:
    """(n,) which rows have no entity twice."""
    return (np.diff(np.sort(rows, axis=1), axis=1) != 0).all(axis=1)


class Descent:
    """A row of scores from its best entity downwards, sorted no further than somebody has looked."""

    def __init__(self, scores: NDArray[np.floating]) -> None:
        self._all = scores
        self.entities = np.zeros(0, np.int32)
        """Best first, as far as they were sorted."""
        self.scores: list[float] = []
        """Of these."""

    def reaches(self, rank: int) -> bool:
        """Whether there is an entity of this rank, from 0; sorts as far as needed to have it."""
        if rank >= len(self.scores) and len(self.scores) < len(self._all):
            self.entities = top(self._all, min(len(self._all), max(FIRST, 8 * rank)))
            self.scores = self._all[self.entities].astype(np.float64).tolist()
        return rank < len(self.scores)


def top(scores: NDArray[np.floating], count: int) -> NDArray[np.int32]:
    """Places of the ``count`` largest of (E,) scores, the largest first; of equal ones, the first. Found block by
    block, so that nothing as large as the scores is sorted or copied."""
    places, values = np.zeros(0, np.int64), scores[:0]
    floor = -np.inf
    for start in range(0, len(scores), BLOCK):
        block = scores[start : start + BLOCK]
        # What equals the floor comes later than all that made it, and loses to them.
        inside = np.flatnonzero(block > floor) if len(places) >= count else np.arange(len(block))
        places, values = np.concatenate([places, inside + start]), np.concatenate([values, block[inside]])
        if len(places) > count:
            kept = _largest(values, count)
            places, values = places[kept], values[kept]
            floor = values.min(initial=np.inf)
    return places[np.argsort(-values, kind="stable")].astype(np.int32)


def _largest(values: NDArray[np.floating], count: int) -> NDArray[np.int64]:
    """Places of the ``count`` largest, in order of place; of equal ones, the first."""
    if count == 0:
        return np.zeros(0, np.int64)
    least = np.partition(values, len(values) - count)[len(values) - count]
    above = np.flatnonzero(values > least)
    level = np.flatnonzero(values == least)[: count - len(above)]
    return np.sort(np.concatenate([above, level]))
