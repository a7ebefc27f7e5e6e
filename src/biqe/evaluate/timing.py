"""Time per query: how long one question takes by itself, and in a batch.

The paper promises run times on the test set and does not give them. Time runs from queries in ids to scores of all
entities for every target: encoding and scoring, without parsing and without ranking. A time means nothing without
the machine, the number of threads and the allocator, so the result names them.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from biqe.benchmarks.shaped import ShapedQueries
from biqe.errors import InvalidOption
from biqe.evaluate.machine import machine
from biqe.evaluate.report import plain
from biqe.evaluate.scoring import (
    Skipped,
    at_rest,
    batch_size,
    batches,
    by_reason,
    check_shape,
    nothing_ranked,
    supported,
)
from biqe.models._device import device_of, on_device
from biqe.query.bound import QuerySet

if TYPE_CHECKING:
    import torch

    from biqe.models._contract import QueryModel

WARM_UP = 3
"""Queries, and batches, that are asked before the clock starts."""


@dataclass(frozen=True)
class Timing:
    """Milliseconds a query."""

    model: str
    queries: int
    """Timed in batches; conjunctive rows, where questions have several."""
    targets: int
    single_queries: int
    """Timed one by one."""
    single_mean_ms: float
    single_median_ms: float
    single_p95_ms: float
    """95 of 100 queries take no longer."""
    batched_ms: float
    """All of them, in batches, divided by their number; the best of the repeats."""
    batched_queries_per_second: float
    batch_targets: int
    repeats: int
    machine: dict[str, Any]
    """Processor, cores, threads, allocator, largest memory."""
    skipped: tuple[Skipped, ...]

    def to_json(self) -> dict[str, Any]:
        """Dicts, lists, strings and numbers only."""
        return {"format": "biqe-analysis", "analysis": "timing", **plain(self)}


def time_per_query(
    model: QueryModel,
    queries: QuerySet | ShapedQueries,
    *,
    singles: int = 200,
    repeats: int = 3,
) -> Timing:
    """How long ``model`` takes for ``queries``: a seeded sample of ``singles`` one by one, and all in batches.

    Questions with several rows count as their rows. What the model does not support is counted and not timed.
    """
    if singles < 1 or repeats < 1:
        raise InvalidOption(f"singles and repeats must be at least 1. Got {singles} and {repeats}")
    rows = queries.rows if isinstance(queries, ShapedQueries) else queries
    able, refused = supported(model, rows, strict=False)
    skipped = by_reason(refused)
    if len(able) == 0:
        raise nothing_ranked(len(rows), skipped, "timed")
    asked = replace(rows, filters={}).take(able)
    chosen = np.random.default_rng(0).permutation(len(asked))[: singles + WARM_UP]
    size = batch_size(model, None)
    with at_rest(model):
        alone = _one_by_one(model, asked, chosen)
        batched = min(_in_batches(model, asked, size) for _ in range(repeats))
    return Timing(
        model=model.name,
        queries=len(asked),
        targets=len(asked.target_nodes),
        single_queries=len(alone),
        single_mean_ms=float(1000 * alone.mean()),
        single_median_ms=float(1000 * np.median(alone)),
        single_p95_ms=float(1000 * np.percentile(alone, 95)),
        batched_ms=1000 * batched / len(asked),
        batched_queries_per_second=len(asked) / batched,
        batch_targets=size,
        repeats=repeats,
        machine=machine(),
        skipped=skipped,
    )


def _one_by_one(model: QueryModel, queries: QuerySet, chosen: NDArray[np.int64]) -> NDArray[np.float64]:
    """Seconds of each query; the first few are asked and not counted, unless there are no others."""
    seconds = []
    for row in chosen:
        one = queries.take(np.array([row]))
        start = time.perf_counter()
        scores = model.scores(model.encoder(one))
        _wait_for(scores)
        seconds.append(time.perf_counter() - start)
        check_shape(model, scores, len(one.target_nodes))
    return np.array(seconds[min(WARM_UP, len(seconds) - 1) :])


def _in_batches(model: QueryModel, queries: QuerySet, size: int) -> float:
    """Seconds for all queries."""
    start = time.perf_counter()
    encoded = model.encode(queries)
    targets = np.diff(queries.target_offsets)
    for part in batches(np.asarray(encoded.sizes), targets, size):
        scores = model.scores(on_device(encoded.batch(part), device_of(model)))
        check_shape(model, scores, int(targets[part].sum()))
        _wait_for(scores)
    return time.perf_counter() - start


def _wait_for(scores: torch.Tensor) -> None:
    """A GPU computes on while the program does something else; the clock must not."""
    if scores.device.type != "cpu":
        scores[:, :1].cpu()
