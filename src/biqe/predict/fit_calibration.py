"""Rows that a model lists for validation queries, which of them are true, and what a calibration makes of them.

A validation query is asked as a user would ask it, with the training triples as the known graph. Listed rows are those
that the training graph does not hold; a row is true if the complete graph (train, valid and test) holds it. Three kinds
of queries are asked: the mined ones with all their targets, others with one target and the rest hidden, and others cut
down to a single link; for users ask all of these.

One half of the queries is fitted on and the other measured on, so that every figure is about queries that the fit has
not seen.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from biqe.errors import EmptyResult, InvalidOption, UnsupportedQuery
from biqe.evaluate.reliability import Reliability, reliability
from biqe.evaluate.scoring import Progress
from biqe.evaluate.tuples import TrueTuples, one_link, one_target
from biqe.exact.answers import tuples
from biqe.graph.knowledge_graph import Graph
from biqe.predict import probability
from biqe.predict.calibration import GRID, MOST_KNOWN, MOST_TARGETS, Calibration, Thresholds, features
from biqe.predict.config import BEAM, TOP, Joint
from biqe.predict.joint import decode_many
from biqe.predict.predictor import Predictor
from biqe.query.bound import BoundQuery
from biqe.query.queryset import QuerySet

LISTED = 500
"""Rows that are listed of each query; how often they hold the gold row limits the coverage of answer sets."""
COVERAGES = (0.5, 0.8, 0.9)
"""Coverages that are checked on the half that was not fitted on."""
BLOCK = 64
"""Queries that are asked together."""
_RIDGE = 1e-3
_BLOCK = 40
"""Rows behind each point of the curve, at least."""
_POINTS = 60


@dataclass(frozen=True)
class ListedQueries:
    """Rows listed for Q queries, R rows in all; the arrays of rows stand query by query, best first."""

    targets: NDArray[np.int64]
    """(Q,) number of targets."""
    known: NDArray[np.int64]
    """(Q,) rows that the known graph holds, counted up to MOST_KNOWN."""
    gold_scores: NDArray[np.float64]
    """(Q,) log-probability of the gold row; -inf where it is not listed."""
    in_training: NDArray[np.bool_]
    """(Q,) whether the known graph holds the gold row, so that it cannot be listed."""
    scores: tuple[NDArray[np.float64], ...]
    """(Q,) log-probabilities of all listed rows of each query, best first."""
    query: NDArray[np.int64]
    """(R,) the query of each of the first ``top`` rows."""
    log_probabilities: NDArray[np.float64]
    """(R,)"""
    true: NDArray[np.bool_]
    """(R,) whether the complete graph holds the row."""

    def rows_of(self, queries: NDArray[np.int64]) -> NDArray[np.int64]:
        """Places of the rows of these queries."""
        return np.flatnonzero(np.isin(self.query, queries))

    @property
    def first(self) -> NDArray[np.float64]:
        """(R,) log-probability of the first row of each row's query."""
        best = np.array([scores.max(initial=-np.inf) for scores in self.scores])
        return best[self.query]

    @property
    def is_first(self) -> NDArray[np.bool_]:
        """(R,) whether the row is its query's first."""
        return np.concatenate([[True], self.query[1:] != self.query[:-1]])[: len(self.query)]


@dataclass(frozen=True)
class Calibrated:
    """A calibration, and reliability on the queries that it was not fitted on."""

    calibration: Calibration
    before: Mapping[str, Reliability]
    """By group of rows: ``all``, ``first`` (the first row of each query), and by number of targets."""
    after: Mapping[str, Reliability]


def validation_questions(queries: QuerySet, seed: int = 0) -> list[tuple[BoundQuery, list[int]]]:
    """What is asked, with its gold row: a third of the queries as they are, a third with one target, a third of one
    link. Queries without gold entities are left out."""
    rng = np.random.default_rng(seed)
    shares = np.array_split(rng.permutation(len(queries)), 3)
    whole, alone, links = (queries.take(np.sort(share)) for share in shares)
    asked = []
    for part in (whole, one_target(alone, rng), one_link(links, rng)):
        for row, query in enumerate(part):
            gold = part.gold[part.node_offsets[row] : part.node_offsets[row + 1]][list(query.targets)]
            if len(gold) and (gold >= 0).all():
                asked.append((query, gold.tolist()))
    return asked


