"""What an explanation of a row has to know: the question as the model was asked it, and what the row rests on."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from biqe.answer.answers import Answers, Row
from biqe.answer.terms import TermRow, TermTable
from biqe.errors import EmptyResult, InvalidOption, UnsupportedQuery
from biqe.exact.filters import Filters
from biqe.graph.knowledge_graph import Graph
from biqe.predict.config import BEAM, AskConfig
from biqe.predict.decompose import values_questions
from biqe.predict.predictor import Predictor
from biqe.query.bind import BoundBranch
from biqe.query.bound import BoundQuery
from biqe.query.question import ASK


def behind(row: TermRow) -> Row | None:
    """The row of links that explains a row of values; None for a known row, and for a number."""
    return next((each for each in row.rests_on if isinstance(each, Row)), None)


def row_of(answers: Answers | TermTable, number: int) -> Row:
    """The row of this number, from 0; refused where there is none, or none that could be explained."""
    if not isinstance(answers, Answers):
        row = behind(answers[number]) if 0 <= number < len(answers) else None
        if row is None:
            raise UnsupportedQuery(
                "the rows of this query are values, not entities, so there is nothing behind them",
                hint="explain a row of SELECT over variables of triple patterns",
            )
        return row
    if len(answers) == 0:
        raise EmptyResult(
            "the query has no rows, so there is nothing to explain", hint="asking the same query shows what there is"
        )
    if not 0 <= number < len(answers):
        counts = f"{answers.known_count:,} known and {answers.predicted_count:,} predicted"
        raise InvalidOption(
            f"there are only {len(answers):,} rows, {counts}",
            hint="asking the same query lists them; a larger top predicts more",
        )
    return answers[number]


def explain_options(row: Row, predictor: Predictor | None) -> dict[str, Any]:
    """Options of ``explain.explain`` for a row of answers."""
    answers, options = row.answers, dict[str, Any]()
    branch = answers.branch_of(row)
    if answers.rows.evidence and answers.rows.evidence[row.number] is not None:
        options["evidence"] = answers.rows.evidence[row.number]
    values = answers.assigned(row)
    # What conditions say about hidden variables, the row's own entities there satisfy.
    entities = np.arange(answers.graph.entity_count)
    hidden = {node: entity for node, entity in values.items() if node not in branch.query.targets}
    options["allowed"] = {node: entities == entity for node, entity in hidden.items()}
    if predictor is not None:
        against = answers.rows.against[row.number] if answers.rows.against else ()
        options["against"] = [(part.links, part.probability) for part in against if part.links]
        options["link_probabilities"] = answers.rows.link_probabilities
        if answers.form != ASK:
            options["asked"], options["permitted"] = _as_asked(branch, values, answers.graph)
        options["remark"] = _remark(answers.config, predictor, len(branch.wide.targets))
    return options


def _as_asked(
    branch: BoundBranch, values: Mapping[int, int], graph: Graph
) -> tuple[BoundQuery, dict[int, NDArray[np.bool_]]]:
    """The question that the model was asked for a row, and the entities that conditions leave its targets, by node."""
    query = branch.wide
    nodes = {query.names[node]: node for node in query.targets} if branch.filters else {}
    every = list(values_questions(query, Filters(branch.filters, graph)))
    fits = (asked for asked in every if all(passed[values[nodes[name]]] for name, passed in asked[0].items()))
    allowed, column = next(fits, every[-1])
    permitted = {nodes[name]: passed for name, passed in allowed.items()}
    if column is None:
        return query, permitted
    fixed = query.targets[column]
    filled = tuple(values[node] if node == fixed else value for node, value in enumerate(query.nodes))
    targets = tuple(node for node in query.targets if node != fixed)
    return replace(query, nodes=filled, targets=targets), {
        node: mask for node, mask in permitted.items() if node != fixed
    }


def _remark(config: AskConfig, predictor: Predictor, targets: int) -> str:
    """Why the probability of a row is not the share that an explanation starts from; '' where it should be, or where
    the explanation says so by itself."""
    found_by = config.joint or predictor.joint
    if predictor.links is None and targets > 1 and found_by != BEAM:
        return (
            f"This is its share of the row when the unknowns are filled one after the other; the probability above was "
            f"found by {found_by}."
        )
    return ""
