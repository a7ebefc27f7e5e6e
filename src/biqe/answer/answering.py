"""A question answered: rows for SELECT, one verdict for ASK, two numbers for COUNT."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from biqe.answer.combine import Arrange, Combined, combine, merge
from biqe.answer.config import AskConfig
from biqe.answer.evidence import Evidence
from biqe.answer.joint import joint_of
from biqe.answer.order import by_keys
from biqe.answer.predicted import Predictor, Restricted
from biqe.answer.propose import LISTED_ROWS
from biqe.answer.rank import closed, together
from biqe.errors import BiqeError, InvalidOption
from biqe.exact.answers import MAX_ROWS, holds, tuples
from biqe.exact.filtered_rows import filtered_rows
from biqe.exact.filters import Filters, columns_of
from biqe.graph.knowledge_graph import Graph
from biqe.query.bind_question import BoundBranch, BoundQuestion
from biqe.query.bound import BoundQuery

TOO_MANY = "the query has more matches on this graph than its conditions can be checked for"
COUNTED_ROWS = 1_000
"""Predicted rows whose probabilities are added up for COUNT."""


def rows_of(graph: Graph, question: BoundQuestion, predictor: Predictor | None, config: AskConfig) -> Combined:
    """The rows of a SELECT: all sides of its UNION, in its order, and no more than it asks for."""
    if len(question.branches) > 1:
        _refuse_coverage(config, "a UNION")
    # What OFFSET skips is listed, too: ``top`` counts rows from there. ORDER BY orders the same rows on every page.
    skipped = 0 if question.order else question.offset
    listed = asked = replace(config, top=min(config.top + skipped, max(config.top, LISTED_ROWS)))
    if len(question.branches) > 1 and config.mode == "predicted":
        # A row that one side knows is no prediction of another; so known rows are looked up, and dropped at the end.
        asked = replace(listed, mode="both")
    merged = merge(graph, _sides(graph, question, predictor, asked), asked, _arrange(question))
    if asked is not listed:
        merged = _taken(merged, np.zeros(0, np.int64), np.arange(len(merged.predicted)))
        merged = replace(merged, known_capped=False)
    return _arranged(graph, merged, question, None if config.coverage is not None else config.top)


def _refuse_coverage(config: AskConfig, what: str) -> None:
    if config.coverage is not None:
        raise InvalidOption(
            f"coverage is stated for the rows of one conjunction, not for {what}", hint="leave --coverage out"
        )


def _sides(graph: Graph, question: BoundQuestion, predictor: Predictor | None, config: AskConfig) -> list[Combined]:
    """Each side of a UNION answered; none proposes what another knows."""
    arrange = _arrange(question)
    if len(question.branches) == 1 or predictor is None or config.mode == "known":
        return [combine(graph, branch, predictor, config, arrange=arrange) for branch in question.branches]
    known = [combine(graph, branch, None, config, arrange=arrange).known for branch in question.branches]
    return [
        combine(
            graph,
            branch,
            predictor,
            config,
            known_elsewhere=np.concatenate([*known[:number], *known[number + 1 :]]),
            arrange=arrange,
        )
        for number, branch in enumerate(question.branches)
    ]


def _arrange(question: BoundQuestion) -> Arrange | None:
    """How ORDER BY puts known rows in order, whose probability is 1; None where the question has none."""
    if not question.order:
        return None
    return lambda graph, rows: by_keys(graph, rows, np.ones(len(rows)), question.columns, question.order)


def _arranged(graph: Graph, rows: Combined, question: BoundQuestion, top: int | None) -> Combined:
    """The rows, known ones as they are and predicted ones by ORDER BY, cut by OFFSET, LIMIT and ``top``."""
    predicted: NDArray[np.integer] = np.arange(len(rows.predicted))
    if question.order:
        predicted = by_keys(graph, rows.predicted, rows.probabilities, question.columns, question.order)
    start = question.offset
    stop = None if question.limit is None else start + question.limit
    count = len(rows.known)
    shown = np.arange(count + len(predicted))[start:stop]
    cut = rows.known_complete and int((shown < count).sum()) == count
    capped = rows.known_capped and (stop is None or stop > count)
    taken = _taken(rows, shown[shown < count], predicted[shown[shown >= count][:top] - count])
    return replace(taken, known_complete=cut, known_capped=capped)


def _taken(rows: Combined, known: NDArray[np.integer], predicted: NDArray[np.integer]) -> Combined:
    """These known and these predicted rows, in this order."""
    return replace(
        rows,
        known=rows.known[known],
        predicted=rows.predicted[predicted],
        probabilities=rows.probabilities[predicted],
        evidence=[rows.evidence[place] for place in predicted.tolist()] if rows.evidence else [],
        known_wide=None if rows.known_wide is None else rows.known_wide[known],
        predicted_wide=None if rows.predicted_wide is None else rows.predicted_wide[predicted],
        branches=None if rows.branches is None else (rows.branches[0][known], rows.branches[1][predicted]),
    )


def verdict(graph: Graph, question: BoundQuestion, predictor: Predictor | None, config: AskConfig) -> Combined:
    """ASK: one row without columns, known or predicted; none where nothing speaks for it. What the graph holds is true
    in every mode.

    The probability is that of the side of the UNION which is most probable.
    """
    _refuse_coverage(config, "ASK")
    empty, one = np.zeros((0, 0), np.int32), np.zeros((1, 0), np.int32)
    for number, branch in enumerate(question.branches):
        wide = _known_match(graph, branch)
        if wide is not None:
            sides = (np.array([number], np.int64), np.zeros(0, np.int64))
            return Combined(one, True, empty, np.zeros(0), known_wide=wide, branches=sides)
    if predictor is None or config.mode == "known":
        return Combined(empty, True, empty, np.zeros(0))
    best: tuple[float, Evidence, int] | None = None
    for number, branch in enumerate(question.branches):
        chance, evidence = _closed(graph, branch, predictor, config)
        if best is None or chance > best[0]:
            best = chance, evidence, number
    if best is None or best[0] < config.min_probability or config.top == 0 or not best[1].missing:
        return Combined(empty, True, empty, np.zeros(0))
    chance, evidence, number = best
    links = list(evidence.missing)
    chances = dict(zip(links, predictor.link_probabilities(links, graph), strict=True))
    sides = (np.zeros(0, np.int64), np.array([number], np.int64))
    return Combined(empty, True, one, np.array([chance]), [evidence], chances, branches=sides)


def _known_match(graph: Graph, branch: BoundBranch) -> NDArray[np.int32] | None:
    """(1, W) a match that passes the conditions; None where the graph has none."""
    if branch.is_plain:
        return np.zeros((1, 0), np.int32) if holds(graph, branch.query) else None
    passed, complete = filtered_rows(graph, branch.wide, Filters(branch.filters, graph.vocabulary), 0, limit=1)
    if not complete and len(passed) == 0:
        raise BiqeError(TOO_MANY, hint="fix one of its variables")
    return passed[:1] if len(passed) else None


def _closed(graph: Graph, branch: BoundBranch, predictor: Predictor, config: AskConfig) -> tuple[float, Evidence]:
    filters = Filters(branch.filters, graph.vocabulary)
    allowed = {name: passed for name in branch.wide.names if name and (passed := filters.allowed(name)) is not None}
    asked = Restricted(predictor, allowed) if allowed else predictor

    def passes(query: BoundQuery, rows: NDArray[np.int32]) -> NDArray[np.bool_]:
        return filters.passes(columns_of(query, rows), len(rows))

    return closed(graph, branch.wide, asked, joint_of(config, predictor), passes=passes)


@dataclass(frozen=True)
class Counted:
    """What COUNT comes to."""

    known: int
    """Matches that the graph holds: exact."""
    expected: float | None
    """Matches beyond them that the model expects: the sum of their probabilities; None where no model was asked."""
    remark: str = ""
    """What to know about how these were found."""


def count(graph: Graph, question: BoundQuestion, predictor: Predictor | None, config: AskConfig) -> Counted:
    """Matches of a question: distinct ones for COUNT DISTINCT, all of them over all sides of a UNION otherwise."""
    _refuse_coverage(config, "COUNT")
    # Everything below works on the counted variables, or on all of them; so no row stands for two matches.
    distinct = bool(question.columns)
    sides = [_known_rows(graph, branch) for branch in question.branches]
    known = len({tuple(row) for side in sides for row in side.tolist()}) if distinct else sum(map(len, sides))
    if predictor is None or config.mode == "known":
        return Counted(known, None)
    asked = replace(config, mode="both", top=COUNTED_ROWS, links=False)
    if distinct:
        found = [merge(graph, _sides(graph, question, predictor, asked), asked)]
    else:
        found = [combine(graph, branch, predictor, asked) for branch in question.branches]
    expected = float(sum(side.probabilities.sum() for side in found))
    return Counted(known, expected, together([side.remark for side in found]))


def _known_rows(graph: Graph, branch: BoundBranch) -> NDArray[np.int32]:
    if branch.is_plain:
        return tuples(graph, branch.query)
    filters = Filters(branch.filters, graph.vocabulary)
    width = len(branch.query.targets)
    passed, complete = filtered_rows(graph, branch.wide, filters, width, limit=MAX_ROWS, judged=2 * MAX_ROWS)
    if not complete:
        raise BiqeError(TOO_MANY, hint="fix one of its variables, or count in parts")
    return passed[:, :width]
