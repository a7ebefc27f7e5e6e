"""How ranks become the figures of a table: averaging as each paper did it, by name.

A protocol is a function from ranks to a Summary of each group of targets. Its docstring says how it averages.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from biqe.errors import EmptyResult
from biqe.evaluate.metrics import METRICS, bootstrap, values
from biqe.evaluate.ranks import TIE_RULES, Ranks
from biqe.query.queryset import KINDS, ROLES

CQ = "cq"
CQ_VERSION = 1
"""Raised whenever the same ranks would give other figures."""


@dataclass(frozen=True)
class Summary:
    """Figures of one group of targets."""

    queries: int
    """Queries with at least one target in the group."""
    targets: int
    metrics: dict[str, dict[str, float]]
    """By tie rule, then by metric: ``metrics["realistic"]["mrr"]``."""
    intervals: dict[str, tuple[float, float]]
    """By metric, the confidence interval of the realistic figure; empty without a bootstrap."""


@dataclass(frozen=True)
class CqFigures:
    """What protocol ``cq`` reports."""

    overall: Summary
    macro: Summary
    by_position: dict[str, Summary]
    by_kind: dict[str, Summary]
    by_targets: dict[str, Summary]


def cq(
    ranks: Ranks,
    query: NDArray[np.integer],
    roles: NDArray[np.integer],
    kinds: NDArray[np.integer],
    *,
    draws: int = 1000,
    seed: int = 0,
    level: float = 0.95,
) -> CqFigures:
    """Protocol ``cq``: the paper's way for its CQ and Paths sets.

    Averages over targets: each target of each query counts once, however many paths (and so [MASK]s) it
    stands on, since a model's scores already average the masks of one target; a query with six targets
    weighs six times a query with one. ``by_position`` averages over the tails, over the intersections and
    over all other targets apart; ``by_kind`` over paths and DAGs apart; ``by_targets`` over queries with the
    same number of ranked targets.

    Use it when you compare with tables 2 and 5 of the paper.

    Relations: ``macro`` averages the targets of each query first and then the queries, so that each query
    weighs the same. The paper does not report it; it shows whether large queries carry the figure.

    ``query``, ``roles`` and ``kinds`` have one entry a target: the number of its query, its role code (see
    ROLES) and its query's kind code (see KINDS). ``draws=0`` leaves the intervals out.
    """
    if len(ranks) == 0:
        raise EmptyResult("no target was ranked, so there is nothing to average")
    numbers, query = np.unique(query, return_inverse=True)
    roles, kinds = np.asarray(roles), np.asarray(kinds)
    sizes = np.bincount(query)[query]

    groups: dict[tuple[str, str], NDArray[np.bool_]] = {("", "overall"): np.ones(len(ranks), bool)}
    for part, codes, label in (
        ("position", roles, lambda code: ROLES[code]),
        ("kind", kinds, lambda code: KINDS[code]),
        ("targets", sizes, str),
    ):
        for code in np.unique(codes).tolist():
            groups[part, label(code)] = codes == code

    contributions = {rule: values(ranks.by(rule)) for rule in TIE_RULES}
    sums = {key: _per_query(contributions["realistic"], query, len(numbers), group) for key, group in groups.items()}
    counts = {key: np.bincount(query[group], minlength=len(numbers)).astype(float) for key, group in groups.items()}
    # A query's mean counts once: the same arithmetic, with means for sums and ones for counts.
    macro = ("", "macro")
    per_query = counts["", "overall"][:, None]
    sums[macro], counts[macro] = sums["", "overall"] / per_query, np.ones(len(numbers))
    ends = {}
    if draws:
        named = {str(number): key for number, key in enumerate(sums)}
        found = bootstrap(
            {name: sums[key] for name, key in named.items()},
            {name: counts[key] for name, key in named.items()},
            draws=draws,
            seed=seed,
            level=level,
        )
        ends = {named[name]: interval for name, interval in found.items()}

    def summary(key: tuple[str, str]) -> Summary:
        if key == macro:
            means = {
                rule: (_per_query(array, query, len(numbers), groups["", "overall"]) / per_query).mean(axis=0)
                for rule, array in contributions.items()
            }
            targets = len(ranks)
        else:
            means = {rule: array[groups[key]].mean(axis=0) for rule, array in contributions.items()}
            targets = int(groups[key].sum())
        return Summary(
            queries=int((counts[key] > 0).sum()),
            targets=targets,
            metrics={rule: dict(zip(METRICS, means[rule].tolist(), strict=True)) for rule in TIE_RULES},
            intervals={metric: (low, high) for metric, (low, high) in zip(METRICS, ends[key].tolist(), strict=True)}
            if key in ends
            else {},
        )

    def family(name: str) -> dict[str, Summary]:
        return {key[1]: summary(key) for key in groups if key[0] == name}

    return CqFigures(summary(("", "overall")), summary(macro), family("position"), family("kind"), family("targets"))


def _per_query(
    contributions: NDArray[np.float64], query: NDArray[np.integer], queries: int, group: NDArray[np.bool_]
) -> NDArray[np.float64]:
    """(Q, metrics) summed contributions of each query's targets in the group."""
    owner = query[group]
    return np.stack([np.bincount(owner, column[group], minlength=queries) for column in contributions.T], axis=1)
