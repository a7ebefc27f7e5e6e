"""Rows that the graph does not hold, with what they rest on."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from biqe.answer.config import AskConfig
from biqe.answer.conformal import in_set
from biqe.answer.evidence import Evidence, EvidenceFinder, IdLink
from biqe.answer.joint import Joint
from biqe.answer.predicted import Predictor, Restricted
from biqe.answer.rank import Found, rank
from biqe.errors import InvalidOption
from biqe.exact.filters import Filters, columns_of
from biqe.graph.knowledge_graph import Graph
from biqe.query.bind_question import BoundBranch

SET_ROWS = 500
"""Rows that are listed for an answer set, as when its thresholds were measured."""
LISTED_ROWS = 2_000
"""Predicted rows that conditions on several variables are evaluated on."""

Rows = NDArray[np.int32]
Proposal = tuple[Rows, NDArray[np.float64], list[Evidence], dict[IdLink, float], NDArray[np.float32]]
"""Predicted rows with all that goes with them: the fields of Combined from ``predicted`` to ``marginals``."""


def propose(
    graph: Graph, branch: BoundBranch, filters: Filters, predictor: Predictor, config: AskConfig, count: int,
    known: Rows, known_wide: Rows | None, complete: bool, elsewhere: Rows,
) -> Proposal:  # fmt: skip
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
    names = [branch.wide.names[node] for node in branch.wide.targets] if not branch.is_plain else []
    allowed = {name: passed for name in names if (passed := filters.allowed(name)) is not None}
    asked = Restricted(predictor, allowed) if allowed else predictor
    while True:
        found = rank(graph, branch.wide, asked, exclude, wanted, Joint(config.joint, config.width))
        rows = _passing(branch, filters, found, known, width)
        exhausted = len(found.tuples) < wanted or wanted >= LISTED_ROWS
        if branch.is_plain or len(rows) >= count or exhausted:
            break
        # Conditions on several variables sort rows out only afterwards: list more.
        wanted = min(4 * wanted, LISTED_ROWS)
    likely = [row for row in rows if found.probabilities[row] >= config.min_probability]
    if threshold is not None:
        if found.log_shares is None:
            raise InvalidOption("coverage is stated for queries that a model reads whole, and this one it does not",
                                hint="leave --coverage out")  # fmt: skip
        inside = in_set(found.log_shares, threshold)
        likely = [row for row in likely if inside[row]]

    finder = EvidenceFinder(graph, branch.wide)
    choices, kept = [], []
    for number in likely:
        alternatives = finder.alternatives(found.tuples[number].tolist())
        if any(group[0].missing for group in alternatives):
            choices.append(alternatives)
            kept.append(number)
            if len(kept) == count:
                break
    evidence, used = _weighed(choices, predictor, graph, _answered(branch, found, graph))
    rows_ = np.ascontiguousarray(found.tuples[kept][:, :width])
    return rows_, found.probabilities[kept], evidence, used, found.marginals[:width]


def _threshold(branch: BoundBranch, predictor: Predictor, coverage: float) -> float:
    """The log-share that rows of an answer set reach."""
    if not branch.is_plain:
        raise InvalidOption("coverage is stated for queries without FILTER and VALUES", hint="leave --coverage out")
    if predictor.calibration is None:
        raise InvalidOption(f"{predictor.name} was not calibrated, so no coverage can be stated",
                            hint="biqe calibrate RUN --set SET, then ask again")  # fmt: skip
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


Answered = dict[tuple[int, int], NDArray[np.float32]]
"""Log-probabilities of all objects, by subject and relation."""


def _answered(branch: BoundBranch, found: Found, graph: Graph) -> Answered:
    """What a query of one link has already told about that link."""
    query = branch.wide
    if not branch.is_plain or len(query.edges) != 1:
        return {}
    ((subject, relation, object_),) = query.edges
    if query.nodes[subject] < 0 or query.targets != (object_,) or relation >= graph.relation_count:
        return {}
    return {(query.nodes[subject], relation): found.marginals[0]}


def _weighed(
    choices: list[list[list[Evidence]]], predictor: Predictor, graph: Graph, answered: Answered
) -> tuple[list[Evidence], dict[IdLink, float]]:
    """Of each row, the witness whose missing links are most probable; and the probabilities of those links."""
    links = list(dict.fromkeys(
        link for alternatives in choices for group in alternatives for evidence in group
        for link in evidence.missing if link.is_closed
    ))  # fmt: skip
    weights = dict(zip(links, predictor.link_probabilities(links, graph, answered=answered), strict=True))

    def weight(evidence: Evidence) -> float:
        return float(np.prod([weights[link] if link.is_closed else 0.0 for link in evidence.missing]))

    evidence = [sum((max(group, key=weight) for group in alternatives), Evidence()) for alternatives in choices]
    return evidence, {link: weights[link] for row in evidence for link in row.missing if link.is_closed}
