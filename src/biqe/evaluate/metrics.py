"""MRR and HITS@k from ranks, and bootstrap confidence intervals.

The targets of one query are not independent: what helps one helps the others. So the bootstrap draws whole
queries, with all their targets, and a metric of a draw is the mean over the targets drawn.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

import numpy as np
from numpy.typing import NDArray

from biqe.errors import EmptyResult, InvalidOption

DRAW_CELLS = 1 << 22
"""Drawn queries held at once: draws are made in blocks, so that memory does not grow with their number."""


def reciprocal(ranks: NDArray[np.float64]) -> NDArray[np.float64]:
    """1 / rank of each target; the mean is the MRR."""
    return 1 / ranks


def hits(k: int) -> Callable[[NDArray[np.float64]], NDArray[np.float64]]:
    """1 for each target whose rank is k or better, else 0; the mean is HITS@k. A realistic rank of 1.5 is no hit at 1.

    >>> hits(1)(np.array([1, 1.5, 4])).tolist()
    [1.0, 0.0, 0.0]
    """
    return lambda ranks: (ranks <= k).astype(np.float64)


RANK_METRICS: dict[str, Callable[[NDArray[np.float64]], NDArray[np.float64]]] = {
    "mrr": reciprocal,
    "hits@1": hits(1),
    "hits@3": hits(3),
    "hits@10": hits(10),
}
"""Every metric of ranks, by name: from ranks to what each target contributes. A new metric is a new line here; reports
and tables show the name in capitals."""
METRICS = tuple(RANK_METRICS)


def contributions(ranks: NDArray[np.number]) -> NDArray[np.float64]:
    """(V, metrics) what each target contributes to each of METRICS; a metric is the mean of its column."""
    numbers = np.asarray(ranks, np.float64)
    return np.stack([contribution(numbers) for contribution in RANK_METRICS.values()], axis=1)


def means(ranks: NDArray[np.number]) -> dict[str, float]:
    """Every metric over these ranks, by name.

    >>> means(np.array([1, 2, 4]))
    {'mrr': 0.5833333333333334, 'hits@1': 0.3333333333333333, 'hits@3': 0.6666666666666666, 'hits@10': 1.0}
    """
    if len(ranks) == 0:
        raise EmptyResult("there is no rank to average")
    return dict(zip(METRICS, contributions(ranks).mean(axis=0).tolist(), strict=True))


def bootstrap(
    sums: Mapping[str, NDArray[np.float64]],
    counts: Mapping[str, NDArray[np.float64]],
    *,
    draws: int = 1000,
    seed: int = 0,
    level: float = 0.95,
) -> dict[str, NDArray[np.float64]]:
    """Percentile intervals of means over targets, by drawing queries with replacement.

    For each group of targets, ``sums`` holds a (Q, metrics) array, each query's summed metric values, and
    ``counts`` a (Q,) array, its number of targets in the group. All groups see the same draws. A draw that
    holds no target of a group says nothing about it and is left out. Returns for each group a (metrics, 2)
    array of lower and upper ends, widened where needed to hold the estimate itself.

    >>> ends = bootstrap({"all": np.array([[1.0], [0.0]])}, {"all": np.array([1.0, 1.0])}, draws=100)
    >>> ends["all"].tolist()
    [[0.0, 1.0]]
    """
    if not sums:
        return {}
    columns = np.concatenate([np.column_stack([sums[name], counts[name]]) for name in sums], axis=1)  # (Q, C)
    totals = drawn_sums(columns, draws=draws, rng=np.random.default_rng(seed))  # (draws, C)
    ends: dict[str, NDArray[np.float64]] = {}
    column = 0
    for name, group_sums in sums.items():
        width = group_sums.shape[1]
        group, drawn_targets = totals[:, column : column + width], totals[:, column + width]
        column += width + 1
        if counts[name].sum() == 0:
            raise EmptyResult(f"group {name!r} has no target")
        estimate = group_sums.sum(axis=0) / counts[name].sum()
        seen = drawn_targets > 0
        drawn_means = group[seen] / drawn_targets[seen, None] if seen.any() else estimate[None]
        ends[name] = percentile_ends(drawn_means, estimate, level)
    return ends


def drawn_sums(values: NDArray[np.float64], *, draws: int, rng: np.random.Generator) -> NDArray[np.float64]:
    """(draws, columns) sums over as many rows as (N, columns) ``values`` has, drawn with replacement."""
    totals = np.empty((max(0, draws), values.shape[1]))
    for start, times in drawn_times(len(values), draws=draws, rng=rng):
        totals[start : start + len(times)] = times @ values
    return totals


def drawn_times(rows: int, *, draws: int, rng: np.random.Generator) -> Iterator[tuple[int, NDArray[np.float64]]]:
    """How often each row is in each draw: blocks of (draws, rows), each with the number of its first draw."""
    if draws < 1:
        raise InvalidOption(f"the number of bootstrap draws must be at least 1. Got {draws}")
    if rows == 0:
        raise EmptyResult("there is no query to draw from")
    block = max(1, DRAW_CELLS // rows)
    for start in range(0, draws, block):
        size = min(block, draws - start)
        drawn = rng.integers(rows, size=(size, rows))
        drawn += np.arange(size)[:, None] * rows
        times = np.bincount(drawn.ravel(), minlength=size * rows).reshape(size, rows)
        yield start, times.astype(np.float64)


def percentile_ends(drawn: NDArray[np.float64], estimate: NDArray[np.float64], level: float) -> NDArray[np.float64]:
    """(metrics, 2) ends of the middle ``level`` of (draws, metrics), widened where needed to hold the estimate."""
    if not 0 < level < 1:
        raise InvalidOption(f"the level of a confidence interval must be in (0, 1). Got {level}")
    low, high = np.percentile(drawn, [100 * (1 - level) / 2, 100 * (1 + level) / 2], axis=0)
    return np.stack([np.minimum(low, estimate), np.maximum(high, estimate)], axis=1)