def list_rows(
    predictor: Predictor,
    asked: list[tuple[BoundQuery, list[int]]],
    known: Graph,
    complete: Graph,
    *,
    joint: Joint | None = None,
    top: int = TOP,
    progress: Progress | None = None,
) -> ListedQueries:
    """Rows that are listed for each query of ``asked``, without those that ``known`` holds, the first ``top`` compared
    with ``complete``. Queries that the model does not support are left out."""
    if top < 1:
        raise InvalidOption(f"'top' must be at least 1. Got {top}")
    able = [pair for pair in asked if _supported(predictor, pair[0])]
    if not able:
        raise EmptyResult(
            f"{predictor.name} supports none of {len(asked):,} queries, so there is nothing to calibrate on"
        )
    targets, counts, gold_scores, in_training = [], [], [], []
    scores: list[NDArray[np.float64]] = []
    query_of, shares, true = [], [], []
    for first in range(0, len(able), BLOCK):
        block = able[first : first + BLOCK]
        excluded = [TrueTuples(known, query) for query, _ in block]
        found = decode_many(predictor, [query for query, _ in block], excluded, count=max(top, LISTED), joint=joint)
        for number, ((query, gold), out, ranked) in enumerate(zip(block, excluded, found, strict=True), first):
            assert ranked.scores is not None
            row = np.array([gold], np.int32)
            place = np.flatnonzero((ranked.entities == row).all(axis=1))
            targets.append(len(query.targets))
            counts.append(len(tuples(known, query, limit=MOST_KNOWN)))
            gold_scores.append(ranked.scores[place[0]] if len(place) else -np.inf)
            in_training.append(bool(out.holds(row)[0]))
            scores.append(ranked.scores)
            shown = ranked.entities[:top]
            query_of.append(np.full(len(shown), number))
            shares.append(ranked.scores[: len(shown)])
            true.append(TrueTuples(complete, query).holds(shown))
        if progress is not None:
            progress(min(first + BLOCK, len(able)), len(able))
    return ListedQueries(
        np.array(targets),
        np.array(counts),
        np.array(gold_scores),
        np.array(in_training),
        tuple(scores),
        np.concatenate(query_of).astype(np.int64),
        np.concatenate(shares),
        np.concatenate(true),
    )


def calibrate(listed: ListedQueries, *, seed: int = 0, decode: str = BEAM, top: int = TOP) -> Calibrated:
    """A calibration fitted on the rows of one half of the queries, and its reliability on those of the other half."""
    fitted_on, measured_on = halves(len(listed.targets), seed)
    rows, others = listed.rows_of(fitted_on), listed.rows_of(measured_on)
    if len(rows) == 0 or len(others) == 0:
        raise EmptyResult(
            f"{len(listed.targets):,} queries with {len(listed.query):,} listed rows are too few to "
            "calibrate on one half and measure on the other"
        )
    first, owner = listed.first, listed.query
    found = fit(
        listed.log_probabilities[rows],
        first[rows],
        listed.known[owner[rows]],
        listed.targets[owner[rows]],
        listed.true[rows],
    )
    missing = ~listed.in_training
    own, other = fitted_on[missing[fitted_on]], measured_on[missing[measured_on]]
    sets = fit_thresholds(listed.gold_scores[own], listed.targets[own])
    found = replace(found, decode=decode, top=top, sets=sets)
    plain_shares = np.exp(listed.log_probabilities)
    probabilities = np.concatenate(
        [
            probability.of_rows(
                listed.log_probabilities[listed.query == query],
                found,
                targets=int(listed.targets[query]),
                known=int(listed.known[query]),
            )
            for query in np.unique(owner).tolist()
        ]
    )
    groups = {"all": np.ones(len(owner), bool), "first": listed.is_first}
    groups |= {f"{name} targets": members for name, members in by_group(listed.targets[owner]).items()}
    before, after = {}, {}
    measured = np.isin(np.arange(len(owner)), others)
    for name, members in groups.items():
        chosen = members & measured
        if chosen.any():
            before[name] = reliability(plain_shares[chosen], listed.true[chosen])
            after[name] = reliability(probabilities[chosen], listed.true[chosen])
    report: dict[str, Any] = {
        "queries_fitted": len(fitted_on),
        "queries_measured": len(measured_on),
        "rows_fitted": len(rows),
        "rows_measured": len(others),
        "ece_before": {name: value.error for name, value in before.items()},
        "ece_after": {name: value.error for name, value in after.items()},
        "brier_before": {name: value.brier for name, value in before.items()},
        "brier_after": {name: value.brier for name, value in after.items()},
        "true_share": {name: value.true_share for name, value in after.items()},
        "coverage": _coverage(listed, other, sets),
    }
    return Calibrated(replace(found, report=report), before, after)


