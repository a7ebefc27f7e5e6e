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

from biqe.benchmarks.anycq import TupleQuestions
from biqe.benchmarks.shaped import ShapedQueries
from biqe.errors import InvalidOption, UnknownName, VocabularyMismatch
from biqe.evaluate.loop import evaluate
from biqe.evaluate.protocol import Protocol
from biqe.evaluate.protocols import Cq, protocol_named
from biqe.evaluate.report import Report
from biqe.exact.answers import answer_sets
from biqe.graph.knowledge_graph import Graph, Splits
from biqe.graph.triples import union
from biqe.mine import folder as set_folder
from biqe.mine.dataset import MineConfig, mine_split
from biqe.models._contract import QueryModel, Searches
from biqe.query.bound import QuerySet
from biqe.training.config import TrainConfig
from biqe.training.queries import both_directions, triple_queries

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
        if opened.protocol in ("betae", "qar"):
            raise InvalidOption(
                f"{opened.name} has no queries to learn from here; it is for biqe evaluate",
                hint=f"train on its graph without --set: biqe benchmarks {opened.name} --graph FOLDER writes it",
            )
        record: dict[str, Any] = {
            "benchmark": opened.name,
            "data": None if data is None else str(Path(data).resolve()),
            "fingerprint": opened.fingerprint,
        }
        candidates = getattr(opened, "candidates", None)
        train, valid = opened.train_queries(), opened.queries("valid")
        assert not isinstance(train, TupleQuestions) and not isinstance(valid, TupleQuestions)
        return TrainingData(train, valid, opened.protocol, record, candidates)
    if folder.is_dir():
        mined = set_folder.load(folder, splits)
        record = {"path": str(folder.resolve()), "recipe": mined.config.recipe, "seed": mined.config.seed}
        return TrainingData(mined.queries.get("train"), mined.queries.get("valid"), "cq", record)
    raise UnknownName(
        f"{query_set} is neither the folder of a query set nor a benchmark",
        hint="see the benchmarks with: biqe benchmarks; make a set with: biqe mine",
    )


def open_recorded_data(record: dict[str, Any] | None, splits: Splits, run: Path) -> TrainingData | None:
    """The queries that a run began with, by what run.json says of them; VocabularyMismatch if they have changed."""
    if record is None:
        return None
    name = record.get("benchmark") or record["path"]
    data = open_training_data(name, splits, record.get("data"))
    if record["queries"] != data.fingerprint:
        raise VocabularyMismatch(
            f"the query set {name} is not the one that {run} was trained on "
            f"(fingerprints {data.fingerprint} and {record['queries']})",
            hint="a run belongs to the set it began with; start a new run for a changed set",
        )
    return data


@dataclass(frozen=True)
class Validation:
    """How a run is validated."""

    measure: Callable[[QueryModel], dict[str, float]] | None
    """Metrics of a model; the first one chooses the best model. None if there is nothing to validate on."""
    asked: QuerySet | ShapedQueries | None = None
    """The validation queries."""
    protocol: Protocol[Any, Any] = Cq("complete")  # noqa: RUF009 - immutable
    """How their answers are ranked."""

    @property
    def queries(self) -> int:
        """Number of validation queries."""
        return 0 if self.asked is None else len(self.asked)


def validation(splits: Splits, data: TrainingData | None, config: TrainConfig, *, by_links: bool = False) -> Validation:
    """How a run with these splits, data and settings is validated; ``by_links``: on single links in both directions,
    as suits a model that learns from triples alone."""
    given = None if data is None or by_links else data.valid
    if data is not None and isinstance(given, ShapedQueries):
        return _of_benchmark(given, data, config)
    assert not isinstance(given, ShapedQueries)
    queries = validation_queries(splits, given, config, by_links=by_links)
    if queries is None:
        return Validation(None)

    def measure(model: QueryModel) -> dict[str, float]:
        return _metrics(evaluate(_without_search(model), queries, Cq("complete"), bootstrap=0))

    return Validation(measure, queries)


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

    return Validation(measure, sample, protocol)


def _without_search(model: QueryModel) -> QueryModel:
    """The model as runs are validated: a search over links would take too long."""
    return model.without_search() if isinstance(model, Searches) else model


def _metrics(report: Report) -> dict[str, float]:
    return {name: round(value, 6) for name, value in report.metrics["realistic"].items()}


def validation_queries(
    splits: Splits, given: QuerySet | None, config: TrainConfig, *, by_links: bool = False
) -> QuerySet | None:
    """Validation queries drawn once by seed: those of a set (``given``), or else DAGs mined from the validation split,
    or its triples if it is too small for DAGs, or if ``by_links``; None if it is empty. Answers are filtered by train
    and valid."""
    rng = np.random.default_rng([config.seed, 2])
    if given is not None and len(given):
        found = given
    elif len(splits.valid) == 0:
        return None
    elif by_links:
        found = both_directions(splits["valid"], rng)
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
