"""What a model must be able to do, so that training, evaluation and asking never look inside it."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from biqe.errors import InvalidOption, UnsupportedQuery
from biqe.graph.knowledge_graph import Graph
from biqe.query.bound import BoundQuery
from biqe.query.queryset import QuerySet, members

TRAINING = "train"
"""The name under which training queries carry the answers that the training graph holds (``QuerySet.filters``)."""


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
class Targets:
    """What is to be predicted in a batch: V targets, in the order of its queries and their nodes."""

    gold: torch.Tensor
    """(V,) one true entity of each; -1 where none is known."""
    offsets: torch.Tensor | None
    """(V+1,) slices of ``answers``; None where only the gold entities are known."""
    answers: torch.Tensor | None
    """All entities that answer each target in the training graph, sorted within its slice."""


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


def refuse_unknown(known: torch.Tensor, name: str, *, every: bool = True) -> None:
    """UnsupportedQuery where ``loss`` of the model ``name`` has nothing to learn from: (V,) ``known`` says of which
    targets a true entity is known. ``every``: it must be for all of them; else for one, and the others do not count."""
    if known.all() or (not every and known.any()):  # all of none, too
        return
    raise UnsupportedQuery(
        f"{name} learns from targets with a true entity, and {int((~known).sum()):,} of the {len(known):,} targets of "
        "this batch have none (gold is -1)",
        hint=f"give them gold entities, or attach all answers as the filters {TRAINING!r}",
    )


@dataclass(frozen=True)
class Tuples:
    """Joint answers of one query: k rows over its targets, best first."""

    rows: NDArray[np.int32]
    """(k, targets) entities, in the order of the query's nodes."""
    scores: NDArray[np.float64]
    """(k,) natural logarithms, up to a constant of the query."""


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
    summary: ClassVar[str]
    """One line for ``biqe models``: what it is."""
    learns_from: ClassVar[str] = "queries"
    """``queries``: triples, paths and DAGs, or a benchmark's own; ``triples``: it is a link predictor, and learns
    from every triple in both directions."""
    uses_answers: ClassVar[bool] = False
    """Whether ``loss`` learns from all answers that a target carries (``Targets.answers``), not from gold alone."""
    draws_only_weights: ClassVar[bool] = False
    """Whether making one computes nothing but weights, so that a model to be loaded can be made without computing."""
    can_sample: ClassVar[bool] = False
    """Whether ``loss`` can do with a sample of the entities; see ``sample_softmax``."""
    uses_all_weights: ClassVar[bool] = False
    """Whether every batch gives every weight that is learnt a gradient; where not, ranks look for those without."""
    entity_rows: ClassVar[tuple[str, ...]] = ()
    """Names of the weights with one row an entity that can be split over ranks; see ``split_entities``."""
    tables: ClassVar[Mapping[str, str]] = {}
    """Weights with one row for each entity or relation, by name (or pattern of names), and what their rows stand for:
    entities, relations, directions (relations, then their inverses), or [MASK] and directions. See _warm_start.py."""
    train_defaults: ClassVar[Mapping[str, Any]] = {}
    """Fields of TrainConfig that this model wants otherwise than most do."""
    solving_options: ClassVar[tuple[str, ...]] = ()
    """Options of how queries are solved: they can be changed after training (``solving``), and shape no weight."""
    links_first: ClassVar[Mapping[str, Any]] = {}
    """Options of this model in a run that trains a link predictor for it first; empty where it cannot use one."""
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

    def predictions(self, batch: Any) -> int:
        """How many predictions ``loss`` is the mean over: what a batch counts beside those of other ranks."""
        return len(batch.targets.gold)

    @property
    def row_weights(self) -> tuple[str, ...]:
        """Names of the weights whose gradients are sparse: they hold only the rows that a batch touched."""
        return ()

    @abstractmethod
    def scores(self, batch: Any) -> torch.Tensor:
        """(V, E) log-probabilities, up to a number that all entities of a row share: a row for each target, in the
        order of the batch's queries and nodes."""

    def raw_scores(self, batch: Any) -> torch.Tensor:
        """(V, E) scores that order entities as ``scores`` does and that rows of a union are compared by. Models that
        normalise a distance or a similarity over the entities give it here as it was before."""
        return self.scores(batch)

    def trace(self, batch: Any) -> Trace:
        """Scores by the explicit road, with attention. Models without attention refuse."""
        raise UnsupportedQuery(f"{self.name} has no attention to show", hint="ask a biqe model")

    def renamed(self, tensors: Mapping[str, torch.Tensor]) -> dict[str, torch.Tensor]:
        """Weights, or averages or moments of weights, that an earlier version saved, under the names of this one."""
        return dict(tensors)

    @classmethod
    def options_from(cls, predictor: QueryModel) -> dict[str, Any]:
        """Options of this model that make room for ``predictor``, where it can start from one."""
        return {}

    def start_from(self, predictor: QueryModel) -> None:
        """Take over what ``predictor`` has learnt, before training. Models that cannot refuse."""
        raise InvalidOption(f"{self.name} cannot start from another model's weights", hint="leave out --start-from")

    def sample_softmax(self, graph: Graph, negatives: int) -> None:
        """From now on, ``loss`` compares with about ``negatives`` entities a batch instead of all; ``graph`` says how
        often each occurs. Models without a softmax over entities refuse."""
        raise InvalidOption(
            f"{self.name} has no softmax over entities that could be sampled", hint="leave out --softmax"
        )

    def split_entities(self, rows: Any) -> None:
        """Keep only ``rows`` of the weights named in ``entity_rows``; from now on ``loss`` is that of the targets of
        all ranks, and gives gradients of this rank's targets and rows (see _sharded.py)."""
        raise InvalidOption(
            f"the entities of {self.name} cannot be split over ranks", hint="leave out --shard-entities"
        )

    def solving(self, **options: Any) -> QueryModel:
        """The same weights with other options of how queries are solved, where a model has such options."""
        raise InvalidOption(f"{self.name} has no options that can be changed after training. Got {', '.join(options)}")

    def without_search(self) -> QueryModel:
        """The same weights without what is costly to ask and changes nothing that is learnt: as runs are validated."""
        return self

    @property
    def looks_at_graph(self) -> bool:
        """Whether answers depend on the graph of ``use_graph``, beside what was learnt."""
        return False

    @property
    def looks_facts_up(self) -> bool:
        """Whether it matters for ``scores`` which facts that graph holds, and not merely how many."""
        return False

    def use_graph(self, graph: Graph) -> None:
        """Told once, before answering, which triples are known. Models that use only what they learnt ignore it."""

    @property
    def finds_tuples(self) -> bool:
        """Whether rows of several targets are best found by ``tuples``."""
        return False

    def tuples(
        self, queries: QuerySet, count: int, marginals: torch.Tensor | None = None, width: int | None = None
    ) -> list[Tuples] | None:
        """Joint answers of each query where the model ranks tuples by itself; None where it ranks targets only.

        ``marginals`` are what ``scores`` says of the targets, where that is known already; entities that it holds
        impossible stand in no tuple. ``width`` partial tuples, at least, are kept on the way."""
        return None
