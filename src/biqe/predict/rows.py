"""The rows of a question, from the first ranking to the output: one type all the way. And rows that are left out."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from biqe.predict.evidence import Evidence, IdLink

Entities = NDArray[np.int32]
Marginals = Callable[[], NDArray[np.float32]]
"""Makes the (T, E) log-probabilities of each target alone, once somebody wants them."""
MIXER = np.uint64(0x9E3779B97F4A7C15)
"""An odd number with bits all over: multiplying by it spreads what differs in a few bits."""


@dataclass(frozen=True)
class Against:
    """A part of the question that must not hold, as likely as it may hold for one row after all.

    ``FILTER NOT EXISTS { ?city :located_in :Germany }`` leaves out every row for which the graph holds the part. For
    all others the part may be missing in the graph and true. Its probability p is that of its best assignment, and the
    row's probability is multiplied by 1 - p.
    """

    links: tuple[IdLink, ...]
    """Its missing links, in its best assignment."""
    probability: float


def chance_of(against: Sequence[Against]) -> float:
    """How probable it is that none of them holds."""
    return math.prod(1.0 - each.probability for each in against)


@dataclass(frozen=True)
class Rows:
    """Rows in entity ids: first those that the graph holds, then predicted ones, the most probable first."""

    entities: Entities
    """(n, W) one column for each target of the query, in SELECT order. Where conditions name hidden variables, these
    have columns of their own behind the selected ones. A side of a UNION with fewer columns is filled up with -1."""
    probabilities: NDArray[np.float64]
    """(n,) 1 for a known row."""
    known_count: int = 0
    """The first so many rows are known."""
    scores: NDArray[np.float64] | None = None
    """(n,) the model's log-shares, by which it ranked the rows; None where a query was asked in pieces, or links have
    probabilities."""
    selected: int | None = None
    """Number of selected columns; None: all of them."""
    marginals: Marginals | None = None
    """Of the selected variables; None where no model was asked."""
    evidence: Sequence[Evidence | None] = ()
    """What each row rests on, None for known rows; empty where nobody has asked."""
    against: Sequence[tuple[Against, ...]] = ()
    """What counts against each row; empty where the question has no negated part."""
    link_probabilities: Mapping[IdLink, float] = field(default_factory=dict)
    """Of missing links whose two ends are entities."""
    sides: NDArray[np.int64] | None = None
    """(n,) side of the UNION that each row comes from; None where there is one side."""
    known_complete: bool = True
    """Whether every known row is there; false where they are too many, or LIMIT cut some off."""
    known_capped: bool = False
    """Whether known rows are missing because they are too many to be read, and not because of LIMIT."""
    note: str = ""
    """What a user has to know about how predicted rows were found, if anything."""

    @classmethod
    def empty(cls, columns: int, **fields: Any) -> Rows:
        """No rows."""
        return cls(np.zeros((0, columns), np.int32), np.zeros(0), **fields)

    @classmethod
    def scored(cls, entities: Entities, scores: NDArray[np.float64]) -> Rows:
        """Ranked rows with their log-shares. Rounding in single precision may carry these a little over 1."""
        return cls(entities, np.minimum(np.exp(scores), 1.0), scores=scores)

    def __len__(self) -> int:
        return len(self.entities)

    @property
    def known(self) -> Entities:
        """(k, T) selected entities of the known rows."""
        return self.entities[: self.known_count, : self.selected]

    @property
    def predicted(self) -> Entities:
        """(n - k, T) selected entities of the predicted rows."""
        return self.entities[self.known_count :, : self.selected]

    def take(self, places: NDArray[np.integer] | Sequence[int] | slice) -> Rows:
        """The rows at ascending or descending ``places``, as long as known rows stay before predicted ones."""
        chosen = np.arange(len(self))[places]
        return replace(
            self,
            entities=self.entities[chosen],
            probabilities=self.probabilities[chosen],
            known_count=int((chosen < self.known_count).sum()),
            scores=None if self.scores is None else self.scores[chosen],
            evidence=[self.evidence[place] for place in chosen.tolist()] if self.evidence else (),
            against=[self.against[place] for place in chosen.tolist()] if self.against else (),
            sides=None if self.sides is None else self.sides[chosen],
        )

    def possible(self) -> Rows:
        """The rows whose share is above 0."""
        assert self.scores is not None
        return self.take(np.flatnonzero(np.isfinite(self.scores)))

    def best(self, count: int) -> Rows:
        """Each row once, with its best probability; the ``count`` most probable, equal ones by their entities."""
        order = np.lexsort((*self.entities.T[::-1], -self.probabilities))
        _, first = np.unique(self.entities[order], axis=0, return_index=True)
        return self.take(order[np.sort(first)[:count]])


def stacked(parts: Sequence[Rows], marginals: Marginals | None = None) -> Rows:
    """Predicted rows of several questions of one query, one after the other, with their evidence where all rows have
    some, and their notes; without their shares."""
    evidence = [each for part in parts for each in part.evidence]
    rows = np.concatenate([part.entities for part in parts])
    return Rows(
        rows,
        np.concatenate([part.probabilities for part in parts]),
        marginals=marginals,
        evidence=evidence if len(evidence) == len(rows) else (),
        link_probabilities={link: chance for part in parts for link, chance in part.link_probabilities.items()},
        note=join_notes([part.note for part in parts]),
    )


def join_notes(notes: Sequence[str]) -> str:
    """Several notes as one text, each of them once."""
    return "; ".join(dict.fromkeys(filter(None, notes)))


# Rows that are left out


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


def all_different(rows: Entities) -> NDArray[np.bool_]:
    """(n,) which rows have no entity twice."""
    return (np.diff(np.sort(rows, axis=1), axis=1) != 0).all(axis=1)
