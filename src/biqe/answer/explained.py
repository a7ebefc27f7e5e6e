"""What an explanation of a row has to know: the question as the model was asked it, and what the row rests on."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from biqe.answer.config import JOINT, AskConfig
from biqe.answer.evidence import IdLink
from biqe.answer.pinned import questions
from biqe.exact.filters import Filters
from biqe.graph.knowledge_graph import Graph
from biqe.graph.vocabulary import Vocabulary
from biqe.query.bind_question import BoundBranch
from biqe.query.bound import BoundQuery
from biqe.query.question import ASK

if TYPE_CHECKING:
    from biqe.answer.predicted import Predictor
    from biqe.answer.result import Answers, Row


def question_of(row: Row, predictor: Predictor | None) -> dict[str, Any]:
    """Options of ``explain.explain`` for a row of answers."""
    answers, options = row._answers, dict[str, Any]()
    branch = answers.branch_of(row)
    place = row.number - answers.known_count
    if place >= 0 and answers.rows.evidence:
        options["evidence"] = answers.rows.evidence[place]
    values = _values(answers, row, branch)
    # What conditions say about hidden variables, the row's own entities there satisfy.
    entities = np.arange(answers.graph.entity_count)
    hidden = {node: entity for node, entity in values.items() if node not in branch.query.targets}
    options["allowed"] = {node: entities == entity for node, entity in hidden.items()}
    if predictor is not None:
        options["link_probabilities"] = partial(_said, answers.rows.link_probabilities, predictor, answers.graph)
        if answers.form != ASK:
            options["asked"], options["permitted"] = _as_asked(branch, values, answers.graph.vocabulary)
        options["remark"] = _remark(answers.config, predictor, len(branch.wide.targets))
    return options


def _values(answers: Answers, row: Row, branch: BoundBranch) -> dict[int, int]:
    """Entities of the variables that are selected or that conditions name, by node."""
    if answers.form != ASK:
        return dict(zip(branch.query.targets, row.ids, strict=True)) | answers.hidden_of(row)
    if row.status == "known":
        judged = answers.rows.known_wide
        return {} if judged is None else dict(zip(branch.wide.targets, judged[row.number].tolist(), strict=True))
    return {node: entity for node, entity in answers.rows.evidence[0].filled if node in branch.wide.targets}


def _as_asked(
    branch: BoundBranch, values: Mapping[int, int], vocabulary: Vocabulary
) -> tuple[BoundQuery, dict[int, NDArray[np.bool_]]]:
    """The question that the model was asked for a row, and the entities that conditions leave its targets, by node."""
    query = branch.wide
    nodes = {query.names[node]: node for node in query.targets} if branch.filters else {}
    every = list(questions(query, Filters(branch.filters, vocabulary)))
    fits = (asked for asked in every if all(passed[values[nodes[name]]] for name, passed in asked[0].items()))
    allowed, column = next(fits, every[-1])
    permitted = {nodes[name]: passed for name, passed in allowed.items()}
    if column is None:
        return query, permitted
    pinned = query.targets[column]
    filled = tuple(values[node] if node == pinned else value for node, value in enumerate(query.nodes))
    targets = tuple(node for node in query.targets if node != pinned)
    return replace(query, nodes=filled, targets=targets), {
        node: permitted[node] for node in permitted if node != pinned
    }


def _said(
    said: Mapping[IdLink, float], predictor: Predictor, graph: Graph, links: Sequence[tuple[int, int, int]]
) -> list[float]:
    """How probable links are: as the row says, and as the model says where the row says nothing."""
    known = {tuple(link): chance for link, chance in said.items()}
    new = [link for link in links if link not in known]
    known.update(zip(new, predictor.link_probabilities(new, graph), strict=True))
    return [known[link] for link in links]


def _remark(config: AskConfig, predictor: Predictor, targets: int) -> str:
    """Why the probability of a row is not the share that an explanation starts from; '' where it should be."""
    found_by = config.joint or predictor.joint
    if predictor.calibration is not None:
        return "This is its share of the row; the probability above was calibrated, so that the two differ."
    if targets > 1 and found_by != JOINT[0]:
        return (
            f"This is its share of the row when the unknowns are filled one after the other; the probability above was "
            f"found by {found_by}."
        )
    return ""
