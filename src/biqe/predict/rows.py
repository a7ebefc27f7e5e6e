"""The rows of a question, from the first ranking to the output: one type all the way."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from biqe.predict.evidence import Evidence, IdLink

Entities = NDArray[np.int32]


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
    """(n,) the model's log-shares before calibration; None where a query was asked in pieces."""
    selected: int | None = None
    """Number of selected columns; None: all of them."""
    marginals: NDArray[np.float32] | None = None
    """(T, E) log-probabilities of each selected variable alone; None where no model was asked."""
    evidence: Sequence[Evidence | None] = ()
    """What each row rests on, None for known rows; empty where nobody has asked."""
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
        """Ranked rows with their log-shares; these are their probabilities unless a calibration says otherwise."""
        return cls(entities, np.exp(scores), scores=scores)

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
            sides=None if self.sides is None else self.sides[chosen],
        )

    def best(self, count: int) -> Rows:
        """Each row once, with its best probability; the ``count`` most probable, equal ones by their entities."""
        order = np.lexsort((*self.entities.T[::-1], -self.probabilities))
        _, first = np.unique(self.entities[order], axis=0, return_index=True)
        return self.take(order[np.sort(first)[:count]])


def stacked(parts: Sequence[Rows], marginals: NDArray[np.float32] | None = None) -> Rows:
    """Predicted rows of several questions, one after the other, with their notes; without their shares."""
    return Rows(
        np.concatenate([part.entities for part in parts]),
        np.concatenate([part.probabilities for part in parts]),
        marginals=marginals,
        note=join_notes([part.note for part in parts]),
    )


def join_notes(notes: Sequence[str]) -> str:
    """Several notes as one text, each of them once."""
    return "; ".join(dict.fromkeys(filter(None, notes)))