def _coverage(listed: ListedQueries, queries: NDArray[np.int64], sets: Thresholds) -> list[dict[str, Any]]:
    """How often answer sets hold the gold row of queries that their thresholds were not fitted on, and their size."""
    found = []
    for name, members in by_group(listed.targets[queries]).items():
        own = queries[members]
        for coverage in COVERAGES:
            try:
                threshold = sets.threshold(coverage, int(name))
            except InvalidOption:
                continue  # too few queries, or too few golds in the lists: there is no such set
            sizes = [int(in_set(listed.scores[query], threshold).sum()) for query in own.tolist()]
            found.append(
                {
                    "targets": int(name),
                    "stated": coverage,
                    "found": float(in_set(listed.gold_scores[own], threshold).mean()),
                    "queries": len(own),
                    "median_rows": float(np.median(sizes)),
                }
            )
    return found


def _supported(predictor: Predictor, query: BoundQuery) -> bool:
    try:
        predictor.prepare(query)
    except UnsupportedQuery:
        return False
    return True


# Fits


def fit(
    scores: NDArray[np.floating],
    first: NDArray[np.floating],
    known: NDArray[np.integer],
    targets: NDArray[np.integer],
    true: NDArray[np.bool_],
) -> Calibration:
    """A calibration from listed rows: log-probability of each, that of its query's first row, known rows of its query,
    targets of its query, and whether it is true."""
    if len({len(column) for column in (scores, first, known, targets, true)}) != 1:
        raise InvalidOption("every row needs a score, its query's first score, known rows, targets and truth")
    if len(scores) == 0:
        raise EmptyResult("there is no listed row to calibrate on")
    table = features(np.asarray(scores, np.float64), np.asarray(first, np.float64), known, targets)
    truth = np.asarray(true, np.float64)
    weights = _logistic(table, truth)
    if weights[0] < 0:
        # Larger shares may be less often true on few rows; they must not be put behind smaller ones for it.
        weights = np.concatenate([[0.0], _logistic(table[:, 1:], truth)])
    slope, best, held, lone, lone_best, *bias = weights.tolist()
    logits, probabilities = _curve(table @ weights, truth)
    return Calibration(slope, best, held, tuple(bias), logits, probabilities, lone, lone_best)


def _logistic(table: NDArray[np.float64], truth: NDArray[np.float64]) -> NDArray[np.float64]:
    """Weights of a logistic regression, by Newton's method with a little ridge, so that it always has a solution."""
    weights = np.zeros(table.shape[1])

    def loss(candidate: NDArray[np.float64]) -> float:
        logits = table @ candidate
        return float(np.logaddexp(0, logits).sum() - truth @ logits + _RIDGE / 2 * candidate @ candidate)

    current = loss(weights)
    for _ in range(100):
        probabilities = _sigmoid(table @ weights)
        gradient = table.T @ (probabilities - truth) + _RIDGE * weights
        curvature = (table * (probabilities * (1 - probabilities))[:, None]).T @ table
        step = np.linalg.solve(curvature + _RIDGE * np.eye(len(weights)), gradient)
        scale = 1.0
        while (following := loss(weights - scale * step)) > current and scale > 1e-8:
            scale /= 2
        weights = weights - scale * step
        if current - following < 1e-9 * max(1.0, abs(current)):
            break
        current = following
    return weights


def _sigmoid(logits: NDArray[np.float64]) -> NDArray[np.float64]:
    return np.exp(-np.logaddexp(0, -logits))


