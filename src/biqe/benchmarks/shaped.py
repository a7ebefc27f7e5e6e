"""Questions of a benchmark with one target each, grouped by shape, with their answers.

A question is a disjunction of conjunctive queries: one row for most shapes, two for the unions 2u and up, which
are answered by the better of their rows (disjunctive normal form, as Query2Box does).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from biqe.errors import InvalidOption
from biqe.query.queryset import AnswerSets, QuerySet


@dataclass(frozen=True)
class ShapedQueries:
    """N questions over R conjunctive rows."""

    rows: QuerySet
    """(R) conjunctive queries with one target each; the rows of a question stand together."""
    owner: NDArray[np.int64]
    """(R,) the question that each row belongs to; not falling."""
    shapes: tuple[str, ...]
    """Names of the shapes, in the order of the benchmark's table."""
    shape: NDArray[np.int8]
    """(N,) index into ``shapes``."""
    answers: AnswerSets | None = None
    """(N) all answers of each question in the graph up to its split; None where they are computed when needed."""
    hard: AnswerSets | None = None
    """(N) those of them that the graph before that split does not give."""
    negatives: AnswerSets | None = None
    """(N) sampled entities of the answer's type that are no answers; for protocol ``bio``."""
    hard_negatives: AnswerSets | None = None
    """(N) likewise, such as fulfil a part of the question; empty where it is no intersection."""

    def __post_init__(self) -> None:
        if len(self.owner) != len(self.rows):
            raise InvalidOption(f"{len(self.rows):,} rows need as many owners. Got {len(self.owner):,}")
        for name in ("answers", "hard", "negatives", "hard_negatives"):
            sets = getattr(self, name)
            if sets is not None and len(sets) != len(self.shape):
                raise InvalidOption(f"{len(self.shape):,} questions need as many sets of {name}. Got {len(sets):,}")

    def __len__(self) -> int:
        return len(self.shape)

    def take(self, questions: NDArray[np.integer]) -> ShapedQueries:
        """These questions, in this order."""
        numbers: NDArray[np.int64] = np.asarray(questions, np.int64)
        starts = np.searchsorted(self.owner, numbers)
        stops = np.searchsorted(self.owner, numbers, side="right")
        counts = stops - starts
        first = np.cumsum(counts) - counts
        rows = np.repeat(starts - first, counts) + np.arange(int(counts.sum()))

        def sets(of: AnswerSets | None) -> AnswerSets | None:
            return None if of is None else of.take(numbers)

        return ShapedQueries(
            self.rows.take(rows),
            np.repeat(np.arange(len(numbers)), counts),
            self.shapes,
            self.shape[numbers],
            sets(self.answers),
            sets(self.hard),
            sets(self.negatives),
            sets(self.hard_negatives),
        )

    def of_shape(self, name: str) -> ShapedQueries:
        """The questions of one shape."""
        if name not in self.shapes:
            raise InvalidOption(f"there is no shape {name!r}; there are {', '.join(self.shapes)}")
        return self.take(np.flatnonzero(self.shape == self.shapes.index(name)))
