"""What a model must be able to do, and what it may be able to do beside that.

A model file defines ``Config`` (a frozen dataclass), a subclass of ``QueryModel``, and ``MODEL``. Training, evaluation
and asking use the four methods of the contract, and look for the optional protocols below where they need more.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Protocol, TypeGuard, runtime_checkable

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from biqe.errors import InvalidOption, UnsupportedQuery
from biqe.graph.knowledge_graph import Graph
from biqe.links.beam import Tuples
from biqe.links.structures import TRAINING, Support, Targets, TargetTable, refuse_unknown
from biqe.models._device import device_of, on_device
from biqe.query.bound import BoundQuery, QuerySet

__all__ = ["TRAINING", "Support", "TargetTable", "Targets", "Tuples", "refuse_unknown"]  # of links, for model files


@dataclass(frozen=True)
class Paper:
    """Where a model comes from."""

    authors: str
    year: int
    title: str


class Encoded(Protocol):
    """Queries in a model's own form, ready to be cut into batches."""

    sizes: NDArray[np.int64]
    """(Q,) what each query costs; queries of equal size make batches without padding."""

    def batch(self, rows: NDArray[np.integer]) -> Any:
        """The queries ``rows``, in this order, as one batch. It has ``targets``."""


class QueryModel(nn.Module, ABC):
    """A model that ranks all entities for each target of a query."""

    name: str
    paper: Paper
    summary: ClassVar[str]
    """One line for ``biqe models``: what it is."""
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

    @abstractmethod
    def loss(self, batch: Any, *, label_smoothing: float = 0.0) -> torch.Tensor:
        """Mean loss over the targets of a batch whose gold entities are known."""

    @abstractmethod
    def scores(self, batch: Any) -> torch.Tensor:
        """(V, E) log-probabilities, up to a number that all entities of a row share: a row for each target, in the
        order of the batch's queries and nodes."""

    def encoder(self, queries: QuerySet) -> Any:
        """All of ``queries`` as one batch, where the model lives."""
        return on_device(self.encode(queries).batch(np.arange(len(queries))), device_of(self))


_RANGES: Mapping[str, Callable[[float], bool]] = {
    "at least 0": lambda value: value >= 0,
    "at least 1": lambda value: value >= 1,
    "above 0": lambda value: value > 0,
    "in [0, 1)": lambda value: 0 <= value < 1,
    "in [0, 1]": lambda value: 0 <= value <= 1,
}


def check_options(config: Any, allowed: Mapping[str, str | tuple[str, ...]]) -> None:
    """Refuse values of a model's ``Config`` that are not ``allowed``: by field, a range of numbers in words, or the
    words that it may be."""
    model = type(config).__module__.rpartition(".")[2]
    for name, rule in allowed.items():
        value = getattr(config, name)
        if not (_RANGES[rule](value) if isinstance(rule, str) else value in rule):
            words = rule if isinstance(rule, str) else " or ".join(rule)
            raise InvalidOption(f"{name!r} of {model} must be {words}. Got {value!r}")


# Optional: looked for by training.


class DescribesTraining(Protocol):
    """Class variables, each optional, by which a model differs from most in how it is trained. Read with ``getattr``
    and the default given here."""

    learns_from: ClassVar[str]
    """``queries`` (default): triples, paths and DAGs, or a benchmark's own. ``triples``: every triple in both
    directions, as link predictors do."""
    uses_answers: ClassVar[bool]
    """Whether ``loss`` learns from all answers of a target (``Targets.answers``), not gold alone. Default False."""
    uses_all_weights: ClassVar[bool]
    """Whether every batch gives every trained weight a gradient; if not, ranks look for the others. Default False."""
    train_defaults: ClassVar[Mapping[str, Any]]
    """Fields of TrainConfig that this model wants otherwise than most do. Default: none."""
    tables: ClassVar[Mapping[str, str]]
    """Weights with one row for each entity or relation, by name or pattern of names, and what the rows stand for:
    entities, relations, directions (relations, then their inverses), or mask and directions. They are extended when a
    run continues on a grown graph (_grown_graph.py). Default: none."""
    layers_in_bfloat16: ClassVar[bool]
    """Whether its layers may multiply in bfloat16 while it is trained. Default False."""
    draws_only_weights: ClassVar[bool]
    """True if the constructor only initialises weights, so that loading may skip that. Default False."""


@runtime_checkable
class CountsPredictions(Protocol):
    """A model whose ``loss`` is not a mean over targets but over ``predictions(batch)`` of them: what a batch counts
    beside those of other ranks."""

    def predictions(self, batch: Any) -> int:
        """How many predictions ``loss`` is the mean over."""


def predictions(model: QueryModel, batch: Any) -> int:
    """How many predictions the loss of ``batch`` is the mean over: its targets, unless the model says otherwise."""
    return model.predictions(batch) if isinstance(model, CountsPredictions) else len(batch.targets.gold)