def _curve(logits: NDArray[np.float64], truth: NDArray[np.float64]) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Points of a curve from logits to shares of true rows that never falls."""
    order = np.argsort(logits, kind="stable")
    blocks = np.array_split(order, max(1, min(_POINTS, len(order) // _BLOCK)))
    # Half a true and half a false row are added to each block, so that no finite number of rows makes a row certain.
    shares = np.array([(truth[block].sum() + 0.5) / (len(block) + 1) for block in blocks])
    sizes = np.array([len(block) for block in blocks], np.float64)
    places = np.array([logits[block].mean() for block in blocks])
    return tuple(places.tolist()), tuple(isotonic(shares, sizes).tolist())


def isotonic(values: NDArray[np.float64], weights: NDArray[np.float64]) -> NDArray[np.float64]:
    """The non-decreasing sequence nearest to ``values`` in weighted squares: neighbours that fall are merged."""
    merged: list[list[float]] = []  # mean, weight, length
    for value, weight in zip(values.tolist(), weights.tolist(), strict=True):
        merged.append([value, weight, 1])
        while len(merged) > 1 and merged[-2][0] > merged[-1][0]:
            mean, heavy, length = merged.pop()
            before = merged[-1]
            total = before[1] + heavy
            merged[-1] = [(before[0] * before[1] + mean * heavy) / total, total, before[2] + length]
    return np.repeat([block[0] for block in merged], [int(block[2]) for block in merged])


def fit_thresholds(scores: NDArray[np.floating], targets: NDArray[np.integer] | Sequence[int]) -> Thresholds:
    """Thresholds of answer sets, by split-conformal prediction, from the log-probabilities of the missing answers of
    held-out queries, -inf where they were not listed, and the queries' numbers of targets.

    With the scores of n such answers sorted, the threshold of coverage c is the k-th smallest, where k is
    floor((1 - c)(n + 1)). For a further query of the same kind the missing answer then reaches it with probability c at
    least, however bad the model is; a bad model pays with large sets. (Vovk et al. 2005, "Algorithmic Learning in a
    Random World". Where a query misses several answers, this holds for one of them drawn at random.)
    """
    scores = np.asarray(scores, np.float64)
    group_of = np.minimum(np.asarray(targets, np.int64), MOST_TARGETS)
    if len(scores) != len(group_of):
        raise InvalidOption(f"each query needs a score and a number of targets. Got {len(scores)} and {len(group_of)}")
    groups, counts = {}, {}
    for group in np.unique(group_of).tolist():
        own = np.sort(scores[group_of == group])
        groups[group] = tuple(_threshold(own, coverage) for coverage in GRID)
        counts[group] = len(own)
    return Thresholds(groups, counts)


def _threshold(ordered: NDArray[np.float64], coverage: float) -> float | None:
    """The k-th smallest score, k = floor((1 - c) (n + 1)); None where there is none, or it is infinite."""
    # Coverages are whole percents: so counted, floor is not at the mercy of 1 - 0.9 = 0.0999...
    place = math.floor((100 - round(100 * coverage)) * (len(ordered) + 1) / 100)
    if place < 1 or not np.isfinite(ordered[place - 1]):
        return None
    return float(ordered[place - 1])


def in_set(log_probabilities: NDArray[np.floating], threshold: float) -> NDArray[np.bool_]:
    """(n,) which rows an answer set with this threshold holds. Where all of them are in, rows that were not listed may
    belong to it too: list more."""
    return np.asarray(log_probabilities, np.float64) >= threshold


def halves(count: int, seed: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Numbers 0..count-1 in two random halves, each ascending: one to fit on, one to measure on."""
    order = np.random.default_rng(seed).permutation(count)
    return np.sort(order[: count // 2]), np.sort(order[count // 2 :])


def by_group(targets: Sequence[int] | NDArray[np.integer]) -> dict[str, NDArray[np.bool_]]:
    """Members by number of targets, ``3`` standing for three and more; groups without members are left out."""
    group = np.minimum(np.asarray(targets), MOST_TARGETS)
    return {str(number): group == number for number in range(1, MOST_TARGETS + 1) if (group == number).any()}
