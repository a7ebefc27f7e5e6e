"""Queries for ``biqe evaluate`` and ``biqe calibrate``: a run's own, of a mined set, a benchmark, or the authors'
release."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from biqe.benchmarks import OpenBenchmark
    from biqe.benchmarks.anycq import TupleQuestions
    from biqe.benchmarks.shaped import ShapedQueries
    from biqe.evaluate.protocol import Protocol
    from biqe.graph.knowledge_graph import Splits
    from biqe.graph.vocabulary import Vocabulary
    from biqe.models.store import LoadedModel
    from biqe.query.bound import QuerySet


@dataclass(frozen=True)
class EvaluationQueries:
    """Queries to rank, and what the report says about their origin."""

    queries: QuerySet | ShapedQueries | TupleQuestions
    filter_graph: str | None
    """Which true answers are filtered out; None if the protocol decides."""
    name: str
    """File name of the report, without extension."""
    protocol: str = "cq"
    splits: Splits | None = None
    """The graph, if it was read to open the queries."""
    candidates: NDArray[np.int32] | None = None
    """Entities that the benchmark ranks; None for all."""
    benchmark: OpenBenchmark | None = None
    """The opened benchmark that the queries are from; None for other queries."""
    fingerprints: dict[str, str] = field(default_factory=dict)
    notes: dict[str, Any] = field(default_factory=dict)
    by_shape: Mapping[str, tuple[QuerySet | ShapedQueries, Protocol[Any, Any]]] = field(default_factory=dict)
    """Of a run's own: further held-out questions, one set a shape, and how they are ranked."""


def of_run(run: Path, loaded: LoadedModel) -> EvaluationQueries:
    """The questions that a run, or the embedded model, held out of its training: those that it was validated on, and
    those of each shape that it chose its way to answer by."""
    import numpy as np

    from biqe.errors import EmptyResult, InvalidOption
    from biqe.knowledge_base.locate import EMBEDDED
    from biqe.query.bound import QuerySet
    from biqe.training import held_out, weigh_links
    from biqe.training.config import TrainConfig
    from biqe.training.run import Run, is_run_folder
    from biqe.training.session import open_graph
    from biqe.training.training_data import open_training_data, validation

    data, most = None, weigh_links.MOST_QUESTIONS
    if run.as_posix() in EMBEDDED:
        place, splits = open_graph("atlas")
        trained = loaded.manifest["trained"]
        config = TrainConfig(epochs=1, seed=trained["seed"], validation_queries=trained["validation_queries"])
    elif is_run_folder(run):
        opened = Run.open(run)
        record, config = opened.record, opened.train_config
        place, splits = open_graph("atlas" if record["graph"].get("name") == "atlas" else record["graph"]["path"])
        if record.get("set") is not None:
            given = record["set"]
            data = open_training_data(given.get("benchmark") or given["path"], splits, given.get("data"))
        if record.get("held_out") is not None:
            splits = held_out.load(run, splits, record["held_out"])
        a_run = weigh_links.QUESTIONS_A_MINUTE * (config.minutes or 10.0)
        most = int(np.clip(a_run, weigh_links.FEWEST_QUESTIONS, most))
    else:
        raise InvalidOption(
            f"{run} is a model folder, which does not say what was held out of its training; name the queries",
            hint="biqe evaluate RUN --set sets/cq, or biqe evaluate RUN --release DIR",
        )
    _compare(f"graph {place}", splits.vocabulary.fingerprint, len(splits.vocabulary.entities), loaded.vocabulary)
    model = loaded.model
    found = validation(splits, data, config, by_links=getattr(model, "learns_from", "queries") == "triples")
    queries = found.asked
    if queries is None:
        raise EmptyResult(
            f"nothing was held out of the training of {run}, so there are no questions to ask",
            hint="name queries of your own: biqe evaluate RUN --set sets/cq",
        )
    by_shape = weigh_links.held_out_questions(model, splits, found, most, config.seed)
    if isinstance(queries, QuerySet):  # what training calls complete is all that it may see: train and valid
        queries = replace(queries, filters={"seen": queries.filters["complete"]})
    return EvaluationQueries(
        queries,
        "seen" if isinstance(queries, QuerySet) else None,
        "held-out",
        found.protocol.name,
        splits,
        getattr(found.protocol, "candidates", None),
        fingerprints={"graph": splits.fingerprint},
        notes={"set": "held out of training", "split": "valid"},
        by_shape=by_shape,
    )