class EntityLoss(Protocol):
    """The loss over the entities at V targets: over all of them, a sample of them, or split over ranks."""

    def __call__(
        self,
        hidden: torch.Tensor,  # (V, D)
        weight: torch.Tensor,  # (E, D)
        bias: torch.Tensor,  # (E,)
        offsets: torch.Tensor,  # (V+1,)
        answers: torch.Tensor,  # true entities of each target, one target after the other
        smoothing: float,
    ) -> torch.Tensor:
        """Mean cross-entropy."""


class HasEntityTable(Protocol):
    """A model whose softmax over entities can be sampled (_entity_loss.py) or split over ranks (_split_entities.py):
    entities have one table for input and output, and the loss over them is handed to the model."""

    embed_entities: nn.Embedding
    """(E, D)"""
    entity_bias: nn.Parameter
    """(E,)"""
    entity_loss: EntityLoss


def has_entity_table(model: object) -> TypeGuard[HasEntityTable]:
    """Whether ``model`` is a ``HasEntityTable``. Its weights are no attributes that isinstance could see."""
    return hasattr(model, "entity_loss")


ENTITY_ROWS = ("embed_entities.weight", "entity_bias")
"""Names of the weights of a ``HasEntityTable`` that have one row for each entity."""


@runtime_checkable
class ComparesWithSample(Protocol):
    """A model whose loss over single links can compare with a sample of the entities instead of all."""

    def compare_with_sample(self, negatives: int) -> None:
        """Compare with so many entities at each step from now on."""

    @property
    def sparse_weights(self) -> tuple[str, ...]:
        """Names of the weights whose gradients then hold only the rows that a step touched."""


@runtime_checkable
class StartsFromLinks(Protocol):
    """A model that begins with the weights of a trained link predictor."""

    @classmethod
    def options_from(cls, predictor: QueryModel) -> dict[str, Any]:
        """Options of this model that ``predictor`` decides; refused where it is no link predictor."""

    def start_from(self, predictor: QueryModel) -> None:
        """Take over what ``predictor`` has learnt, before training."""


# Optional: looked for by evaluation and asking.


@dataclass(frozen=True)
class Trace:
    """Scores together with the attention that led to them."""

    scores: torch.Tensor
    """(V, E) log-probabilities, the same as ``scores`` gives."""
    attention: tuple[torch.Tensor, ...]
    """One (B, H, T, T) tensor for each layer: how much token i looks at token j."""
    batch: Any
    """The batch, whose tokens the attention is over."""


@runtime_checkable
class HasAttention(Protocol):
    """A model that can show its attention over the tokens of a query."""

    def trace(self, batch: Any) -> Trace:
        """Scores with attention, computed without shortcuts."""


def trace(model: QueryModel, batch: Any) -> Trace:
    """Scores of ``batch`` with attention; refused where the model has none."""
    if isinstance(model, HasAttention):
        return model.trace(batch)
    raise UnsupportedQuery(f"{model.name} has no attention to show", hint="ask a biqe or hybrid model")


@runtime_checkable
class HasRawScores(Protocol):
    """A model that normalises a distance or a similarity over the entities, and can give it as it was before. Rows of
    a union are compared by it; other models compare them by ``scores``."""

    def raw_scores(self, batch: Any) -> torch.Tensor:
        """(V, E) scores that order entities as ``scores`` does."""


def raw_scores(model: QueryModel, batch: Any) -> torch.Tensor:
    """(V, E) scores by which rows of a union are compared."""
    return model.raw_scores(batch) if isinstance(model, HasRawScores) else model.scores(batch)


@runtime_checkable
class UsesGraph(Protocol):
    """A model whose answers depend on the links that a graph holds, beside what was learnt."""

    def use_graph(self, graph: Graph) -> None:
        """Links of ``graph`` are known from now on. Told once, before answering. Where missing links are to be
        predicted, this is the training graph, without those."""

    @property
    def looks_facts_up(self) -> bool:
        """Whether it matters for ``scores`` which links the graph holds, and not only how many."""


def use_graph(model: QueryModel, graph: Graph) -> None:
    """Tell a model which links are known, if its answers depend on that."""
    if isinstance(model, UsesGraph):
        model.use_graph(graph)


@runtime_checkable
class FindsTuples(Protocol):
    """A model that finds rows of several targets by itself."""

    def tuples(
        self, queries: QuerySet, count: int, marginals: torch.Tensor | None = None, width: int | None = None
    ) -> list[Tuples] | None:
        """The ``count`` best joint answers of each query; None where a query cannot be solved so.

        ``marginals`` are the (V, E) ``scores`` of the targets, where they are known already; entities that are
        impossible there stand in no tuple. At least ``width`` partial tuples are kept on the way."""


@runtime_checkable
class SolvesOtherwise(Protocol):
    """A model with options of how queries are solved, which shape no weight and can be changed after training."""

    solving_options: ClassVar[tuple[str, ...]]
    """Their names."""

    def solving(self, **options: Any) -> QueryModel:
        """A model with the same weights and other options."""


@runtime_checkable
class Searches(Protocol):
    """A model that searches while it answers. Runs are validated without that, which would take too long."""

    def without_search(self) -> QueryModel:
        """A model with the same weights that does not search."""
