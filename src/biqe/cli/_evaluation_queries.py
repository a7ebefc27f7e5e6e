"""Queries for ``biqe evaluate`` and ``biqe calibrate``: of a mined set, a benchmark, or the authors' release."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from biqe.benchmarks.shaped import ShapedQueries
    from biqe.graph.knowledge_graph import Splits
    from biqe.graph.vocabulary import Vocabulary
    from biqe.query.queryset import QuerySet


@dataclass(frozen=True)
class EvaluationQueries:
    """Queries to rank, and what the report says about their origin."""

    queries: QuerySet | ShapedQueries
    filter_graph: str | None
    """Which true answers are filtered out; None if the protocol decides."""
    name: str
    """File name of the report, without extension."""
    protocol: str = "cq"
    splits: Splits | None = None
    """The graph, if it was read to open the queries."""
    candidates: NDArray[np.int32] | None = None
    """Entities that the benchmark ranks; None for all."""
    fingerprints: dict[str, str] = field(default_factory=dict)
    notes: dict[str, Any] = field(default_factory=dict)


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
    from biqe.errors import EmptyResult, InvalidOption
    from biqe.graph import folder as graph_folder
    from biqe.query.queryset import QuerySet

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
        hint="train on the benchmark's own graph: biqe train GRAPH --set " + name,
    )
    queries = opened.train_queries() if split == "train" else opened.queries(split)
    if queries is None or len(queries) == 0:
        raise EmptyResult(f"benchmark {name} has no queries in its {split} split")
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
        opened.candidates if opened.protocol == "q2b" else None,
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
    """Queries of the authors' release, with the released filters or with filters computed from a graph."""
    from biqe.benchmarks import FILTER_GRAPHS, read_release, release_kind
    from biqe.errors import InvalidOption

    kind = release_kind(directory, split, kind)
    filter_graph = filter_graph or FILTER_GRAPHS[kind]
    computed = filter_graph != FILTER_GRAPHS[kind]
    if computed and graph is None:
        raise InvalidOption(
            f"the release's own filters for {kind} queries are {FILTER_GRAPHS[kind]!r}; {filter_graph!r} filters have "
            "to be computed from the graph",
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
            "filters": "computed from the graph" if computed else "released",
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
