"""The best entities of a row of scores, found block by block; nothing as large as the row is sorted or copied."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

BLOCK = 1 << 16
"""Scores that are looked at together."""
_FIRST = 256
"""Entities that a ``Descent`` sorts before it is asked for more; each time it needs more, eight times as many."""


def top(scores: NDArray[np.floating], count: int) -> NDArray[np.int32]:
    """Places of the ``count`` largest of (E,) scores, the largest first; of equal ones, the first."""
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
            self.entities = top(self._all, min(len(self._all), max(_FIRST, 8 * rank)))
            self.scores = self._all[self.entities].astype(np.float64).tolist()
        return rank < len(self.scores)
