"""A query with some of its targets filled in: how the model is asked again, many fillings and queries at a time.

Two ways to put it to a model. ``rest`` asks only what still depends on the open targets: a pattern whose two ends are
filled says nothing about the others, and what falls apart is asked apart. ``whole`` leaves the query as it was read,
with entities where masks stood, as in training with revealed targets (``reveal_share``). On mined FB15k-237 DAGs with
two targets ``rest`` ranks whole tuples better, and its queries are shorter.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from biqe.answer.predicted import Predictor
from biqe.errors import UnsupportedQuery
from biqe.query.bound import HIDDEN, TARGET, BoundQuery

CONTEXTS = ("whole", "rest")
Scores = NDArray[np.float32]
Keep = Callable[[Scores, slice], tuple[NDArray[Any], ...]]
"""Takes (n, V, E) scores of the fillings in the slice, and returns what is worth keeping of them."""
Reply = list[tuple[NDArray[Any], ...]]
"""What each of some questions kept."""


@dataclass(frozen=True)
class Part:
    """What is left to ask, after some targets were filled: one connected query with open targets."""

    query: BoundQuery
    places: tuple[int, ...]
    """For each node of ``query``, its node in the whole query."""
    columns: tuple[int, ...]
    """For each target of ``query``, its column in the tuples."""


@dataclass(frozen=True)
class Template:
    """One query as the model reads it, to be filled with the entities of many tuples."""

    query: BoundQuery
    columns: tuple[int, ...]
    """For each target of ``query``, its column in the tuples."""
    slots: tuple[tuple[int, int], ...]
    """(node, column): the entity of this column goes to this node."""

    @property
    def structure(self) -> tuple[tuple[int, ...], tuple[tuple[int, int], ...], tuple[int, ...]]:
        """Equal for queries that go well together in a batch: which nodes are constants, and what joins them."""
        kinds = tuple(min(value, 0) for value in self.query.nodes)
        return kinds, tuple((start, stop) for start, _, stop in self.query.edges), self.query.targets

    def filled(self, rows: NDArray[np.int32]) -> tuple[NDArray[np.int32], NDArray[np.int64]]:
        """Nodes of each different filling by the tuples ``rows``, and the filling that each tuple has."""
        nodes = np.tile(np.array(self.query.nodes, np.int32), (len(rows), 1))
        for node, column in self.slots:
            nodes[:, node] = rows[:, column]
        different, filling = np.unique(nodes, axis=0, return_inverse=True)
        return different, filling.reshape(-1)


@dataclass(frozen=True)
class Question:
    """Fillings of one template, and what to keep of their scores."""

    template: Template
    nodes: NDArray[np.int32]
    """(n, nodes of the template)"""
    keep: Keep


class Refiller:
    """The templates of one query, by which of its targets are filled."""

    def __init__(self, predictor: Predictor, query: BoundQuery, context: str) -> None:
        self._predictor = predictor
        self._query = query
        self._context = context
        self._found: dict[frozenset[int], list[Template]] = {}

    @cached_property
    def _read(self) -> BoundQuery:
        return self._predictor.prepare(self._query)

    def templates(self, closed: Collection[int]) -> list[Template]:
        """What is asked once the columns ``closed`` are filled; together they have every other target."""
        key = frozenset(closed)
        if key not in self._found:
            self._found[key] = (self._whole(key) if self._context == "whole" else None) or self._rest(key)
        return self._found[key]

    def template_of(self, column: int, closed: Collection[int]) -> tuple[Template, int]:
        """The template that has this open column, and the column's number among its targets."""
        for template in self.templates(closed):
            if column in template.columns:
                return template, template.columns.index(column)
        raise UnsupportedQuery(f"column {column} of the query is filled, or is no target of it")

    def _whole(self, closed: frozenset[int]) -> list[Template] | None:
        """The query as it was read; None where the model does not take entities in the place of targets."""
        targets = self._query.targets
        nodes = list(self._read.nodes)
        for column in closed:
            nodes[targets[column]] = 0
        open_columns = tuple(column for column in range(len(targets)) if column not in closed)
        query = replace(self._read, nodes=tuple(nodes), targets=tuple(targets[column] for column in open_columns))
        if not self._predictor.model.supports(query).yes:
            return None
        return [Template(query, open_columns, tuple((targets[column], column) for column in sorted(closed)))]

    def _rest(self, closed: frozenset[int]) -> list[Template]:
        targets = self._query.targets
        found = []
        for part in parts(self._query, {targets[column]: 0 for column in closed}):
            for piece, query in self._prepared(part):
                slots = tuple(
                    (slot, targets.index(node))
                    for slot, node in enumerate(piece.places)
                    if node in targets and targets.index(node) in closed
                )
                found.append(Template(query, piece.columns, slots))
        return found

    def _prepared(self, part: Part) -> Iterator[tuple[Part, BoundQuery]]:
        """The part as the model reads it; where it cannot tell the part's targets apart, one target at a time."""
        try:
            yield part, self._predictor.prepare(part.query)
            return
        except UnsupportedQuery:
            if len(part.columns) == 1:
                raise
        for target, column in zip(part.query.targets, part.columns, strict=True):
            nodes = [
                HIDDEN if value == TARGET and node != target else value for node, value in enumerate(part.query.nodes)
            ]
            alone = replace(part, query=replace(part.query, nodes=tuple(nodes), targets=(target,)), columns=(column,))
            yield alone, self._predictor.prepare(alone.query)


