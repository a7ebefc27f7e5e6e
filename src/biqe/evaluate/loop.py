"""Model and queries in, ranks and a report out."""

from __future__ import annotations

import hashlib
import platform
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from importlib.metadata import PackageNotFoundError, version
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray

from biqe.errors import EmptyResult, InvalidOption, RunFailed, TooManyPaths, VocabularyMismatch
from biqe.evaluate.protocols import CQ, CQ_VERSION, cq
from biqe.evaluate.ranks import Ranks, rank_targets
from biqe.evaluate.report import Report, Skipped
from biqe.query.queryset import AnswerSets, QuerySet

if TYPE_CHECKING:
    from biqe.models._contract import QueryModel

FILTER_GRAPHS = ("complete", "split", "reach")
SCORE_BYTES = 32 << 20
"""Scores held at once, where the caller does not say how many targets to score in one go."""
MOST_BATCH_TARGETS = 1024
_EXAMPLES = 5

Progress = Callable[[int, int], None]
"""Called after each batch with the number of queries done and their total."""


@dataclass(frozen=True)
class RankedTargets:
    """Ranks of the targets that could be ranked, in the order of the query set."""

    ranks: Ranks
    targets: NDArray[np.int64]
    """Number of each in the query set's target order."""
    queries: NDArray[np.int64]
    """Number of each one's query."""
    skipped: tuple[Skipped, ...]
    targets_without_gold: int


def evaluate(
    model: QueryModel,
    queries: QuerySet,
    *,
    filter_graph: str = "complete",
    strict: bool = False,
    batch_targets: int | None = None,
    bootstrap: int = 1000,
    seed: int = 0,
    level: float = 0.95,
    progress: Progress | None = None,
    fingerprints: Mapping[str, str] | None = None,
    notes: Mapping[str, Any] | None = None,
) -> Report:
    """How well ``model`` ranks the gold entities of ``queries``, by protocol ``cq``.

    ``filter_graph`` chooses whose true values are filtered out; the query set must hold such filters. Queries
    that the model does not support are counted in the report with its reason; so are targets without a gold
    entity. ``strict=False`` ranks also what a model can read but answers badly by construction, as the paper
    does. ``bootstrap`` is the number of draws behind the confidence intervals (0: none). Neither the order of
    the queries nor ``batch_targets`` (targets scored in one go) changes a figure.

    ``fingerprints`` and ``notes`` are copied into the report.
    """
    start = time.perf_counter()
    ranked = rank_queries(
        model, queries, filter_graph=filter_graph, strict=strict, batch_targets=batch_targets, progress=progress
    )
    ranking_seconds = time.perf_counter() - start
    if len(ranked.ranks) == 0:
        reasons = [f"{part.queries:,} queries: {part.reason}" for part in ranked.skipped]
        if ranked.targets_without_gold:
            reasons.append(f"{ranked.targets_without_gold:,} targets have no gold entity")
        raise EmptyResult(f"none of {len(queries):,} queries could be ranked. {'; '.join(reasons)}".rstrip(" ."))
    nodes = queries.target_nodes[ranked.targets]
    figures = cq(
        ranked.ranks,
        ranked.queries,
        queries.roles[nodes],
        queries.kinds[ranked.queries],
        draws=bootstrap,
        seed=seed,
        level=level,
    )
    ranked_queries = len(np.unique(ranked.queries))
    return Report(
        protocol=CQ,
        protocol_version=CQ_VERSION,
        model=model.name,
        filter_graph=filter_graph,
        overall=figures.overall,
        macro=figures.macro,
        by_position=figures.by_position,
        by_kind=figures.by_kind,
        by_targets=figures.by_targets,
        counts={
            "queries": len(queries),
            "targets": len(queries.target_nodes),
            "ranked_queries": ranked_queries,
            "ranked_targets": len(ranked.ranks),
            "targets_without_gold": ranked.targets_without_gold,
        },
        skipped=ranked.skipped,
        settings={
            "strict": strict,
            "batch_targets": batch_targets,
            "bootstrap": bootstrap,
            "seed": seed,
            "level": level,
            "threads": torch.get_num_threads(),
        },
        fingerprints={"queries": fingerprint(queries), **(fingerprints or {})},
        notes=dict(notes or {}),
        seconds=time.perf_counter() - start,
        queries_per_second=ranked_queries / ranking_seconds,
        versions={"python": platform.python_version(), **{name: _version(name) for name in ("biqe", "torch", "numpy")}},
    )


