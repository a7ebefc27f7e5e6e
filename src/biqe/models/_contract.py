"""What a model must be able to do, so that training, evaluation and asking never look inside it."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from biqe.query.bound import BoundQuery
from biqe.query.queryset import QuerySet


@dataclass(frozen=True)
class Paper:
    """Where a model comes from."""

    authors: str
    year: int
    title: str


@dataclass(frozen=True)
class Support:
    """Whether a model can answer a query, and if not, why not and what to do instead."""

    yes: bool
    reason: str = ""
    hint: str | None = None

    def __bool__(self) -> bool:
        return self.yes


@dataclass(frozen=True)
class Trace:
    """Scores together with what the model looked at on the way."""

    scores: torch.Tensor
    """(V, E) log-probabilities, the same as ``scores`` gives."""
    attention: tuple[torch.Tensor, ...]
    """One (B, H, T, T) tensor a layer: how much token i looks at token j."""
    batch: Any
    """The batch, whose tokens the attention is over."""


class Encoded(Protocol):
    """Queries in a model's own form, ready to be cut into batches."""

    sizes: NDArray[np.int64]
    """(Q,) what each query costs; queries of equal size make batches without padding."""

    def batch(self, rows: NDArray[np.integer]) -> Any:
        """The queries ``rows``, in this order, as one batch."""


class QueryModel(nn.Module, ABC):
    """A model that ranks all entities for each target of a query.

    A model file defines ``Config`` (frozen dataclass), a subclass of this, and ``MODEL``.
    """

    name: str
    paper: Paper
    config: Any
    entity_count: int
    relation_count: int

    @abstractmethod
    def supports(self, query: BoundQuery, *, strict: bool = True) -> Support:
        """Whether the model can answer ``query``. ``strict=False`` also lets through what it answers badly by
        construction, as published evaluations do."""

    @abstractmethod
    def encode(self, queries: QuerySet) -> Encoded:
        """Queries in the model's own form. Uses no weights."""

    def encoder(self, queries: QuerySet) -> Any:
        """All of ``queries`` as one batch."""
        return self.encode(queries).batch(np.arange(len(queries)))

    @abstractmethod
    def loss(self, batch: Any, *, label_smoothing: float = 0.0) -> torch.Tensor:
        """Mean loss over the targets of a batch whose gold entities are known."""

    @abstractmethod
    def scores(self, batch: Any) -> torch.Tensor:
        """(V, E) log-probabilities: a row for each target, in the order of the batch's queries and nodes."""

    @abstractmethod
    def trace(self, batch: Any) -> Trace:
        """Scores by the explicit road, with attention."""
