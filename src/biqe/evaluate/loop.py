"""Model, queries and a protocol in; a report out."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray

from biqe.benchmarks.anycq import TupleQuestions
from biqe.benchmarks.shaped import ShapedQueries
from biqe.errors import InvalidOption
from biqe.evaluate.machine import machine, versions
from biqe.evaluate.protocol import Bootstrap, Protocol
from biqe.evaluate.protocols import Cq
from biqe.evaluate.report import Report
from biqe.evaluate.scoring import Progress, Skipped, at_rest, nothing_ranked, score_batches
from biqe.query.bound import QuerySet

if TYPE_CHECKING:
    from biqe.models._contract import QueryModel


def evaluate(
    model: QueryModel,
    queries: QuerySet | ShapedQueries,
    protocol: Protocol[Any, Any] | None = None,
    **options: Any,
) -> Report:
    """How good ``model`` is on ``queries`` by a protocol: ``Cq("complete")`` unless another is given. Options are those
    of ``evaluate_together``."""
    return evaluate_together(model, queries, [protocol or Cq()], **options)[0]


def evaluate_together(
    model: QueryModel,
    queries: QuerySet | ShapedQueries,
    protocols: Sequence[Protocol[Any, Any]],
    *,
    strict: bool = False,
    batch_targets: int | None = None,
    bootstrap: int = 1000,
    seed: int = 0,
    level: float = 0.95,
    progress: Progress | None = None,
    fingerprints: Mapping[str, str] | None = None,
    notes: Mapping[str, Any] | None = None,
) -> list[Report]:
    """A report for each protocol, such as ``Cq`` under several filters; the model is asked once for all of them.

    ``strict=False`` ranks also what a model can read but answers badly by construction, as published evaluations do.
    ``batch_targets`` is the number of targets scored in one go; neither it nor the order of the queries changes a
    figure. ``bootstrap`` is the number of draws behind the confidence intervals (0: none), ``level`` their level and
    ``seed`` the seed of all draws. ``fingerprints`` and ``notes`` are copied into the report. What cannot be ranked is
    counted in the report with the reason.
    """
    start = time.perf_counter()
    asked, skipped, measured = measure(
        model, queries, protocols, strict=strict, batch_targets=batch_targets, progress=progress
    )
    ranking = time.perf_counter() - start
    if len(asked) == 0:
        raise nothing_ranked(len(queries), skipped)
    reports = []
    for protocol, parts in zip(protocols, measured, strict=True):
        figures = protocol.summarise(queries, asked, parts, Bootstrap(bootstrap, seed, level))
        reports.append(
            Report(
                protocol=protocol.name,
                protocol_version=protocol.version,
                filter_graph=protocol.filter_graph,
                **vars(figures),
                skipped=skipped,
                settings={
                    "strict": strict,
                    "batch_targets": batch_targets,
                    "bootstrap": bootstrap,
                    "seed": seed,
                    "level": level,
                    "threads": torch.get_num_threads(),
                },
                model=model.name,
                fingerprints={"queries": fingerprint(queries), **(fingerprints or {})},
                notes=dict(notes or {}),
                seconds=time.perf_counter() - start,
                queries_per_second=figures.counts["ranked_queries"] / ranking,
                machine=machine(),
                versions=versions(),
            )
        )
    return reports


def measure(
    model: QueryModel,
    queries: QuerySet | ShapedQueries,
    protocols: Sequence[Protocol[Any, Any]],
    *,
    strict: bool = False,
    batch_targets: int | None = None,
    progress: Progress | None = None,
) -> tuple[NDArray[np.int64], tuple[Skipped, ...], list[list[Any]]]:
    """Numbers of the queries that were ranked, the others by reason, and the measurements of each protocol."""
    selections = []
    for protocol in protocols:
        if not isinstance(queries, protocol.reads):
            raise InvalidOption(
                f"protocol {protocol.name} is for {protocol.reads.__name__}. Got {type(queries).__name__}",
                hint="questions by shape need protocol q2b or bio, and queries with several targets cq",
            )
        selections.append(protocol.select(model, queries, strict=strict))
    asked, skipped = selections[0]
    if any(not np.array_equal(other, asked) for other, _ in selections):
        raise InvalidOption("protocols that are evaluated together must rank the same queries; these do not")
    measured: list[list[Any]] = [[] for _ in protocols]
    with at_rest(model):
        for numbers, scores in score_batches(model, queries, asked, batch_targets=batch_targets, progress=progress):
            for protocol, parts in zip(protocols, measured, strict=True):
                parts.append(protocol.measure(queries, numbers, scores))
    return asked, skipped, measured


def fingerprint(queries: QuerySet | ShapedQueries | TupleQuestions) -> str:
    """Sixteen hex digits over the queries, their golds and their filters or answers."""
    columns: list[NDArray[Any]] = []
    rows = queries.rows if isinstance(queries, ShapedQueries) else queries
    rows = rows.queries if isinstance(rows, TupleQuestions) else rows
    if isinstance(queries, ShapedQueries):
        columns += [queries.owner, queries.shape, np.frombuffer("|".join(queries.shapes).encode(), np.uint8)]
        for name in ("answers", "hard", "negatives", "hard_negatives"):
            sets = getattr(queries, name)
            if sets is not None:
                columns += [np.frombuffer(name.encode(), np.uint8), sets.offsets, sets.values]
    if isinstance(queries, TupleQuestions):
        columns += [np.frombuffer("".join(queries.kinds.tolist()).encode(), np.uint8), *queries.answers]
    if rows.negated is not None:
        columns.append(rows.negated)
    columns += [rows.node_offsets, rows.nodes, rows.gold, rows.roles, rows.edge_offsets, rows.edges]
    for graph in sorted(rows.filters):
        answers = rows.filters[graph]
        columns += [np.frombuffer(graph.encode(), np.uint8), answers.offsets, answers.values]
    digest = hashlib.sha256()
    for column in (*columns, rows.kinds):
        digest.update(column.size.to_bytes(8, "little"))
        digest.update(np.ascontiguousarray(column).data)
    return digest.hexdigest()[:16]
