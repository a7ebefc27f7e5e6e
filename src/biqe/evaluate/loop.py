"""Model and queries in, a report out: one function a protocol.

All three take the same options. ``strict=False`` ranks also what a model can read but answers badly by construction,
as published evaluations do. ``batch_targets`` is the number of targets scored in one go; neither it nor the order of
the queries changes a figure. ``bootstrap`` is the number of draws behind the confidence intervals (0: none), ``level``
their level and ``seed`` the seed of all draws. ``fingerprints`` and ``notes`` are copied into the report. What cannot
be ranked is counted in the report with the reason.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray

from biqe.benchmarks.shaped import ShapedQueries
from biqe.errors import EmptyResult
from biqe.evaluate.auc_apr import BIO, BIO_VERSION, bio
from biqe.evaluate.machine import machine, versions
from biqe.evaluate.metrics import METRICS
from biqe.evaluate.pairs import comparable, pair_scores
from biqe.evaluate.protocols import CQ, CQ_VERSION, Q2B, Q2B_VERSION, ShapeFigures, cq, q2b, question_figures
from biqe.evaluate.questions import rankable, ranked_parts
from biqe.evaluate.ranks import TIE_RULES
from biqe.evaluate.report import Report
from biqe.evaluate.scoring import Progress, Skipped, at_rest
from biqe.evaluate.targets import RankedTargets, rank_under
from biqe.query.queryset import QuerySet

if TYPE_CHECKING:
    from biqe.models._contract import QueryModel

VERSIONS = {CQ: CQ_VERSION, Q2B: Q2B_VERSION, BIO: BIO_VERSION}
"""Of every protocol, the version by which reports are made today."""


def evaluate(model: QueryModel, queries: QuerySet, *, filter_graph: str = "complete", **options: Any) -> Report:
    """How well ``model`` ranks the gold entities of ``queries``, by protocol ``cq``.

    ``filter_graph`` chooses whose true values are filtered out; the query set must hold such filters. Targets
    without a gold entity are counted.
    """
    return evaluate_under(model, queries, [filter_graph], **options)[filter_graph]


def evaluate_under(
    model: QueryModel,
    queries: QuerySet,
    filter_graphs: Sequence[str],
    *,
    strict: bool = False,
    batch_targets: int | None = None,
    bootstrap: int = 1000,
    seed: int = 0,
    level: float = 0.95,
    progress: Progress | None = None,
    fingerprints: Mapping[str, str] | None = None,
    notes: Mapping[str, Any] | None = None,
) -> dict[str, Report]:
    """The same under several filters, by name; the model is asked once for all of them."""
    draws = {"bootstrap": bootstrap, "seed": seed, "level": level}
    settings = {"strict": strict, "batch_targets": batch_targets, **draws, "threads": torch.get_num_threads()}
    clock = _Clock()
    found = rank_under(model, queries, filter_graphs, strict=strict, batch_targets=batch_targets, progress=progress)
    clock.ranked()

    def report(name: str, ranked: RankedTargets) -> Report:
        if len(ranked.ranks) == 0:
            raise _nothing_ranked(len(queries), ranked.skipped, ranked.targets_without_gold)
        roles = queries.roles[queries.target_nodes[ranked.targets]]
        kinds = queries.kinds[ranked.queries]
        figures = cq(ranked.ranks, ranked.queries, roles, kinds, draws=bootstrap, seed=seed, level=level)
        counts = {
            "queries": len(queries),
            "targets": len(queries.target_nodes),
            "ranked_queries": len(np.unique(ranked.queries)),
            "ranked_targets": len(ranked.ranks),
            "targets_without_gold": ranked.targets_without_gold,
        }
        return Report(
            protocol=CQ,
            protocol_version=VERSIONS[CQ],
            filter_graph=name,
            overall=figures.overall,
            macro=figures.macro,
            by_position=figures.by_position,
            by_kind=figures.by_kind,
            by_targets=figures.by_targets,
            skipped=ranked.skipped,
            settings=settings,
            **_circumstances(model, queries, counts, clock, fingerprints, notes),
        )

    return {name: report(name, ranked) for name, ranked in found.items()}


def evaluate_q2b(
    model: QueryModel,
    shaped: ShapedQueries,
    *,
    candidates: NDArray[np.integer] | None = None,
    strict: bool = False,
    batch_targets: int | None = None,
    bootstrap: int = 1000,
    seed: int = 0,
    level: float = 0.95,
    progress: Progress | None = None,
    fingerprints: Mapping[str, str] | None = None,
    notes: Mapping[str, Any] | None = None,
) -> Report:
    """How well ``model`` ranks the hard answers of questions, by protocol ``q2b``.

    Every hard answer is ranked with all other answers, easy and hard, filtered out, and among ``candidates`` only
    where they are given. Questions without a hard answer are counted.
    """
    draws = {"bootstrap": bootstrap, "seed": seed, "level": level}
    clock = _Clock()
    asked, skipped = rankable(model, shaped, strict=strict)
    if len(asked) == 0:
        raise _nothing_ranked(len(shaped), skipped)
    assert shaped.hard is not None
    place = np.zeros(len(shaped), np.int64)
    place[asked] = np.arange(len(asked))
    figures = {rule: np.zeros((len(asked), len(METRICS))) for rule in TIE_RULES}
    # Batch by batch: the ranks of a question are averaged as soon as they are known, and forgotten.
    with at_rest(model):
        for part in ranked_parts(
            model, shaped, asked, candidates=candidates, batch_targets=batch_targets, progress=progress
        ):
            rows, owner = np.unique(place[part.questions], return_inverse=True)
            means, _ = question_figures(part.ranks, owner, len(rows))
            for rule in TIE_RULES:
                figures[rule][rows] = means[rule]
    clock.ranked()
    hard = np.diff(shaped.hard.offsets)
    found = q2b(figures, shaped.shape[asked], shaped.shapes, hard[asked], draws=bootstrap, seed=seed, level=level)
    counts = {
        "queries": len(shaped),
        "targets": int(hard.sum()),
        "ranked_queries": len(asked),
        "ranked_targets": int(hard[asked].sum()),
        "candidates": model.entity_count if candidates is None else len(np.unique(candidates)),
    }
    protocol = {"protocol": Q2B, "protocol_version": VERSIONS[Q2B], "filter_graph": "answers"}
    settings = {"strict": strict, "batch_targets": batch_targets, **draws}
    facts = _circumstances(model, shaped, counts, clock, fingerprints, notes)
    return _of_shapes(found, skipped, settings, {**protocol, **facts})


def evaluate_bio(
    model: QueryModel,
    shaped: ShapedQueries,
    *,
    strict: bool = False,
    batch_targets: int | None = None,
    bootstrap: int = 1000,
    seed: int = 0,
    level: float = 0.95,
    progress: Progress | None = None,
    fingerprints: Mapping[str, str] | None = None,
    notes: Mapping[str, Any] | None = None,
) -> Report:
    """How well ``model`` tells the true answer of a question from sampled negatives, by protocol ``bio``.

    ``seed`` chooses also the one negative of each question that AUC compares with. Questions without a negative or
    without a single true answer (see ``pairs.true_answers``) are counted.
    """
    draws = {"bootstrap": bootstrap, "seed": seed, "level": level}
    clock = _Clock()
    asked, skipped = comparable(model, shaped, strict=strict)
    if len(asked) == 0:
        raise _nothing_ranked(len(shaped), skipped)
    types = pair_scores(model, shaped, asked, seed=seed, batch_targets=batch_targets, progress=progress)
    clock.ranked()
    found = bio(types, draws=bootstrap, seed=seed, level=level)
    counts = {
        "queries": len(shaped),
        "targets": sum(len(sets.values) for sets in (shaped.negatives, shaped.hard_negatives) if sets is not None),
        "ranked_queries": len(asked),
        "ranked_targets": sum(part.targets for part in found.by_shape.values()),
    }
    protocol = {"protocol": BIO, "protocol_version": VERSIONS[BIO], "filter_graph": "none"}
    settings = {"strict": strict, "batch_targets": batch_targets, **draws}
    facts = _circumstances(model, shaped, counts, clock, fingerprints, notes)
    return _of_shapes(found, skipped, settings, {**protocol, **facts})


def _of_shapes(
    found: ShapeFigures, skipped: tuple[Skipped, ...], settings: dict[str, Any], facts: dict[str, Any]
) -> Report:
    """The report on questions, which have a shape each."""
    return Report(
        overall=found.overall,
        by_shape=found.by_shape,
        mean_over=found.mean_over,
        skipped=skipped,
        settings={**settings, "threads": torch.get_num_threads()},
        **facts,
    )


class _Clock:
    """Time since the beginning, and up to the end of ranking."""

    def __init__(self) -> None:
        self._start = time.perf_counter()
        self.ranking = 0.0

    def ranked(self) -> None:
        self.ranking = self.total

    @property
    def total(self) -> float:
        return time.perf_counter() - self._start


def _circumstances(
    model: QueryModel,
    queries: QuerySet | ShapedQueries,
    counts: dict[str, int],
    clock: _Clock,
    fingerprints: Mapping[str, str] | None,
    notes: Mapping[str, Any] | None,
) -> dict[str, Any]:
    """What every report says about how and where it was made."""
    return {
        "model": model.name,
        "fingerprints": {"queries": fingerprint(queries), **(fingerprints or {})},
        "notes": dict(notes or {}),
        "counts": counts,
        "seconds": clock.total,
        "queries_per_second": counts["ranked_queries"] / clock.ranking,
        "machine": machine(),
        "versions": versions(),
    }


def fingerprint(queries: QuerySet | ShapedQueries) -> str:
    """Sixteen hex digits over the queries, their golds and their filters or answers."""
    columns: list[NDArray[Any]] = []
    rows = queries.rows if isinstance(queries, ShapedQueries) else queries
    if isinstance(queries, ShapedQueries):
        columns += [queries.owner, queries.shape, np.frombuffer("|".join(queries.shapes).encode(), np.uint8)]
        for name in ("answers", "hard", "negatives", "hard_negatives"):
            sets = getattr(queries, name)
            if sets is not None:
                columns += [np.frombuffer(name.encode(), np.uint8), sets.offsets, sets.values]
    columns += [rows.node_offsets, rows.nodes, rows.gold, rows.roles, rows.edge_offsets, rows.edges]
    for graph in sorted(rows.filters):
        answers = rows.filters[graph]
        columns += [np.frombuffer(graph.encode(), np.uint8), answers.offsets, answers.values]
    digest = hashlib.sha256()
    for column in (*columns, rows.kinds):
        digest.update(column.size.to_bytes(8, "little"))
        digest.update(np.ascontiguousarray(column).data)
    return digest.hexdigest()[:16]


def _nothing_ranked(queries: int, skipped: tuple[Skipped, ...], without_gold: int = 0) -> EmptyResult:
    reasons = [f"{part.queries:,} queries: {part.reason}" for part in skipped]
    if without_gold:
        reasons.append(f"{without_gold:,} targets have no gold entity")
    return EmptyResult(f"none of {queries:,} queries could be ranked. {'; '.join(reasons)}".rstrip(" ."))
