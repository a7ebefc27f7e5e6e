"""Rows that the graph does not hold, with what they rest on."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from biqe.answer.config import AskConfig
from biqe.answer.conformal import in_set
from biqe.answer.evidence import Evidence, EvidenceFinder, IdLink, weighed
from biqe.answer.joint import joint_of
from biqe.answer.pinned import rank_pinned
from biqe.answer.predicted import Predictor
from biqe.answer.rank import Found
from biqe.answer.ranked import all_different
from biqe.answer.remembered import Remembering
from biqe.errors import InvalidOption
from biqe.exact.filters import Filters, columns_of
from biqe.graph.knowledge_graph import Graph
from biqe.query.bind_question import BoundBranch

SET_ROWS = 500
"""Rows that are listed for an answer set, as when its thresholds were measured."""
LISTED_ROWS = 2_000
"""Predicted rows that conditions on several variables are evaluated on."""

Rows = NDArray[np.int32]
Proposal = tuple[Rows, NDArray[np.float64], list[Evidence], dict[IdLink, float], NDArray[np.float32], Rows, str]
"""Predicted rows with all that goes with them: the fields of Combined from ``predicted`` to ``marginals``, the wide
rows, and what to know about how they were found."""


def propose(
    graph: Graph,
    branch: BoundBranch,
    filters: Filters,
    predictor: Predictor,
    config: AskConfig,
    count: int,
    known: Rows,
    known_wide: Rows | None,
    complete: bool,
    elsewhere: Rows,
) -> Proposal:
    """Up to ``count`` rows that the graph does not hold and that pass the conditions, the most probable first.

    ``known_wide`` are the known rows with the hidden variables that conditions name; ``elsewhere`` are rows that
    another side of a UNION knows.
    """
    width = len(branch.query.targets)
    threshold = None
    if config.coverage is not None:
        threshold = _threshold(branch, predictor, config.coverage)
        count = SET_ROWS
    # Where not all known rows are at hand, the evidence tells which of the ranked rows are known after all.
    wanted = count if complete else 4 * max(count, config.width)
    exclude = np.concatenate([known, elsewhere]) if known_wide is None else known_wide
    known = np.concatenate([known, elsewhere])
    finder = EvidenceFinder(graph, branch.wide)
    remembering = Remembering(predictor, finder.links_ahead() if config.links else ())
    while True:
        found = rank_pinned(graph, branch.wide, remembering, exclude, wanted, joint_of(config, predictor), filters)
        rows = _passing(branch, filters, found, known, width)
        if config.injective:
            different = all_different(found.tuples[:, :width])
            rows = [row for row in rows if different[row]]
        exhausted = len(found.tuples) < wanted or wanted >= LISTED_ROWS
        if (branch.is_plain and not config.injective) or len(rows) >= count or exhausted:
            break
        # Conditions on several variables sort rows out only afterwards: list more.
        wanted = min(4 * wanted, LISTED_ROWS)
    likely = [row for row in rows if found.probabilities[row] >= config.min_probability]
    if threshold is not None:
        if found.log_shares is None:
            raise InvalidOption(
                "coverage is stated for queries that a model reads whole, and this one it does not",
                hint="leave --coverage out",
            )
        inside = in_set(found.log_shares, threshold)
        likely = [row for row in likely if inside[row]]

    choices, kept = [], []
    if complete and not config.links:
        # What is not among all known rows lacks something; what it is, nobody asks.
        kept, likely = likely[:count], []
    for number in likely:
        alternatives = finder.alternatives(found.tuples[number].tolist())
        if any(ways[0].missing for ways in alternatives):
            choices.append(alternatives)
            kept.append(number)
            if len(kept) == count:
                break
    evidence: list[Evidence] = []
    used: dict[IdLink, float] = {}
    if config.links:
        evidence, used = weighed(finder, choices, remembering)
    wide = found.tuples[kept]
    rows_ = np.ascontiguousarray(wide[:, :width])
    return rows_, found.probabilities[kept], evidence, used, found.marginals[:width], wide, found.remark


def _threshold(branch: BoundBranch, predictor: Predictor, coverage: float) -> float:
    """The log-share that rows of an answer set reach."""
    if not branch.is_plain:
        raise InvalidOption("coverage is stated for queries without FILTER and VALUES", hint="leave --coverage out")
    if predictor.calibration is None:
        raise InvalidOption(
            f"{predictor.name} was not calibrated, so no coverage can be stated",
            hint="biqe calibrate RUN --set SET, then ask again",
        )
    return predictor.calibration.sets.threshold(coverage, len(branch.query.targets))


def _passing(branch: BoundBranch, filters: Filters, found: Found, known: Rows, width: int) -> list[int]:
    """Numbers of the listed rows that pass, each selected row once, by its most probable wide row."""
    if branch.is_plain:
        return list(range(len(found.tuples)))
    passed = filters.passes(columns_of(branch.wide, found.tuples), len(found.tuples))
    seen = set(map(tuple, known.tolist()))
    kept = []
    for number in np.flatnonzero(passed).tolist():
        row = tuple(found.tuples[number, :width].tolist())
        if row not in seen:
            seen.add(row)
            kept.append(number)
    return kept