def graph_of(run: Path) -> Path | None:
    """The graph folder that a run or the embedded model was trained on; None if it is unknown or gone."""
    from biqe.cli._options import graph_place
    from biqe.errors import UnreadableFile
    from biqe.graph.folder import is_graph_folder

    try:
        place = graph_place(run.as_posix())
    except UnreadableFile:
        return None
    return place if is_graph_folder(place) else None


def is_benchmark(name: str) -> bool:
    """Whether --set names a benchmark rather than a folder; UnknownName if it is neither. A folder with the name of a
    benchmark is given as ./NAME."""
    if os.sep in name:
        return False
    from biqe import benchmarks
    from biqe.errors import UnknownName

    if name in benchmarks.names():
        return True
    if not Path(name).exists():
        raise UnknownName(
            f"--set {name!r} is neither a folder nor a benchmark; benchmarks are {', '.join(benchmarks.names())}",
            hint="make a set with: biqe mine GRAPH --out SET",
        )
    return False


def of_benchmark(
    name: str, split: str, filter_graph: str | None, data: Path | None, run: Path, vocabulary: Vocabulary
) -> EvaluationQueries:
    """Queries of a benchmark, with the ids of the run's graph if that is still there, or else of the benchmark's."""
    from biqe import benchmarks
    from biqe.benchmarks.shaped import ShapedQueries
    from biqe.errors import EmptyResult, InvalidOption
    from biqe.graph import folder as graph_folder
    from biqe.query.bound import QuerySet

    split = {"dev": "valid"}.get(split, split)
    graph = graph_of(run)
    splits = graph_folder.load(graph) if graph is not None else None
    opened = benchmarks.open(name, data=data, splits=splits)
    known = opened.splits.vocabulary
    _compare(
        f"benchmark {name}",
        known.fingerprint,
        len(known.entities),
        vocabulary,
        hint=f"train on the benchmark's own graph: biqe benchmarks {name} --graph FOLDER writes it",
    )
    queries = opened.train_queries() if split == "train" else opened.queries(split)
    if queries is None or len(queries) == 0:
        raise EmptyResult(f"benchmark {name} has no queries in its {split} split")
    if split == "train" and isinstance(queries, ShapedQueries) and queries.hard is None:
        queries = replace(queries, hard=queries.answers)  # the training graph holds them all, so none is easier
    stem = f"{name}-{split}"
    if isinstance(queries, QuerySet):
        filter_graph = filter_graph or "complete"
        stem += f"-{filter_graph}"
    elif filter_graph is not None:
        raise InvalidOption(f"--filter-graph is for protocol cq; {name} goes through {opened.protocol}, which fixes it")
    return EvaluationQueries(
        queries,
        filter_graph,
        stem,
        opened.protocol,
        opened.splits,
        opened.candidates if opened.protocol in ("q2b", "betae") else None,
        opened,
        {"benchmark": opened.fingerprint, "graph": opened.splits.fingerprint},
        {"benchmark": name, "split": split},
    )


def of_set(folder: Path, split: str, filter_graph: str | None, vocabulary: Vocabulary) -> EvaluationQueries:
    """Queries of a mined set."""
    from biqe.mine import folder as mined_folder

    split = {"dev": "valid"}.get(split, split)
    mined = mined_folder.load(folder)
    _compare(f"query set {folder}", mined.vocabulary_fingerprint, mined.entity_count, vocabulary)
    queries = mined[split]
    filter_graph = filter_graph or "complete"
    return EvaluationQueries(
        queries,
        filter_graph,
        f"{folder.resolve().name}-{split}-{filter_graph}",
        fingerprints={"graph": mined.graph_fingerprint},
        notes={"set": str(folder), "split": split, "recipe": mined.config.to_dict()},
    )


