"""Ranks of the gold entities among all entities, filtered, under three tie rules.

A rank is 1 for the best. Other true values of a target are taken out before ranking (the filtered setting of
Bordes et al. 2013, which the paper follows); the gold entity itself never is. Where the gold ties with other
entities, the optimistic rank puts it first among its equals, the pessimistic rank last, and the realistic
rank is the mean of the two: what a random order of the equals gives on average.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields

import numpy as np
import torch
from numpy.typing import NDArray

from biqe.errors import InvalidOption
from biqe.evaluate.scoring import as_array, check_numbers
from biqe.query.bound import AnswerSets

TIE_RULES = ("realistic", "optimistic", "pessimistic")

CHUNK_BYTES = 8 << 20
"""Size of the comparison of one chunk of rows with its golds: small enough to stay in cache."""


@dataclass(frozen=True)
class Ranks:
    """Ranks of V targets, one array a tie rule. ``realistic`` may be a half."""

    optimistic: NDArray[np.int64]
    realistic: NDArray[np.float64]
    pessimistic: NDArray[np.int64]
    candidates: NDArray[np.int64]
    """Entities that each gold was ranked among, itself included: all entities less the filtered ones."""

    def __len__(self) -> int:
        return len(self.optimistic)

    def by(self, tie_rule: str) -> NDArray[np.int64] | NDArray[np.float64]:
        """The ranks under one of TIE_RULES."""
        if tie_rule not in TIE_RULES:
            raise InvalidOption(f"tie rule must be one of {', '.join(TIE_RULES)}. Got {tie_rule!r}")
        return getattr(self, tie_rule)

    def take(self, targets: NDArray[np.integer]) -> Ranks:
        """The ranks of these targets, in this order."""
        return Ranks(*(getattr(self, field.name)[targets] for field in fields(self)))

    @classmethod
    def join(cls, parts: Sequence[Ranks]) -> Ranks:
        """The ranks of all parts, part after part."""
        if not parts:
            none = np.zeros(0, np.int64)
            return cls(none, none.astype(np.float64), none, none)
        return cls(*(np.concatenate([getattr(part, field.name) for part in parts]) for field in fields(cls)))


def rank_targets(
    scores: torch.Tensor | NDArray[np.floating], gold: NDArray[np.integer], filters: AnswerSets | None = None
) -> Ranks:
    """Rank of each gold entity in its row of scores, higher scores first.

    ``scores`` is (V, E). ``filters`` holds for each row the entities to leave out, sorted and distinct; the
    gold may be among them and stays in. No filters ranks against all entities. Scores that are NaN are
    refused: they compare as neither larger nor smaller, so they would count as a win. The memory used beyond
    ``scores`` does not grow with V*E.

    >>> scores = torch.tensor([[0.9, 0.5, 0.5, 0.1]])
    >>> without_entity_0 = AnswerSets(np.array([0, 2]), np.array([0, 2], np.int32))
    >>> ranks = rank_targets(scores, np.array([2]), without_entity_0)
    >>> ranks.optimistic.item(), ranks.realistic.item(), ranks.pessimistic.item(), ranks.candidates.item()
    (1, 1.5, 2, 3)
    """
    scores = torch.as_tensor(scores).detach()
    if scores.ndim != 2:
        raise InvalidOption(f"scores must have shape (targets, entities). Got {tuple(scores.shape)}")
    rows, entities = scores.shape
    gold = np.asarray(gold, np.int64)
    if gold.shape != (rows,):
        raise InvalidOption(f"gold must hold one entity id for each of {rows:,} rows of scores. Got shape {gold.shape}")
    if rows and not (0 <= gold.min() and gold.max() < entities):
        raise InvalidOption(f"gold ids must be in [0, {entities}). Got {gold.min()} to {gold.max()}")
    if filters is None:
        filters = AnswerSets(np.zeros(rows + 1, np.int64), np.zeros(0, np.int32))
    _check_filters(filters, rows, entities)

    better = np.zeros(rows, np.int64)
    equal = np.zeros(rows, np.int64)
    removed = np.zeros(rows, np.int64)
    step = max(1, min(rows, CHUNK_BYTES // max(1, entities)))
    buffer = np.empty((step, entities), bool)
    for start in range(0, rows, step):
        stop = min(start + step, rows)
        size = stop - start
        # numpy from here on: torch counts a boolean row ten times as slowly.
        part = as_array(scores[start:stop])  # (rows, E)
        check_numbers(part, start)
        gold_scores = part[np.arange(size), gold[start:stop]]
        above = _count_rows(np.greater(part, gold_scores[:, None], out=buffer[:size]))
        at_least = _count_rows(np.greater_equal(part, gold_scores[:, None], out=buffer[:size]))

        # What the filtered entities contributed to these two counts is taken away again.
        owner = np.repeat(np.arange(size), np.diff(filters.offsets[start : stop + 1]))
        values = filters.values[filters.offsets[start] : filters.offsets[stop]]
        others = values != gold[start:stop][owner]
        owner, values = owner[others], values[others]
        filtered, against = part[owner, values], gold_scores[owner]
        better[start:stop] = above - np.bincount(owner[filtered > against], minlength=size)
        at_least -= np.bincount(owner[filtered >= against], minlength=size)
        equal[start:stop] = at_least - better[start:stop]
        removed[start:stop] = np.bincount(owner, minlength=size)

    optimistic = better + 1
    pessimistic = better + equal  # the gold is one of its own equals
    return Ranks(optimistic, (optimistic + pessimistic) / 2, pessimistic, entities - removed)


def rank_answers(
    scores: NDArray[np.floating], answers: AnswerSets, hard: AnswerSets, excluded: NDArray[np.bool_] | None = None
) -> Ranks:
    """Ranks of the hard answers, question after question, among the entities that are neither answers nor excluded.

    ``scores`` is (questions, E); ``excluded`` is (E,). Equal to ranking each hard answer alone with ``rank_targets``
    and all other answers as its filter. But every hard answer of a question is ranked among the same entities, so one
    sorted list of those serves all: a binary search each, however many there are.
    """
    check_numbers(scores)
    scores = np.array(scores)  # overwritten below
    rows, entities = scores.shape
    hard_owner = np.repeat(np.arange(rows), np.diff(hard.offsets))
    wanted = scores[hard_owner, hard.values]
    scores[np.repeat(np.arange(rows), np.diff(answers.offsets)), answers.values] = np.nan
    scores[hard_owner, hard.values] = np.nan
    if excluded is not None:
        scores[:, excluded] = np.nan
    others = entities - np.count_nonzero(np.isnan(scores), axis=1)
    scores.sort(axis=1)  # NaN goes last

    better = np.empty(len(wanted), np.int64)
    equal = np.empty(len(wanted), np.int64)
    offsets = hard.offsets - hard.offsets[0]
    for row, count in enumerate(others.tolist()):
        own = slice(offsets[row], offsets[row + 1])
        rivals = scores[row, :count]
        below_or_equal = np.searchsorted(rivals, wanted[own], "right")
        better[own] = count - below_or_equal
        equal[own] = below_or_equal - np.searchsorted(rivals, wanted[own], "left")
    optimistic, pessimistic = better + 1, better + equal + 1
    return Ranks(optimistic, (optimistic + pessimistic) / 2, pessimistic, others[hard_owner] + 1)


def _count_rows(mask: NDArray[np.bool_]) -> NDArray[np.int64]:
    # Row by row: count_nonzero with an axis is slower.
    return np.fromiter(map(np.count_nonzero, mask), np.int64, len(mask))


def _check_filters(filters: AnswerSets, rows: int, entities: int) -> None:
    if len(filters) != rows:
        raise InvalidOption(f"filters must hold one set for each of {rows:,} rows of scores. Got {len(filters):,}")
    values = filters.values[filters.offsets[0] : filters.offsets[-1]]
    if len(values) == 0:
        return
    if values.min() < 0 or values.max() >= entities:
        raise InvalidOption(f"filter values must be in [0, {entities}). Got {values.min()} to {values.max()}")
    rising = values[1:] > values[:-1]
    # A fall is allowed only where one set ends and the next begins.
    borders = filters.offsets[1:-1] - filters.offsets[0]
    rising[borders[(borders > 0) & (borders < len(values))] - 1] = True
    if not rising.all():
        raise InvalidOption("each filter set must be sorted and free of repeats")
