"""Rows by the product of their targets' own distributions: the yardstick for other ways, and the way where a model
cannot predict targets together."""

from __future__ import annotations

import heapq
from collections.abc import Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from biqe.predict.rows import Entities, Excluded, Rows, all_different

TRIED = 100_000
"""Rows that ``product`` looks at before it gives up finding more that are not excluded."""
BLOCK = 1 << 16
"""Scores that ``top`` looks at together."""
FIRST = 256
"""Entities that a ``Descent`` sorts at first; each time it needs more, eight times as many."""


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