def rank_queries(
    model: QueryModel,
    queries: QuerySet,
    *,
    filter_graph: str = "complete",
    strict: bool = False,
    batch_targets: int | None = None,
    progress: Progress | None = None,
) -> RankedTargets:
    """Ranks of all targets of ``queries`` that have a gold entity and whose query the model supports."""
    filters = _filters(queries, filter_graph)
    if batch_targets is None:
        batch_targets = min(MOST_BATCH_TARGETS, max(1, SCORE_BYTES // (4 * model.entity_count)))
    if batch_targets < 1:
        raise InvalidOption(f"batch_targets must be at least 1. Got {batch_targets}")
    gold = queries.gold[queries.target_nodes]
    _check_ids(model, queries, gold, filters)

    rows, skipped = _supported(model, queries, strict)
    if len(rows) == 0:
        return RankedTargets(Ranks.join([]), rows, rows, skipped, 0)
    asked = replace(queries, filters={}).take(rows)  # a model never sees the filters
    first_target = queries.target_offsets
    ranks, targets = [], []
    done = 0
    training = model.training
    model.eval()
    try:
        # no_grad and not inference_mode: buffers that a model keeps must stay usable in training.
        with torch.no_grad():
            encoded = model.encode(asked)
            for part in _batches(np.asarray(encoded.sizes), np.diff(asked.target_offsets), batch_targets):
                scores = model.scores(encoded.batch(part))
                numbers = np.concatenate([np.arange(first_target[row], first_target[row + 1]) for row in rows[part]])
                _check_shape(model, scores, len(numbers))
                known = gold[numbers] >= 0
                numbers = numbers[known]
                if not known.all():
                    scores = scores[torch.as_tensor(known, device=scores.device)]
                ranks.append(rank_targets(scores, gold[numbers], filters.take(numbers)))
                targets.append(numbers)
                done += len(part)
                if progress is not None:
                    progress(done, len(rows))
    finally:
        model.train(training)

    numbers = np.concatenate([np.zeros(0, np.int64), *targets])
    order = np.argsort(numbers)
    owner = np.searchsorted(first_target, numbers[order], side="right") - 1
    without_gold = int(np.diff(asked.target_offsets).sum()) - len(numbers)
    return RankedTargets(Ranks.join(ranks).take(order), numbers[order], owner, skipped, without_gold)


def fingerprint(queries: QuerySet) -> str:
    """Sixteen hex digits over the queries, their golds and their filters."""
    digest = hashlib.sha256()
    columns: list[NDArray[Any]] = [
        queries.node_offsets,
        queries.nodes,
        queries.gold,
        queries.roles,
        queries.edge_offsets,
        queries.edges,
    ]
    for graph in sorted(queries.filters):
        answers = queries.filters[graph]
        columns += [np.frombuffer(graph.encode(), np.uint8), answers.offsets, answers.values]
    for column in (*columns, queries.kinds):
        digest.update(column.size.to_bytes(8, "little"))
        digest.update(np.ascontiguousarray(column).data)
    return digest.hexdigest()[:16]


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:  # a checkout that was never installed
        return "unknown"


def _filters(queries: QuerySet, filter_graph: str) -> AnswerSets:
    if filter_graph not in FILTER_GRAPHS:
        raise InvalidOption(f"filter_graph must be one of {', '.join(FILTER_GRAPHS)}. Got {filter_graph!r}")
    if filter_graph not in queries.filters:
        held = ", ".join(sorted(queries.filters)) or "none at all"
        raise InvalidOption(
            f"the query set holds no filters from the {filter_graph!r} graph; it holds {held}",
            hint="choose filters that it holds, or compute them: exact.answer_sets(graph, queries)",
        )
    return queries.filters[filter_graph]


def _check_ids(model: QueryModel, queries: QuerySet, gold: NDArray[np.int32], filters: AnswerSets) -> None:
    """Ids beyond the model's would be ranked wrongly or not at all: the query set belongs to another graph."""
    for what, ids in (("entity", queries.nodes), ("gold entity", gold), ("filter value", filters.values)):
        if len(ids) and ids.max() >= model.entity_count:
            raise VocabularyMismatch(
                f"the model knows {model.entity_count:,} entities, but the queries hold {what} {ids.max():,}; "
                "they were made from different graphs"
            )


def _supported(model: QueryModel, queries: QuerySet, strict: bool) -> tuple[NDArray[np.int64], tuple[Skipped, ...]]:
    """Numbers of the queries to rank, and the others by reason."""
    rows: list[int] = []
    refused: dict[str, list[int]] = {}
    for row, query in enumerate(queries):
        if not query.targets:
            refused.setdefault("no target to rank", []).append(row)
            continue
        try:
            support = model.supports(query, strict=strict)
            refusal = None if support.yes else support.reason
        except TooManyPaths as error:
            refusal = error.message
        if refusal is None:
            rows.append(row)
        else:
            refused.setdefault(refusal, []).append(row)
    skipped = tuple(Skipped(reason, len(found), tuple(found[:_EXAMPLES])) for reason, found in refused.items())
    return np.array(rows, np.int64), skipped


def _batches(
    sizes: NDArray[np.integer], targets: NDArray[np.integer], batch_targets: int
) -> Iterator[NDArray[np.int64]]:
    """Queries of like size together, so that little is padded; at most ``batch_targets`` targets, or one query."""
    order = np.lexsort((targets, sizes))
    start, held = 0, 0
    for stop, count in enumerate(targets[order].tolist()):
        if stop > start and held + count > batch_targets:
            yield order[start:stop]
            start, held = stop, 0
        held += count
    if len(order) > start:
        yield order[start:]


def _check_shape(model: QueryModel, scores: torch.Tensor, targets: int) -> None:
    if tuple(scores.shape) != (targets, model.entity_count):
        raise RunFailed(
            f"model {model.name!r} gave scores of shape {tuple(scores.shape)}; its batch has {targets} targets and it "
            f"knows {model.entity_count:,} entities"
        )
