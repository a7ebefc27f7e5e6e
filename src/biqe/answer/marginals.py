"""What a model says about one variable alone, whatever the others are."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import cached_property
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from biqe.answer.combine import KNOWN, PREDICTED
from biqe.graph.vocabulary import Vocabulary

LISTED = 20
"""Entities that are listed for each variable, unless more are asked for."""


class Marginal(NamedTuple):
    """One entity as the value of one variable, whatever the others are."""

    name: str
    probability: float
    status: str
    """``known`` where a known row has it; else ``predicted``."""


class Distribution(Mapping[str, float]):
    """Probability of each entity as the value of one variable, by name, the most probable first.

    These are the model's shares: over all entities they add up to 1, but for those that a condition excludes. Empty
    where no model was asked.
    """

    def __init__(
        self, vocabulary: Vocabulary, scores: NDArray[np.float32] | None, known: Callable[[], NDArray[np.int32]]
    ) -> None:
        self._vocabulary = vocabulary
        self._scores = np.zeros(0, np.float32) if scores is None else scores
        self._known = known

    @cached_property
    def _order(self) -> NDArray[np.intp]:
        return np.argsort(-self._scores, kind="stable")

    def __getitem__(self, name: str) -> float:
        entity = self._vocabulary.entities.find(name)
        if entity is None or entity >= len(self._scores):
            raise KeyError(name)
        return float(np.exp(self._scores[entity]))

    def __iter__(self) -> Iterator[str]:
        return (self._vocabulary.entities[int(entity)] for entity in self._order)

    def __len__(self) -> int:
        return len(self._scores)

    def __repr__(self) -> str:
        shown = ", ".join(f"{entry.name!r}: {entry.probability:.3g}" for entry in self.best(5))
        return f"{{{shown}{', ...' if len(self) > 5 else ''}}}"

    def best(self, count: int = LISTED) -> list[Marginal]:
        """The ``count`` most probable entities, each with whether a known row has it."""
        if len(self) == 0:
            return []
        chosen = self._order[:count]
        statuses = np.where(np.isin(chosen, self._known()), KNOWN, PREDICTED).tolist()
        return [
            Marginal(self._vocabulary.entities[entity], float(np.exp(self._scores[entity])), status)
            for entity, status in zip(chosen.tolist(), statuses, strict=True)
        ]