def of_release(
    directory: Path,
    split: str,
    filter_graph: str | None,
    kind: str | None,
    graph: Path | None,
    skip_unknown: bool,
    vocabulary: Vocabulary,
) -> EvaluationQueries:
    """Queries of the authors' release, with the released filters; those that it lacks are computed from a graph."""
    from biqe.benchmarks import FILTER_GRAPHS, read_release, release_kind
    from biqe.benchmarks.release_files import BROKEN, find_files, release_split
    from biqe.errors import InvalidOption

    kind = release_kind(directory, split, kind)
    own, found = FILTER_GRAPHS[kind], find_files(directory)
    found.one(kind, release_split(split))  # refused where there are no queries, whatever the filters
    # A file that cannot be read may be the one with the filters: it is looked at, and named in the error.
    are_there = found.of(f"{kind} filters", release_split(split)) or any(what == BROKEN for _, what, _ in found.entries)
    filter_graph = filter_graph or own
    computed = filter_graph != own or not are_there
    if computed and graph is None:
        lacks = f"has no filters for its {kind} queries" if not are_there else f"has {own!r} filters, no others"
        raise InvalidOption(
            f"the release in {directory} {lacks}; {filter_graph!r} filters have to be computed from the graph",
            hint="name the graph folder with --graph",
        )
    read = read_release(directory, vocabulary, split, kind=kind, with_filters=not computed, skip_unknown=skip_unknown)
    queries, fingerprints = read.queries, {}
    if graph is not None and computed:
        queries, fingerprints["graph"] = _with_computed_filters(queries, graph, filter_graph, read.split, vocabulary)
    return EvaluationQueries(
        queries,
        filter_graph,
        f"{directory.resolve().name}-{read.kind}-{read.split}-{filter_graph}",
        fingerprints=fingerprints,
        notes={
            "release": str(directory),
            "split": read.split,
            "kind": read.kind,
            "files": [path.name for path in read.files],
            "filters": f"computed from the graph{'' if are_there else ', the release has none'}"
            if computed
            else "released",
            "left_out": dict(read.skipped),
        },
    )


def _with_computed_filters(
    queries: QuerySet, folder: Path, filter_graph: str, split: str, vocabulary: Vocabulary
) -> tuple[QuerySet, str]:
    """The queries with their answers in a graph folder as filters, and the graph's fingerprint."""
    from biqe.errors import InvalidOption
    from biqe.exact.answers import answer_sets
    from biqe.graph import folder as graph_folder
    from biqe.mine.filters import reach_sets

    splits = graph_folder.load(folder)
    _compare(f"graph {folder}", splits.vocabulary.fingerprint, len(splits.vocabulary.entities), vocabulary)
    if filter_graph == "complete":
        answers = answer_sets(splits["complete"], queries)
    elif filter_graph == "split":
        answers = answer_sets(splits[{"dev": "valid"}.get(split, split)], queries)
    elif filter_graph == "reach":
        answers = reach_sets(splits["complete"], queries)
    else:
        raise InvalidOption(f"--filter-graph must be one of complete, split, reach. Got {filter_graph!r}")
    return queries.with_filters(**{filter_graph: answers}), splits.fingerprint


def _compare(
    what: str,
    fingerprint: str,
    entities: int,
    vocabulary: Vocabulary,
    hint: str = "mine the set from the graph that the model was trained on",
) -> None:
    from biqe.errors import VocabularyMismatch

    if fingerprint != vocabulary.fingerprint:
        raise VocabularyMismatch(
            f"{what} has {entities:,} entities, the model knows {len(vocabulary.entities):,}; they were built from "
            f"different graphs (fingerprints {fingerprint} and {vocabulary.fingerprint})",
            hint=hint,
        )
