"""Rows that a model lists for validation queries, which of them are true, and what a calibration makes of them.

A validation query is asked as a user would ask it, with the training triples as the known graph. Listed rows are those
that the training graph does not hold; a row is true if the complete graph (train, valid and test) holds it. Three kinds
of queries are asked: the mined ones with all their targets, others with one target and the rest hidden, and others cut
down to a single link; for users ask all of these.

One half of the queries is fitted on and the other measured on, so that every figure is about queries that the fit has
not seen.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from biqe.answer import calibration as fitting
from biqe.answer import conformal
from biqe.answer.calibration import Calibration, by_group, calibrated, halves
from biqe.answer.config import JOINT, TOP
from biqe.answer.joint import Joint, decode_many
from biqe.answer.predicted import Predictor
from biqe.errors import EmptyResult, InvalidOption, UnsupportedQuery
from biqe.evaluate.reliability import Reliability, reliability
from biqe.evaluate.scoring import Progress
from biqe.evaluate.tuples import TrueTuples, one_link, one_target
from biqe.exact.answers import tuples
from biqe.graph.knowledge_graph import Graph
from biqe.query.bound import BoundQuery
from biqe.query.queryset import QuerySet

LISTED = 500
"""Rows that are listed of each query; how often they hold the gold row limits the coverage of answer sets."""
COVERAGES = (0.5, 0.8, 0.9)
"""Coverages that are checked on the half that was not fitted on."""
BLOCK = 64


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
            row = np.array([gold], np.int32)
            place = np.flatnonzero((ranked.tuples == row).all(axis=1))
            targets.append(len(query.targets))
            counts.append(len(tuples(known, query, limit=fitting.MOST_KNOWN)))
            gold_scores.append(ranked.log_probabilities[place[0]] if len(place) else -np.inf)
            in_training.append(bool(out.holds(row)[0]))
            scores.append(ranked.log_probabilities)
            shown = ranked.tuples[:top]
            query_of.append(np.full(len(shown), number))
            shares.append(ranked.log_probabilities[: len(shown)])
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


def calibrate(listed: ListedQueries, *, seed: int = 0, decode: str = JOINT[0], top: int = TOP) -> Calibrated:
    """A calibration fitted on the rows of one half of the queries, and its reliability on those of the other half."""
    fitted_on, measured_on = halves(len(listed.targets), seed)
    rows, others = listed.rows_of(fitted_on), listed.rows_of(measured_on)
    if len(rows) == 0 or len(others) == 0:
        raise EmptyResult(
            f"{len(listed.targets):,} queries with {len(listed.query):,} listed rows are too few to "
            "calibrate on one half and measure on the other"
        )
    first, owner = listed.first, listed.query
    found = fitting.fit(
        listed.log_probabilities[rows],
        first[rows],
        listed.known[owner[rows]],
        listed.targets[owner[rows]],
        listed.true[rows],
    )
    missing = ~listed.in_training
    own, other = fitted_on[missing[fitted_on]], measured_on[missing[measured_on]]
    sets = conformal.fit(listed.gold_scores[own], listed.targets[own])
    found = replace(found, decode=decode, top=top, sets=sets)
    plain_shares = np.exp(listed.log_probabilities)
    probabilities = np.concatenate(
        [
            calibrated(
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


def _coverage(listed: ListedQueries, queries: NDArray[np.int64], sets: conformal.Thresholds) -> list[dict[str, Any]]:
    """How often answer sets hold the gold row of queries that their thresholds were not fitted on, and their size."""
    found = []
    for name, members in by_group(listed.targets[queries]).items():
        own = queries[members]
        for coverage in COVERAGES:
            try:
                threshold = sets.threshold(coverage, int(name))
            except InvalidOption:
                continue  # too few queries, or too few golds in the lists: there is no such set
            sizes = [int(conformal.in_set(listed.scores[query], threshold).sum()) for query in own.tolist()]
            found.append(
                {
                    "targets": int(name),
                    "stated": coverage,
                    "found": float(conformal.in_set(listed.gold_scores[own], threshold).mean()),
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
