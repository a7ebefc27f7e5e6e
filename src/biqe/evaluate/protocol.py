"""What a protocol is: an object that says what is ranked, what is filtered, and how figures are averaged.

``evaluate`` (loop.py) is the one loop that runs any of them. It scores the queries and calls, in this order,

    select     which queries can be ranked, and why the others cannot
    measure    the ranks, or whatever the protocol compares, from the scores of one batch
    summarise  the figures of a report from the measurements of all batches

The protocols themselves are in protocols.py and bio.py.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar, Generic, TypeVar

import numpy as np
from numpy.typing import NDArray

from biqe.benchmarks.shaped import ShapedQueries
from biqe.evaluate.metrics import percentile_ends
from biqe.evaluate.missing_links import MissingLinks
from biqe.evaluate.ranks import TIE_RULES
from biqe.evaluate.scoring import Skipped
from biqe.query.bound import QuerySet

if TYPE_CHECKING:
    from biqe.models._contract import QueryModel

Asked = TypeVar("Asked", QuerySet, ShapedQueries)
Measurement = TypeVar("Measurement")


@dataclass(frozen=True)
class Bootstrap:
    """How confidence intervals are drawn."""

    draws: int = 1000
    """0 leaves the intervals out."""
    seed: int = 0
    level: float = 0.95


@dataclass(frozen=True)
class Summary:
    """Figures of one group of targets."""

    queries: int
    """Queries with at least one target in the group."""
    targets: int
    """What was ranked: targets in ``cq``, hard answers in ``q2b``; in ``bio``, the negatives compared with."""
    metrics: dict[str, dict[str, float]]
    """By tie rule, then by metric: ``metrics["realistic"]["mrr"]``."""
    intervals: dict[str, tuple[float, float]]
    """By metric, the confidence interval of the realistic figure; empty without a bootstrap."""

    @classmethod
    def of(
        cls,
        queries: int,
        targets: int,
        metrics: Sequence[str],
        means: Mapping[str, NDArray[np.float64]],
        ends: NDArray[np.float64] | None,
    ) -> Summary:
        """From (metrics,) means by tie rule and, where intervals were drawn, their (metrics, 2) ends."""
        intervals = {}
        if ends is not None:
            intervals = {name: (low, high) for name, (low, high) in zip(metrics, ends.tolist(), strict=True)}
        figures = {rule: dict(zip(metrics, means[rule].tolist(), strict=True)) for rule in TIE_RULES}
        return cls(queries, targets, figures, intervals)


@dataclass(frozen=True)
class Figures:
    """What a protocol reports; Report says what each group is."""

    overall: Summary
    counts: dict[str, int]
    macro: Summary | None = None
    by_position: dict[str, Summary] = field(default_factory=dict)
    by_kind: dict[str, Summary] = field(default_factory=dict)
    by_targets: dict[str, Summary] = field(default_factory=dict)
    by_shape: dict[str, Summary] = field(default_factory=dict)
    by_missing: dict[str, Summary] = field(default_factory=dict)
    mean_over: tuple[str, ...] = ()


class Protocol(ABC, Generic[Asked, Measurement]):
    """One way of measuring how good a model is. The docstring of each says how it averages."""

    name: ClassVar[str]
    version: ClassVar[int] = 1
    """Raised whenever the same model would get other figures."""
    reads: ClassVar[type[QuerySet] | type[ShapedQueries]]
    """The queries that it is for."""
    headline: ClassVar[str]
    """The metric to compare with published tables: it stands first in the report's table, with its interval."""
    ranked: ClassVar[str]
    """What the table counts: targets, answers or negatives."""
    filter_graph: str
    """Where the other true values of a target come from, as the report says it."""
    missing: MissingLinks | None = None
    """Where given, figures are told also by the number of missing links that an answer needs."""

    @abstractmethod
    def select(
        self, model: QueryModel, queries: Asked, *, strict: bool = False
    ) -> tuple[NDArray[np.int64], tuple[Skipped, ...]]:
        """Numbers of the queries that can be ranked, and the others by reason. Refuses queries of another graph and
        queries that lack what the protocol needs."""

    @abstractmethod
    def measure(self, queries: Asked, numbers: NDArray[np.int64], scores: NDArray[np.floating]) -> Measurement:
        """What (n, E) scores say about the targets or questions ``numbers``. ``scores`` must not be changed."""

    @abstractmethod
    def summarise(
        self, queries: Asked, asked: NDArray[np.int64], measured: Sequence[Measurement], bootstrap: Bootstrap
    ) -> Figures:
        """Figures over all measurements of the queries ``asked``."""


def mean_of_shapes(
    by_shape: Mapping[str, Summary],
    mean_over: Sequence[str],
    drawn: Mapping[str, NDArray[np.float64]],
    level: float,
) -> Summary:
    """The mean over some shapes, each with the same weight; ``drawn`` holds the (draws, metrics) of each, if any."""
    metrics = list(by_shape[mean_over[0]].metrics["realistic"])
    means: dict[str, Any] = {
        rule: np.array([np.mean([by_shape[name].metrics[rule][metric] for name in mean_over]) for metric in metrics])
        for rule in TIE_RULES
    }
    ends = None
    if drawn:
        ends = percentile_ends(np.mean([drawn[name] for name in mean_over], axis=0), means["realistic"], level)
    queries = sum(by_shape[name].queries for name in mean_over)
    targets = sum(by_shape[name].targets for name in mean_over)
    return Summary.of(queries, targets, metrics, means, ends)
