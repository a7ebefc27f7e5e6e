"""Known rows first and complete, then predicted rows that are not known; a row never twice."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from biqe.answer.evidence import Evidence, EvidenceFinder, IdLink
from biqe.answer.joint import WIDTH, Ranked, beam, product
from biqe.answer.predicted import Predictor
from biqe.errors import InvalidOption
from biqe.exact.answers import tuples
from biqe.graph.knowledge_graph import Graph
from biqe.query.bound import BoundQuery

KNOWN = "known"
"""Status of a row that the graph holds."""
PREDICTED = "predicted"
"""Status of a row that the graph does not hold, and the model proposes."""
MODES = ("both", "known", "predicted")
JOINT = ("beam", "product")
KNOWN_ROWS = 100_000
"""Known rows that are kept; a query with more of them says so."""


@dataclass(frozen=True)
class AskConfig:
    """How a query is answered."""

    mode: str = "both"
    """Rows wanted: known (held by the graph), predicted (not held, but likely), or both."""
    top: int = 20
    """Predicted rows, at most."""
    min_probability: float = 0.0
    """Predicted rows below this probability are left out."""
    joint: str = "beam"
    """How tuples for several targets are ranked: beam (one target after the other) or product (all at once)."""
    width: int = WIDTH
    """Tuples that the beam keeps after each target."""

    def __post_init__(self) -> None:
        for name, allowed in (("mode", MODES), ("joint", JOINT)):
            if getattr(self, name) not in allowed:
                raise InvalidOption(f"{name!r} must be one of {', '.join(allowed)}. Got {getattr(self, name)!r}")
        if self.top < 0:
            raise InvalidOption(f"'top' must be at least 0. Got {self.top}")
        if self.width < 1:
            raise InvalidOption(f"'width' must be at least 1. Got {self.width}")
        if not 0.0 <= self.min_probability <= 1.0:
            raise InvalidOption(f"'min_probability' must be in [0, 1]. Got {self.min_probability}")


@dataclass(frozen=True)
class Combined:
    """Rows in ids; (n, T) tuples have one column a target, in SELECT order."""

    known: NDArray[np.int32]
    known_complete: bool
    """Whether ``known`` holds every known row; false where they are too many, or LIMIT cut them off."""
    predicted: NDArray[np.int32]
    probabilities: NDArray[np.float64]
    """(m,) of the predicted rows."""
    evidence: list[Evidence] = field(default_factory=list)
    """Of each predicted row."""
    link_probabilities: dict[IdLink, float] = field(default_factory=dict)
    """Of the missing links whose two ends are entities."""
    marginals: NDArray[np.float32] | None = None
    """(T, E) log-probabilities of each target alone; None where no model was asked."""


Prediction = tuple[NDArray[np.int32], NDArray[np.float64], list[Evidence], dict[IdLink, float], NDArray[np.float32]]
"""Predicted rows with all that goes with them: the last five fields of Combined."""


def combine(graph: Graph, query: BoundQuery, predictor: Predictor | None, config: AskConfig) -> Combined:
    """Known rows from ``graph``, then predicted rows that it does not hold, the most probable first.

    LIMIT counts both; known rows are served first. Without a predictor there are known rows only.
    """
    most = KNOWN_ROWS
    if config.mode != "predicted" and query.limit is not None:
        most = min(most, query.limit)
    # One row more than wanted tells whether there are more.
    known = tuples(graph, query, limit=most + 1)
    complete = len(known) <= most
    known = _by_label(graph, known[:most])

    predicted = config.top
    if query.limit is not None:
        predicted = min(predicted, query.limit - (len(known) if config.mode == "both" else 0))
    if config.mode == "known" or predictor is None or predicted <= 0:
        return Combined(known if config.mode != "predicted" else known[:0], complete, known[:0], np.zeros(0))
    found = _predict(graph, query, predictor, config, predicted, known, complete)
    return Combined(known if config.mode == "both" else known[:0], complete, *found)


def _predict(
    graph: Graph, query: BoundQuery, predictor: Predictor, config: AskConfig, count: int,
    known: NDArray[np.int32], complete: bool,
) -> Prediction:  # fmt: skip
    """Up to ``count`` rows that the graph does not hold."""
    marginals = predictor.log_probabilities([predictor.prepare(query)])
    # Where not all known rows are at hand, the evidence tells which of the ranked rows are known after all.
    wanted = count if complete else 4 * max(count, config.width)
    if config.joint == "product" and len(query.targets) > 1:
        ranked = product(marginals, known, count=wanted)
    else:
        ranked = beam(predictor, query, marginals, known, count=wanted, width=config.width)
    likely = np.exp(ranked.log_probabilities) >= config.min_probability
    ranked = Ranked(ranked.tuples[likely], ranked.log_probabilities[likely])

    finder = EvidenceFinder(graph, query)
    choices, kept = [], []
    for number, row in enumerate(ranked.tuples.tolist()):
        alternatives = finder.alternatives(row)
        if any(group[0].missing for group in alternatives):
            choices.append(alternatives)
            kept.append(number)
            if len(kept) == count:
                break
    links = list(dict.fromkeys(
        link for alternatives in choices for group in alternatives for evidence in group
        for link in evidence.missing if link.is_closed
    ))  # fmt: skip
    weights = dict(zip(links, predictor.link_probabilities(links), strict=True))

    def weight(evidence: Evidence) -> float:
        return float(np.prod([weights[link] if link.is_closed else 0.0 for link in evidence.missing]))

    evidence = [sum((max(group, key=weight) for group in alternatives), Evidence()) for alternatives in choices]
    used = {link: weights[link] for row in evidence for link in row.missing if link.is_closed}
    return ranked.tuples[kept], np.exp(ranked.log_probabilities[kept]), evidence, used, marginals


def _by_label(graph: Graph, rows: NDArray[np.int32]) -> NDArray[np.int32]:
    """The rows in alphabetical order of what is shown for them."""
    if len(rows) == 0:
        return rows
    ids, places = np.unique(rows, return_inverse=True)
    labels = [graph.vocabulary.label(int(entity)).casefold() for entity in ids]
    rank = np.empty(len(ids), np.int64)
    rank[sorted(range(len(ids)), key=labels.__getitem__)] = np.arange(len(ids))
    return rows[np.lexsort(rank[places.reshape(rows.shape)].T[::-1])]
