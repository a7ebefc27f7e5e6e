"""Accuracy on queries that a model was trained on, beside accuracy on queries that it never saw.

The paper promises this experiment and does not give it. A large gap says that the model has learnt its training
queries by heart; a small one, that what it learnt carries over. Both samples go through the same protocol.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from biqe.benchmarks.shaped import ShapedQueries
from biqe.errors import InvalidOption
from biqe.evaluate.loop import evaluate, evaluate_q2b
from biqe.evaluate.report import Report, plain
from biqe.evaluate.sample import sample
from biqe.evaluate.scoring import Progress
from biqe.query.queryset import QuerySet

if TYPE_CHECKING:
    from biqe.models._contract import QueryModel


@dataclass(frozen=True)
class Memorisation:
    """Two reports of one model and the difference of their headline figures."""

    train: Report
    valid: Report
    gap: dict[str, float]
    """By metric, training less validation (ties realistic)."""

    def to_json(self) -> dict[str, Any]:
        """Dicts, lists, strings and numbers only."""
        return {
            "format": "biqe-analysis",
            "analysis": "memorisation",
            "train": self.train.to_json(),
            "valid": self.valid.to_json(),
            "gap": plain(self.gap),
        }


def memorisation(
    model: QueryModel,
    train: QuerySet | ShapedQueries,
    valid: QuerySet | ShapedQueries,
    *,
    limit: int = 1000,
    seed: int = 0,
    train_filter_graph: str = "complete",
    filter_graph: str = "complete",
    bootstrap: int = 1000,
    progress: Progress | None = None,
) -> Memorisation:
    """Figures on a sample of training queries and on one of validation queries, ``limit`` a shape or kind.

    Query sets go through protocol ``cq``, each with its own filters; shaped questions through ``q2b``. All answers
    of a training question are in the training graph, so none is hard: where the set names no hard answers, all of
    its answers are ranked, each with the others filtered out.
    """
    if isinstance(train, ShapedQueries) != isinstance(valid, ShapedQueries):
        raise InvalidOption("training and validation queries must be of one kind: two query sets, or two shaped sets")
    reports = {}
    for name, queries, filters in (("train", train, train_filter_graph), ("valid", valid, filter_graph)):
        part = sample(queries, limit, seed)
        options: dict[str, Any] = {"bootstrap": bootstrap, "seed": seed, "progress": progress}
        options["notes"] = {"split": name, "limit": limit}
        if isinstance(part, ShapedQueries):
            if part.hard is None:
                part = replace(part, hard=part.answers)
            reports[name] = evaluate_q2b(model, part, **options)
        else:
            reports[name] = evaluate(model, part, filter_graph=filters, **options)
    seen, unseen = reports["train"], reports["valid"]
    gap = {metric: value - unseen.value(metric) for metric, value in seen.metrics["realistic"].items()}
    return Memorisation(seen, unseen, gap)
