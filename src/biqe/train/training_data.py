"""Query sets and benchmarks that a run trains and validates on, and how it validates. No test triple is used here."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from biqe.benchmarks.shaped import ShapedQueries
from biqe.errors import UnknownName
from biqe.evaluate.loop import evaluate
from biqe.evaluate.protocols import Cq, protocol_named
from biqe.evaluate.report import Report
from biqe.exact.answers import answer_sets
from biqe.graph.knowledge_graph import Graph, Splits
from biqe.graph.triples import union
from biqe.mine import folder as set_folder
from biqe.mine.dataset import MineConfig, mine_split
from biqe.models._contract import QueryModel, Searches
from biqe.query.queryset import QuerySet
from biqe.train.config import TrainConfig
from biqe.train.queries import triple_queries

ANSWERED = 100
"""Validation queries that ways of answering are compared on at the end of a run."""
FEWEST_DAGS = 50
"""With fewer validation DAGs, the validation triples themselves are a steadier measure."""


@dataclass(frozen=True)
class TrainingData:
    """Queries that a run trains and validates on, beside those that it mines from the graph."""

    train: QuerySet | ShapedQueries | None
    """Training queries; None if there are validation queries only."""
    valid: QuerySet | ShapedQueries | None
    protocol: str
    record: dict[str, Any]
    """Where the queries come from, for run.json."""
    candidates: NDArray[np.integer] | None = None
    """Entities that the benchmark ranks; None for all."""

    @cached_property
    def fingerprint(self) -> str:
        """Sixteen hex digits, the same for the same training and validation queries."""
        digest = hashlib.sha256()
        for part in (self.train, self.valid):
            queries = part.rows if isinstance(part, ShapedQueries) else part
            for column in () if queries is None else (queries.nodes, queries.edges, queries.gold):
                digest.update(np.ascontiguousarray(column).data)
        return digest.hexdigest()[:16]


def open_training_data(
    query_set: str | os.PathLike[str], splits: Splits, data: str | os.PathLike[str] | None = None
) -> TrainingData:
    """Queries of a benchmark by its name, with files in ``data``, or of a mined set by its folder. A folder with the
    name of a benchmark is given as ``./NAME``."""
    from biqe import benchmarks

    folder, is_benchmark = Path(query_set), isinstance(query_set, str) and query_set in benchmarks.names()
    if is_benchmark:
        opened = benchmarks.open(str(query_set), data=None if data is None else Path(data), splits=splits)
        record: dict[str, Any] = {
            "benchmark": opened.name,
            "data": None if data is None else str(Path(data).resolve()),
            "fingerprint": opened.fingerprint,
        }
        candidates = getattr(opened, "candidates", None)
        return TrainingData(opened.train_queries(), opened.queries("valid"), opened.protocol, record, candidates)
    if folder.is_dir():
        mined = set_folder.load(folder, splits)
        record = {"path": str(folder.resolve()), "recipe": mined.config.recipe, "seed": mined.config.seed}
        return TrainingData(mined.queries.get("train"), mined.queries.get("valid"), "cq", record)
    raise UnknownName(
        f"{query_set} is neither the folder of a query set nor a benchmark",
        hint="see the benchmarks with: biqe benchmarks; make a set with: biqe mine",
    )


@dataclass(frozen=True)
class Validation:
    """How a run is validated."""

    measure: Callable[[QueryModel], dict[str, float]] | None
    """Metrics of a model; the first one chooses the best model. None if there is nothing to validate on."""
    queries: int = 0
    """Number of validation queries."""
    measure_answers: Callable[[QueryModel], dict[str, float]] | None = None
    """Metrics of a model as it answers, search included, on ANSWERED of the queries."""


def validation(splits: Splits, data: TrainingData | None, config: TrainConfig) -> Validation:
    """How a run with these splits, data and settings is validated."""
    given = None if data is None else data.valid
    if data is not None and isinstance(given, ShapedQueries):
        return _of_benchmark(given, data, config)
    assert not isinstance(given, ShapedQueries)
    queries = validation_queries(splits, given, config)
    if queries is None:
        return Validation(None)

    def measure(model: QueryModel) -> dict[str, float]:
        return _metrics(evaluate(_without_search(model), queries, Cq("complete"), bootstrap=0))

    few = queries.take(np.arange(min(len(queries), ANSWERED)))

    def measure_answers(model: QueryModel) -> dict[str, float]:
        return _metrics(evaluate(model, few, Cq("complete"), bootstrap=0))

    return Validation(measure, len(queries), measure_answers)


def _of_benchmark(questions: ShapedQueries, data: TrainingData, config: TrainConfig) -> Validation:
    """Validation by the protocol of a benchmark, on equally many questions of each conjunctive shape."""
    rng = np.random.default_rng([config.seed, 2])
    # Unions are answered by answering their parts, so they need no validation of their own.
    shapes = [code for code, name in enumerate(questions.shapes) if name not in ("2u", "up")]
    share = max(1, config.validation_queries // len(shapes))
    taken = []
    for code in shapes:
        members = np.flatnonzero(questions.shape == code)
        taken.append(rng.choice(members, min(share, len(members)), replace=False))
    sample = questions.take(np.sort(np.concatenate(taken)))

    protocol = protocol_named(data.protocol, candidates=data.candidates)

    def measure(model: QueryModel) -> dict[str, float]:
        return _metrics(evaluate(_without_search(model), sample, protocol, bootstrap=0))

    few = sample.take(np.sort(rng.choice(len(sample), min(len(sample), ANSWERED), replace=False)))

    def measure_answers(model: QueryModel) -> dict[str, float]:
        return _metrics(evaluate(model, few, protocol, bootstrap=0))

    return Validation(measure, len(sample), measure_answers)


def _without_search(model: QueryModel) -> QueryModel:
    """The model as runs are validated: a search over links would take too long."""
    return model.without_search() if isinstance(model, Searches) else model


def _metrics(report: Report) -> dict[str, float]:
    return {name: round(value, 6) for name, value in report.metrics["realistic"].items()}


def validation_queries(splits: Splits, given: QuerySet | None, config: TrainConfig) -> QuerySet | None:
    """Validation queries drawn once by seed: those of a set (``given``), or else DAGs mined from the validation split,
    or its triples if it is too small for DAGs; None if it is empty. Answers are filtered by train and valid."""
    rng = np.random.default_rng([config.seed, 2])
    if given is not None and len(given):
        found = given
    elif len(splits.valid) == 0:
        return None
    else:
        found = mine_split(splits, "valid", MineConfig(seed=config.seed, eval_dags=config.validation_queries))
        if len(found) < FEWEST_DAGS:
            found = triple_queries(splits["valid"], rng)
    if len(found) > config.validation_queries:
        found = found.take(np.sort(rng.choice(len(found), config.validation_queries, replace=False)))
    # The filters of a set know the test triples, and choosing a model must not. These know train and valid only.
    seen = Graph(splits.vocabulary, union(splits.train, splits.valid))
    found = replace(found, filters={})
    return found.with_filters(complete=answer_sets(seen, found))
