"""Known rows first and complete, then predicted rows that are not known; a row never twice.

``combine`` answers one conjunction; ``merge`` joins the sides of a UNION.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from biqe.answer.config import JOINT, MODES, AskConfig
from biqe.answer.evidence import Evidence, IdLink
from biqe.answer.order import by_label
from biqe.answer.predicted import Predictor
from biqe.answer.propose import propose
from biqe.answer.rank import together
from biqe.errors import BiqeError
from biqe.exact.answers import MAX_ROWS, tuples
from biqe.exact.filtered_rows import filtered_rows
from biqe.exact.filters import Filters
from biqe.graph.knowledge_graph import Graph
from biqe.query.bind_question import BoundBranch
from biqe.query.bound import BoundQuery

__all__ = ["JOINT", "KNOWN", "MODES", "PREDICTED", "AskConfig", "Combined", "combine", "merge"]

KNOWN = "known"
"""Status of a row that the graph holds."""
PREDICTED = "predicted"
"""Status of a row that the graph does not hold, and the model proposes."""
KNOWN_ROWS = 100_000
"""Known rows that are kept; a query with more of them says so."""

Rows = NDArray[np.int32]
Arrange = Callable[[Graph, Rows], NDArray[np.integer]]
"""Places of the rows in the order that somebody wants them in."""


@dataclass(frozen=True)
class Combined:
    """Rows in ids; (n, T) tuples have one column a target, in SELECT order."""

    known: Rows
    known_complete: bool
    """Whether ``known`` holds every known row; false where they are too many, or LIMIT cut them off."""
    predicted: Rows
    probabilities: NDArray[np.float64]
    """(m,) of the predicted rows."""
    evidence: list[Evidence] = field(default_factory=list)
    """Of each predicted row; none where the model was not asked about links."""
    link_probabilities: dict[IdLink, float] = field(default_factory=dict)
    """Of the missing links whose two ends are entities."""
    marginals: NDArray[np.float32] | None = None
    """(T, E) log-probabilities of each target alone; None where no model was asked."""
    known_wide: Rows | None = None
    """(n, W) of each known row, the entities of all variables that are selected or that a condition names, in the order
    of the branch's wide query; sides of a UNION with fewer of them are filled up with -1. None where no condition
    names a variable."""
    predicted_wide: Rows | None = None
    """(m, W) the same of each predicted row."""
    branches: tuple[NDArray[np.int64], NDArray[np.int64]] | None = None
    """Side of the UNION that each known and each predicted row comes from; None where there is one side only."""
    known_capped: bool = False
    """Whether there are known rows beyond those that are read: not because LIMIT leaves them out."""
    remark: str = ""
    """What a user has to know about how the predicted rows were found, if anything."""


def combine(
    graph: Graph,
    query: BoundQuery | BoundBranch,
    predictor: Predictor | None,
    config: AskConfig,
    *,
    known_elsewhere: Rows | None = None,
    arrange: Arrange | None = None,
) -> Combined:
    """Known rows from ``graph``, then predicted rows that it does not hold, the most probable first.

    LIMIT counts both; known rows are served first. Without a predictor there are known rows only. Rows in
    ``known_elsewhere``, those of other sides of a UNION, are not predicted. ``arrange`` puts known rows in order; left
    out, they are in alphabetical order.
    """
    branch = query if isinstance(query, BoundBranch) else BoundBranch(query, query)
    limit = branch.query.limit
    filters = Filters(branch.filters, graph.vocabulary)
    known, wide, complete = _known(graph, branch, filters, arrange, is_shown=config.mode != "predicted")
    capped = not complete and config.mode != "predicted"
    if config.mode != "predicted" and limit is not None and len(known) > limit:
        known, wide, complete = known[:limit], None if wide is None else wide[:limit], False

    wanted = config.top
    if limit is not None:
        wanted = min(wanted, limit - (len(known) if config.mode == "both" else 0))
    if config.mode == "known" or predictor is None or wanted <= 0:
        shown = slice(None) if config.mode != "predicted" else slice(0)
        return Combined(
            known[shown],
            complete,
            known[:0],
            np.zeros(0),
            known_wide=None if wide is None else wide[shown],
            known_capped=capped,
        )
    elsewhere = known[:0] if known_elsewhere is None else known_elsewhere
    predicted, chances, evidence, links, marginals, behind, remark = propose(
        graph, branch, filters, predictor, config, wanted, known, wide, complete, elsewhere
    )
    shown = slice(None) if config.mode == "both" else slice(0)
    return Combined(
        known[shown],
        complete,
        predicted,
        chances,
        evidence,
        links,
        marginals,
        None if wide is None else wide[shown],
        None if wide is None else behind,
        known_capped=capped,
        remark=remark,
    )


def _known(
    graph: Graph, branch: BoundBranch, filters: Filters, arrange: Arrange | None, *, is_shown: bool
) -> tuple[Rows, Rows | None, bool]:
    """Known rows, in order where they are shown; the wide rows behind them; and whether these are all."""
    arrange = arrange if is_shown else None
    # The first rows of an order are the first of all rows, so all of them are looked at.
    most = KNOWN_ROWS if arrange is None else MAX_ROWS
    width = len(branch.query.targets)
    if branch.is_plain:
        # One row more than wanted tells whether there are more.
        rows = tuples(graph, branch.query, limit=most + 1)
        rows, complete = rows[:most], len(rows) <= most
    else:
        rows, complete = filtered_rows(graph, branch.wide, filters, width, limit=most)
    if arrange is not None and not complete:
        raise BiqeError(
            f"the query has too many known rows to put in order; at most {most:,} are",
            hint="leave ORDER BY out, or fix one of its variables",
        )
    if is_shown:
        complete = complete and len(rows) <= KNOWN_ROWS
        rows = rows[(arrange or by_label)(graph, rows[:, :width])[:KNOWN_ROWS]]
    return np.ascontiguousarray(rows[:, :width]), None if branch.is_plain else rows, complete


def merge(graph: Graph, sides: Sequence[Combined], config: AskConfig, arrange: Arrange | None = None) -> Combined:
    """The sides of a UNION together: a known row once, a predicted row with its best probability, if it is not known.

    Known rows of all sides are put in one order, as those of each side are.
    """
    if len(sides) == 1:
        return sides[0]
    known: dict[tuple[int, ...], tuple[int, int]] = {}
    for number, side in enumerate(sides):
        for place, row in enumerate(side.known.tolist()):
            known.setdefault(tuple(row), (number, place))
    rows = np.array(list(known), np.int32).reshape(-1, sides[0].known.shape[1])
    shown = (arrange or by_label)(graph, rows)[:KNOWN_ROWS]
    found = list(known.values())
    places = [found[place] for place in shown.tolist()]
    # In predicted mode known rows are not shown, and each side has left out its own only.
    best: dict[tuple[int, ...], tuple[float, int, int]] = {}
    for number, side in enumerate(sides):
        for place, (row, chance) in enumerate(zip(side.predicted.tolist(), side.probabilities.tolist(), strict=True)):
            key = tuple(row)
            if key not in known and chance > best.get(key, (-1.0,))[0]:
                best[key] = (chance, number, place)
    ordered = sorted(best.items(), key=lambda item: (-item[1][0], item[0]))[: config.top]
    links: dict[IdLink, float] = {}
    for side in sides:
        links |= side.link_probabilities
    return Combined(
        rows[shown],
        all(side.known_complete for side in sides) and len(shown) == len(rows),
        np.array([row for row, _ in ordered], np.int32).reshape(-1, rows.shape[1]),
        np.array([chance for _, (chance, _, _) in ordered]),
        [sides[number].evidence[place] for _, (_, number, place) in ordered] if config.links else [],
        links,
        _best_marginals(sides),
        _wide(places, [(side.known, side.known_wide) for side in sides]),
        _wide([found[1:] for _, found in ordered], [(side.predicted, side.predicted_wide) for side in sides]),
        branches=(
            np.array([number for number, _ in places], np.int64),
            np.array([number for _, (_, number, _) in ordered], np.int64),
        ),
        known_capped=any(side.known_capped for side in sides) or len(shown) < len(rows),
        remark=together([side.remark for side in sides]),
    )


def _wide(chosen: Sequence[tuple[int, int]], sides: Sequence[tuple[Rows, Rows | None]]) -> Rows | None:
    """Wide rows by side and place; None where no side has a condition."""
    if all(wide is None for _, wide in sides):
        return None
    tables = [rows if wide is None else wide for rows, wide in sides]
    found = np.full((len(chosen), max(table.shape[1] for table in tables)), -1, np.int32)
    for number, (side, place) in enumerate(chosen):
        row = tables[side][place]
        found[number, : len(row)] = row
    return found


def _best_marginals(sides: Sequence[Combined]) -> NDArray[np.float32] | None:
    """Of each target alone, by the side that thinks most of it; all entities together have probability 1."""
    tables = [side.marginals for side in sides if side.marginals is not None]
    if not tables:
        return None
    best = np.maximum.reduce(tables)
    return best - np.logaddexp.reduce(best, axis=1, keepdims=True)
