"""How ranks become the figures of a table: averaging as each paper did it, by name.

A protocol is a function from ranks to a Summary of each group of targets. Its docstring says how it averages.
Protocol ``bio``, which compares scores and not ranks, has a file of its own: ``auc_apr.py``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from biqe.errors import EmptyResult
from biqe.evaluate.metrics import METRICS, bootstrap, bootstrap_means, percentile_ends, values
from biqe.evaluate.ranks import TIE_RULES, Ranks
from biqe.query.queryset import KINDS, ROLES

CQ, Q2B = "cq", "q2b"
CQ_VERSION = 1
Q2B_VERSION = 2
"""Raised whenever the same model would get other figures. q2b 1 took the best log-probability of a union's parts, 2
takes the best raw score; other shapes are as they were."""

CONJUNCTIVE = ("1p", "2p", "3p", "2i", "3i", "ip", "pi")
"""The shapes whose mean is the headline of protocol ``q2b``: those of table 1 of the paper. Unions stand apart."""


@dataclass(frozen=True)
class Summary:
    """Figures of one group of targets."""

    queries: int
    """Queries with at least one target in the group."""
    targets: int
    """What was ranked: targets in ``cq``, hard answers in ``q2b``; in ``bio``, the negatives compared with."""
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


@dataclass(frozen=True)
class ShapeFigures:
    """What protocols ``q2b`` and ``bio`` report: every shape by itself, and the mean of some of them."""

    overall: Summary
    by_shape: dict[str, Summary]
    mean_over: tuple[str, ...]
    """Shapes in ``overall``, each with the same weight."""


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


def q2b(
    figures: Mapping[str, NDArray[np.float64]],
    shape: NDArray[np.integer],
    shapes: Sequence[str],
    hard: NDArray[np.integer],
    *,
    draws: int = 1000,
    seed: int = 0,
    level: float = 0.95,
) -> ShapeFigures:
    """Protocol ``q2b``: Query2Box's way (Ren et al. 2020), which table 1 of the paper follows.

    Averages three times: over the hard answers of a question, each ranked with all other answers filtered out;
    then over the questions of a shape; then over the seven conjunctive shapes, each with the same weight. So a
    question with a thousand answers weighs as much as one with a single answer, and a shape with few questions as
    much as one with many. The figure to compare with published tables is HITS@3. Unions (2u, up) are reported by
    shape and stay out of the mean, as they stay out of the paper's table; where a set has unions alone, the mean
    is over them.

    Use it when you compare with table 1 of the paper, with Query2Box, or with CQD's tables on its data.

    Relations: later papers on the same data average over 1p to up, nine shapes; take the mean of ``by_shape`` for that.

    ``figures`` holds by tie rule an (N, metrics) array: each question's mean over its hard answers, in the order
    of METRICS (see ``question_figures``). ``shape`` and ``hard`` have one entry a question: the index of its
    shape in ``shapes`` and its number of hard answers. Intervals draw questions within each shape; ``draws=0``
    leaves them out.
    """
    shape, hard = np.asarray(shape), np.asarray(hard)
    if len(shape) == 0:
        raise EmptyResult("no question was ranked, so there is nothing to average")
    present = [name for code, name in enumerate(shapes) if (shape == code).any()]
    of = {name: np.flatnonzero(shape == list(shapes).index(name)) for name in present}
    means = {name: {rule: figures[rule][of[name]].mean(axis=0) for rule in TIE_RULES} for name in present}
    rng = np.random.default_rng(seed)
    drawn = {name: bootstrap_means(figures["realistic"][of[name]], draws=draws, rng=rng) for name in present if draws}
    over = tuple(name for name in present if name in CONJUNCTIVE) or tuple(present)
    by_shape = {
        name: summary_of(len(of[name]), int(hard[of[name]].sum()), METRICS, means[name], drawn.get(name), level)
        for name in present
    }
    return ShapeFigures(mean_of(by_shape, over, METRICS, drawn, level), by_shape, over)


def question_figures(
    ranks: Ranks, question: NDArray[np.integer], questions: int
) -> tuple[dict[str, NDArray[np.float64]], NDArray[np.int64]]:
    """By tie rule, (questions, metrics) means over the ranks of each question; and how many ranks each has.

    ``question`` has one entry a rank, in [0, questions). Questions without a rank get zeros.
    """
    counts = np.bincount(question, minlength=questions)
    everything = np.ones(len(ranks), bool)
    return {
        rule: _per_query(values(ranks.by(rule)), question, questions, everything) / np.maximum(counts, 1)[:, None]
        for rule in TIE_RULES
    }, counts


def summary_of(
    queries: int,
    targets: int,
    names: Sequence[str],
    means: Mapping[str, NDArray[np.float64]],
    drawn: NDArray[np.float64] | None,
    level: float,
) -> Summary:
    """A group's figures from its means by tie rule and, where there are any, from its (draws, metrics) draws."""
    intervals = {}
    if drawn is not None:
        ends = percentile_ends(drawn, means["realistic"], level).tolist()
        intervals = {name: (low, high) for name, (low, high) in zip(names, ends, strict=True)}
    figures = {rule: dict(zip(names, means[rule].tolist(), strict=True)) for rule in TIE_RULES}
    return Summary(queries, targets, figures, intervals)


def mean_of(
    groups: Mapping[str, Summary],
    over: Sequence[str],
    names: Sequence[str],
    drawn: Mapping[str, NDArray[np.float64]],
    level: float,
) -> Summary:
    """The mean of some groups, each with the same weight; its interval from the means of their draws."""
    means = {
        rule: np.array([np.mean([groups[group].metrics[rule][name] for group in over]) for name in names])
        for rule in TIE_RULES
    }
    draws = np.mean([drawn[group] for group in over], axis=0) if drawn else None
    queries, targets = (sum(getattr(groups[group], what) for group in over) for what in ("queries", "targets"))
    return summary_of(queries, targets, names, means, draws, level)


def _per_query(
    contributions: NDArray[np.float64], query: NDArray[np.integer], queries: int, group: NDArray[np.bool_]
) -> NDArray[np.float64]:
    """(Q, metrics) summed contributions of each query's targets in the group."""
    owner = query[group]
    return np.stack([np.bincount(owner, column[group], minlength=queries) for column in contributions.T], axis=1)
