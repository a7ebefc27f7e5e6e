"""Targets of a batch of queries, and whether a query can be answered: what every model needs first."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray

from biqe.errors import UnsupportedQuery
from biqe.query.bound import QuerySet, members

TRAINING = "train"
"""Name of the filters (``QuerySet.filters``) that hold all answers in the training graph."""


@dataclass(frozen=True)
class Support:
    """Whether a model can answer a query, and if not, why not and what to do instead."""

    yes: bool
    reason: str = ""
    hint: str | None = None

    def __bool__(self) -> bool:
        return self.yes


@dataclass(frozen=True)
class Targets:
    """What is to be predicted in a batch: V targets, in the order of its queries and their nodes."""

    gold: torch.Tensor
    """(V,) one true entity of each; -1 where none is known."""
    offsets: torch.Tensor | None
    """(V+1,) slices of ``answers``; None where only the gold entities are known."""
    answers: torch.Tensor | None
    """All entities that answer each target in the training graph, sorted within its slice."""

    def known_answers(self, model: str) -> tuple[torch.Tensor, torch.Tensor]:
        """Offsets and entities of all answers, or of the gold entities alone; refused where a gold entity is missing.
        ``model`` is the name that the refusal gives."""
        if self.offsets is not None and self.answers is not None:
            return self.offsets, self.answers
        refuse_unknown(self.gold >= 0, model)
        return torch.arange(len(self.gold) + 1, device=self.gold.device), self.gold

    def with_answers(self, model: str) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """(v,) the targets with a known answer, and offsets and entities of their answers; refused where there is no
        such target."""
        if self.offsets is None or self.answers is None:
            known = torch.nonzero(self.gold >= 0).squeeze(1)
            refuse_unknown(self.gold >= 0, model, every=False)
            return known, torch.arange(len(known) + 1, device=known.device), self.gold[known]
        has_answers = self.offsets.diff() > 0
        refuse_unknown(has_answers, model, every=False)
        known = torch.nonzero(has_answers).squeeze(1)
        return known, torch.cat([self.offsets[:1], self.offsets[known + 1]]), self.answers


class TargetTable:
    """Targets of a query set, cut into batches as its queries are. Every model's ``Encoded`` can use one."""

    def __init__(self, queries: QuerySet) -> None:
        self.offsets = queries.target_offsets
        """(Q+1,) slice of each query's targets."""
        self._gold = queries.gold[queries.target_nodes]
        self._answers = queries.filters.get(TRAINING)

    def batch(self, rows: NDArray[np.integer]) -> Targets:
        """Targets of the queries ``rows``, in this order."""
        rows = np.asarray(rows, np.int64)
        _, numbers = members(self.offsets, rows)
        gold = torch.from_numpy(self._gold[numbers].astype(np.int64))
        if self._answers is None:
            return Targets(gold, None, None)
        taken = self._answers.take(numbers)
        return Targets(gold, torch.from_numpy(taken.offsets), torch.from_numpy(taken.values.astype(np.int64)))

    def first(self, rows: NDArray[np.integer]) -> tuple[NDArray[np.int64], int]:
        """(B,) the number in the batch of each query's first target, and the number of all targets of the batch."""
        counts = self.offsets[rows + 1] - self.offsets[rows]
        return np.cumsum(counts) - counts, int(counts.sum())


def refuse_unknown(known: torch.Tensor, model: str, *, every: bool = True) -> None:
    """Refuse a batch that ``model`` cannot learn from. (V,) ``known`` says which targets have a known true entity:
    all of them must, or, without ``every``, at least one of them."""
    if known.all() or (not every and known.any()):  # an empty batch is let through
        return
    raise UnsupportedQuery(
        f"{model} learns from targets with a true entity, and {int((~known).sum()):,} of the {len(known):,} targets of "
        "this batch have none (gold is -1)",
        hint=f"give them gold entities, or attach all answers as the filters {TRAINING!r}",
    )
