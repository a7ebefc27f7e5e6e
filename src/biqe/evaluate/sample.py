"""A seeded sample of a set: for quick looks, and for analyses that need no more."""

from __future__ import annotations

from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from biqe.benchmarks.shaped import ShapedQueries
from biqe.errors import InvalidOption
from biqe.query.queryset import QuerySet

Queries = TypeVar("Queries", bound=QuerySet | ShapedQueries)


def sample(queries: Queries, limit: int, seed: int = 0) -> Queries:
    """At most ``limit`` questions of each shape, or queries of each kind, without replacement, in their old order."""
    groups = queries.shape if isinstance(queries, ShapedQueries) else queries.kinds
    return queries.take(sampled(groups, limit, seed))  # type: ignore[return-value]


def sampled(groups: NDArray[np.integer], limit: int, seed: int = 0) -> NDArray[np.int64]:
    """Places of at most ``limit`` members of each group, ascending.

    >>> sampled(np.array([0, 0, 0, 1]), 2).tolist()
    [0, 2, 3]
    """
    if limit < 1:
        raise InvalidOption(f"the limit of a sample must be at least 1. Got {limit}")
    rng = np.random.default_rng(seed)
    chosen = [np.zeros(0, np.int64)]
    for group in np.unique(groups).tolist():
        members = np.flatnonzero(groups == group)
        chosen.append(rng.permutation(members)[:limit])
    return np.sort(np.concatenate(chosen))
