"""MRR and HITS@k from ranks, and their bootstrap confidence intervals.

The targets of one query are not independent: what helps one helps the others. So the bootstrap draws whole
queries, with all their targets, and a metric of a draw is the mean over the targets drawn.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import numpy as np
from numpy.typing import NDArray

from biqe.errors import EmptyResult, InvalidOption
from biqe.evaluate.ranks import TIE_RULES, Ranks

HITS = (1, 3, 10)
METRICS = ("mrr", *(f"hits@{k}" for k in HITS))

DRAW_CELLS = 1 << 22
"""Drawn queries held at once: draws are made in blocks, so that memory does not grow with their number."""


def mrr(ranks: NDArray[np.number]) -> float:
    """Mean reciprocal rank.

    >>> mrr(np.array([1, 2, 4]))
    0.5833333333333334
    """
    return float(np.mean(1 / _some(ranks)))


def hits(ranks: NDArray[np.number], k: int) -> float:
    """Share of ranks that are k or better. A realistic rank of 1.5 is no hit at 1.

    >>> hits(np.array([1, 1.5, 4]), 1), hits(np.array([1, 1.5, 4]), 3)
    (0.3333333333333333, 0.6666666666666666)
    """
    if k < 1:
        raise InvalidOption(f"k of HITS@k must be at least 1. Got {k}")
    return float(np.mean(_some(ranks) <= k))


def values(ranks: NDArray[np.number]) -> NDArray[np.float64]:
    """(V, metrics) what each target contributes to each of METRICS; a metric is the mean of its column."""
    ranks = np.asarray(ranks, np.float64)
    return np.stack([1 / ranks, *((ranks <= k).astype(np.float64) for k in HITS)], axis=1)


def metrics(ranks: Ranks) -> dict[str, dict[str, float]]:
    """Every metric over all targets, by tie rule."""
    return {
        rule: {"mrr": mrr(ranks.by(rule)), **{f"hits@{k}": hits(ranks.by(rule), k) for k in HITS}} for rule in TIE_RULES
    }


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
    names = list(sums)
    if not names:
        return {}
    columns = np.concatenate([np.column_stack([sums[name], counts[name]]) for name in names], axis=1)  # (Q, C)

    totals = np.empty((max(0, draws), columns.shape[1]))
    for start, times in drawn_times(len(columns), draws=draws, rng=np.random.default_rng(seed)):
        totals[start : start + len(times)] = times @ columns

    ends: dict[str, NDArray[np.float64]] = {}
    column = 0
    for name in names:
        width = sums[name].shape[1]
        group, drawn_targets = totals[:, column : column + width], totals[:, column + width]
        column += width + 1
        if counts[name].sum() == 0:
            raise EmptyResult(f"group {name!r} has no target")
        estimate = sums[name].sum(axis=0) / counts[name].sum()
        seen = drawn_targets > 0
        means = group[seen] / drawn_targets[seen, None] if seen.any() else estimate[None]
        ends[name] = percentile_ends(means, estimate, level)
    return ends


def bootstrap_means(values: NDArray[np.float64], *, draws: int, rng: np.random.Generator) -> NDArray[np.float64]:
    """(draws, metrics) means over questions drawn with replacement from (N, metrics) values, one row a question."""
    totals = np.empty((max(0, draws), values.shape[1]))
    for start, times in drawn_times(len(values), draws=draws, rng=rng):
        totals[start : start + len(times)] = times @ values
    return totals / len(values)


def drawn_times(questions: int, *, draws: int, rng: np.random.Generator) -> Iterator[tuple[int, NDArray[np.float64]]]:
    """How often each question is in each draw: blocks of (draws, questions), each with the number of its first draw."""
    if draws < 1:
        raise InvalidOption(f"the number of bootstrap draws must be at least 1. Got {draws}")
    if questions == 0:
        raise EmptyResult("there is no query to draw from")
    block = max(1, DRAW_CELLS // questions)
    for start in range(0, draws, block):
        size = min(block, draws - start)
        drawn = rng.integers(questions, size=(size, questions))
        drawn += np.arange(size)[:, None] * questions
        times = np.bincount(drawn.ravel(), minlength=size * questions).reshape(size, questions)
        yield start, times.astype(np.float64)


def percentile_ends(means: NDArray[np.float64], estimate: NDArray[np.float64], level: float) -> NDArray[np.float64]:
    """(metrics, 2) ends of the middle ``level`` of the draws, widened where needed to hold the estimate itself."""
    if not 0 < level < 1:
        raise InvalidOption(f"the level of a confidence interval must be in (0, 1). Got {level}")
    low, high = np.percentile(means, [100 * (1 - level) / 2, 100 * (1 + level) / 2], axis=0)
    return np.stack([np.minimum(low, estimate), np.maximum(high, estimate)], axis=1)


def _some(ranks: NDArray[np.number]) -> NDArray[np.float64]:
    if len(ranks) == 0:
        raise EmptyResult("there is no rank to average")
    return np.asarray(ranks, np.float64)
