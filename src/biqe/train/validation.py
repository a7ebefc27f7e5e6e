"""How a run is validated while it trains. Nothing here knows a test triple.

A graph without a validation split, and no set beside it, leaves nothing to validate on: such a run keeps its last
weights.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np

from biqe.benchmarks.shaped import ShapedQueries
from biqe.evaluate.loop import evaluate, evaluate_bio, evaluate_q2b
from biqe.exact.answers import answer_sets
from biqe.graph.knowledge_graph import Graph, Splits
from biqe.graph.triples import union
from biqe.mine.dataset import MineConfig, mine_split
from biqe.models._contract import QueryModel, Searches
from biqe.query.queryset import QuerySet
from biqe.train.config import TrainConfig
from biqe.train.material import Material
from biqe.train.queries import triple_queries

Validate = Callable[[QueryModel], dict[str, float]]
"""Figures of a model, the one that chooses the best model first."""

NOT_VALIDATED = (
    "the graph has no validation split, so this run keeps its last weights instead of its best, and -O patience has no "
    "effect; to validate, import the graph with --split 0.05,0.05, or name a set with --set"
)

FEWEST_DAGS = 50
"""Below so many validation DAGs, the validation triples themselves are a steadier measure."""


def validation(splits: Splits, material: Material | None, config: TrainConfig) -> tuple[Validate | None, int]:
    """How the run is validated, and on how many queries; None and 0 where there is nothing to validate on."""
    given = None if material is None else material.valid
    if material is not None and isinstance(given, ShapedQueries):
        asked = _share_of_shapes(given, config)
        by_negatives = material.protocol == "bio"
        names = ("auc", "apr") if by_negatives else ("mrr", "hits@1", "hits@3", "hits@10")

        def of_questions(trained: QueryModel) -> dict[str, float]:
            if by_negatives:
                report = evaluate_bio(_quick(trained), asked, bootstrap=0)
            else:
                report = evaluate_q2b(_quick(trained), asked, candidates=material.candidates, bootstrap=0)
            return {name: round(report.value(name), 6) for name in names}

        return of_questions, len(asked)
    assert not isinstance(given, ShapedQueries)
    held_out = validation_queries(splits, given, config)
    if held_out is None:
        return None, 0

    def of_targets(trained: QueryModel) -> dict[str, float]:
        report = evaluate(_quick(trained), held_out, filter_graph="complete", bootstrap=0)
        return {name: round(report.value(name), 6) for name in ("mrr", "hits@1", "hits@3", "hits@10")}

    return of_targets, len(held_out)


def _share_of_shapes(questions: ShapedQueries, config: TrainConfig) -> ShapedQueries:
    """As many questions of each conjunctive shape, drawn once by seed; unions follow from their parts."""
    rng = np.random.default_rng([config.seed, 2])
    kept = [code for code, name in enumerate(questions.shapes) if name not in ("2u", "up")]
    share = max(1, config.validation_queries // len(kept))
    taken = []
    for code in kept:
        members = np.flatnonzero(questions.shape == code)
        taken.append(rng.choice(members, min(share, len(members)), replace=False))
    return questions.take(np.sort(np.concatenate(taken)))


def validation_queries(splits: Splits, given: QuerySet | None, config: TrainConfig) -> QuerySet | None:
    """What a run on triples, paths and DAGs is validated on: the set's validation queries, or DAGs mined from the
    validation split, or, where it is too small for those, its triples; drawn once by seed; None where it
    has none. Filters come from train and valid."""
    rng = np.random.default_rng([config.seed, 2])
    if given is not None and len(given):
        found = given
    else:
        if len(splits.valid) == 0:
            return None
        found = mine_split(splits, "valid", MineConfig(seed=config.seed, eval_dags=config.validation_queries))
        if len(found) < FEWEST_DAGS:
            found = triple_queries(splits["valid"], rng)
    if len(found) > config.validation_queries:
        found = found.take(np.sort(rng.choice(len(found), config.validation_queries, replace=False)))
    # A set's own filters know the test triples; choosing a model must not. These know train and valid only.
    seen = Graph(splits.vocabulary, union(splits.train, splits.valid))
    found = replace(found, filters={})
    return found.with_filters(complete=answer_sets(seen, found))


def _quick(trained: QueryModel) -> QueryModel:
    """The model as runs are validated: without a search over links, which would take too long."""
    return trained.without_search() if isinstance(trained, Searches) else trained