def parts(query: BoundQuery, filled: dict[int, int]) -> list[Part]:
    """What is left of ``query`` once the target nodes in ``filled`` hold these entities: without the patterns
    whose ends are both constants, one part for each connected piece that still has a target."""
    nodes = [filled.get(node, value) for node, value in enumerate(query.nodes)]
    edges = [edge for edge in query.edges if nodes[edge[0]] < 0 or nodes[edge[2]] < 0]
    root = list(range(len(nodes)))

    def find(node: int) -> int:
        while root[node] != node:
            node = root[node]
        return node

    for subject, _, object_ in edges:
        root[find(subject)] = find(object_)
    open_targets = [node for node in query.targets if node not in filled]
    found = []
    for piece in dict.fromkeys(find(node) for node in open_targets):
        places = tuple(node for node in range(len(nodes)) if find(node) == piece)
        number = {node: place for place, node in enumerate(places)}
        targets = [node for node in open_targets if node in number]
        found.append(
            Part(
                BoundQuery(
                    tuple(nodes[node] for node in places),
                    tuple((number[s], relation, number[o]) for s, relation, o in edges if s in number),
                    tuple(number[node] for node in targets),
                    tuple(query.names[node] for node in places) if query.names else (),
                ),
                places,
                tuple(query.targets.index(node) for node in targets),
            )
        )
    return found


def answered(predictor: Predictor, questions: Sequence[Question]) -> Reply:
    """What each question keeps of its scores. Questions of one structure go to the model together, in as many calls
    as the scores need to fit in memory."""
    kept: list[Reply] = [[] for _ in questions]
    alike: dict[object, list[int]] = {}
    for number, question in enumerate(questions):
        alike.setdefault(question.template.structure, []).append(number)
    for members in alike.values():
        targets = len(questions[members[0]].template.columns)
        step = predictor.queries_at_once(targets)
        waiting: list[tuple[int, slice]] = []
        held = 0
        for number in members:
            count, start = len(questions[number].nodes), 0
            while start < count:
                stop = min(count, start + step - held)
                waiting.append((number, slice(start, stop)))
                held += stop - start
                start = stop
                if held == step:
                    _ask(predictor, questions, waiting, targets, kept)
                    waiting, held = [], 0
        if waiting:
            _ask(predictor, questions, waiting, targets, kept)
    return [tuple(np.concatenate(pieces) for pieces in zip(*found, strict=True)) for found in kept]


def _ask(
    predictor: Predictor,
    questions: Sequence[Question],
    waiting: Sequence[tuple[int, slice]],
    targets: int,
    kept: list[Reply],
) -> None:
    """One model call for these slices of the questions; what they keep goes to ``kept``."""
    queries = [
        replace(questions[number].template.query, nodes=tuple(nodes))
        for number, rows in waiting
        for nodes in questions[number].nodes[rows].tolist()
    ]
    scores = predictor.log_probabilities(queries)
    scores = scores.reshape(len(queries), targets, scores.shape[1])  # (n, V, E)
    start = 0
    for number, rows in waiting:
        count = rows.stop - rows.start
        kept[number].append(questions[number].keep(scores[start : start + count], rows))
        start += count
