"""Tuples for all targets of a query at once, ranked by their joint probability.

A model gives each target a distribution of its own. Pairing the best river with the best city is wrong where
the city depends on the river, so ``beam`` fills one target, asks again with that entity in its place, and goes
on: p(river, city) = p(river) p(city | river). Paper: section "Analysis", where the prediction of the first
missing entity is added to the query; here a beam of them is kept, and the surest target goes first.

What is asked again is only what still depends on the open targets. A pattern whose two ends are filled says
nothing about the others, and models are trained on queries with constants at the ends of paths only.
"""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import chain

import numpy as np
from numpy.typing import NDArray

from biqe.answer.predicted import Predictor
from biqe.errors import UnsupportedQuery
from biqe.query.bound import HIDDEN, TARGET, BoundQuery

Tuples = NDArray[np.int32]
WIDTH = 50
"""Tuples that the beam keeps after each step."""


@dataclass(frozen=True)
class Ranked:
    """Tuples, most probable first."""

    tuples: Tuples
    """(n, targets) entity ids, in SELECT order."""
    log_probabilities: NDArray[np.float64]
    """(n,)"""


@dataclass(frozen=True)
class Part:
    """What is left to ask, after some targets were filled: one connected query with open targets."""

    query: BoundQuery
    places: tuple[int, ...]
    """For each node of ``query``, its node in the whole query."""
    columns: tuple[int, ...]
    """For each target of ``query``, its column in the tuples."""


def product(marginals: NDArray[np.float32], exclude: Tuples, *, count: int) -> Ranked:
    """The ``count`` best tuples under the product of the targets' own distributions, (T, E) log-probabilities,
    without those in ``exclude``. One model call serves all targets; what they say about each other is lost."""
    order = np.argsort(-marginals, axis=1, kind="stable")
    sorted_scores = np.take_along_axis(marginals, order, axis=1).astype(np.float64)
    targets, entities = marginals.shape
    columns = np.arange(targets)
    known = set(map(tuple, exclude.tolist()))
    start = (0,) * targets
    heap = [(-float(sorted_scores[:, 0].sum()), start)]
    seen = {start}
    tuples: list[tuple[int, ...]] = []
    scores: list[float] = []
    while heap and len(tuples) < count:
        cost, ranks = heapq.heappop(heap)
        values = tuple(order[columns, ranks].tolist())
        if values not in known:
            tuples.append(values)
            scores.append(-cost)
        for column in range(targets):
            if ranks[column] + 1 < entities:
                following = ranks[:column] + (ranks[column] + 1,) + ranks[column + 1 :]
                if following not in seen:
                    seen.add(following)
                    heapq.heappush(heap, (-float(sorted_scores[columns, following].sum()), following))
    return Ranked(np.array(tuples, np.int32).reshape(-1, targets), np.array(scores))


def beam(
    predictor: Predictor, query: BoundQuery, marginals: NDArray[np.float32], exclude: Tuples, *, count: int,
    width: int = WIDTH,
) -> Ranked:  # fmt: skip
    """The ``count`` best tuples that a beam of ``width`` finds, without those in ``exclude``.

    ``marginals`` are the (T, E) log-probabilities of the query's targets with nothing filled. One model call a
    step (more where the scores would not fit in memory).
    """
    targets = len(query.targets)
    filled = np.full((1, targets), -1, np.int32)
    totals = np.zeros(1)
    open_columns = list(range(targets))
    while open_columns:
        last = len(open_columns) == 1
        keep = max(count, width) if last else width
        blocked = [_completing(row, open_columns[0], exclude) for row in filled] if last else [_NOTHING] * len(filled)
        if len(open_columns) == targets:
            best = {column: _top(marginals[[column]], blocked, keep) for column in open_columns}
        else:
            best = _ask_again(predictor, query, filled, open_columns, blocked, keep)
        column = _surest(predictor, query, open_columns, best, totals)
        values, scores = best[column]
        filled, totals = _extend(filled, totals, column, values, scores, keep)
        open_columns.remove(column)
    return Ranked(filled[:count], totals[:count])


_NOTHING: NDArray[np.int32] = np.zeros(0, np.int32)
Best = tuple[NDArray[np.int32], NDArray[np.float64]]
"""Best entities of one target for each member of the beam, and their log-probabilities: (n, k) and (n, k)."""


def _ask_again(
    predictor: Predictor, query: BoundQuery, filled: Tuples, open_columns: Sequence[int],
    blocked: Sequence[NDArray[np.int32]], keep: int,
) -> dict[int, Best]:  # fmt: skip
    """The best entities of each open target, for each member of the beam, given what the member has filled."""
    best: dict[int, Best] = {}
    closed = [column for column in range(filled.shape[1]) if column not in open_columns]
    left = parts(query, {query.targets[column]: int(filled[0, column]) for column in closed})
    # Members differ in entities, not in structure: one preparation serves all of them.
    for part, template in chain.from_iterable(_prepare(predictor, piece) for piece in left):
        slots = [(slot, query.targets.index(node)) for slot, node in enumerate(part.places)
                 if node in query.targets and query.targets.index(node) in closed]  # fmt: skip
        nodes = np.tile(np.array(template.nodes, np.int32), (len(filled), 1))
        for slot, column in slots:
            nodes[:, slot] = filled[:, column]
        queries = [replace(template, nodes=tuple(row)) for row in nodes.tolist()]
        pieces: list[list[Best]] = [[] for _ in part.columns]
        step = predictor.queries_at_once(len(part.columns))
        for first in range(0, len(queries), step):
            scores = predictor.log_probabilities(queries[first : first + step])
            for number in range(len(part.columns)):
                pieces[number].append(_top(scores[number :: len(part.columns)], blocked[first : first + step], keep))
        for number, column in enumerate(part.columns):
            ids, values = zip(*pieces[number], strict=True)
            best[column] = np.concatenate(ids), np.concatenate(values)
    return best


def _prepare(predictor: Predictor, part: Part) -> list[tuple[Part, BoundQuery]]:
    """The part as the model reads it; where it cannot tell the part's targets apart, one target at a time."""
    try:
        return [(part, predictor.prepare(part.query))]
    except UnsupportedQuery:
        if len(part.columns) == 1:
            raise
    single = []
    for target, column in zip(part.query.targets, part.columns, strict=True):
        nodes = [HIDDEN if value == TARGET and node != target else value for node, value in enumerate(part.query.nodes)]
        alone = replace(part, query=replace(part.query, nodes=tuple(nodes), targets=(target,)), columns=(column,))
        single.append((alone, predictor.prepare(alone.query)))
    return single


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


def _surest(
    predictor: Predictor, query: BoundQuery, open_columns: Sequence[int], best: dict[int, Best],
    totals: NDArray[np.float64],
) -> int:  # fmt: skip
    """The open target whose best entity is most probable, in the mean over the beam."""
    candidates = open_columns
    if not predictor.inverses:
        # Such a model has only seen constants at the start of paths: fill from the sources on.
        behind = _behind_open(query, [query.targets[column] for column in open_columns])
        candidates = [column for column in open_columns if query.targets[column] not in behind] or open_columns
    weights = np.exp(totals - totals.max())
    return max(candidates, key=lambda column: float(weights @ np.exp(best[column][1].max(axis=1, initial=-np.inf))))


def _behind_open(query: BoundQuery, open_targets: Sequence[int]) -> set[int]:
    """Nodes that can be reached along the edges from an open target other than themselves."""
    reached: set[int] = set()
    for start in open_targets:
        frontier, seen = [start], {start}
        while frontier:
            node = frontier.pop()
            following = {o for s, _, o in query.edges if s == node} - seen
            seen |= following
            frontier.extend(following)
        reached |= seen - {start}
    return reached


def _completing(filled: NDArray[np.int32], column: int, exclude: Tuples) -> NDArray[np.int32]:
    """Values of the one open column that would complete a tuple of ``exclude``."""
    others = np.arange(exclude.shape[1]) != column
    return exclude[(exclude[:, others] == filled[others]).all(axis=1), column]


def _top(scores: NDArray[np.float32], blocked: Sequence[NDArray[np.int32]], count: int) -> Best:
    """The ``count`` best entities of each row; blocked ones come last, with probability 0."""
    if any(len(ids) for ids in blocked):
        scores = scores.copy()
        for row, ids in zip(scores, blocked, strict=True):
            row[ids] = -np.inf
    count = min(count, scores.shape[1])
    chosen = np.argpartition(-scores, count - 1, axis=1)[:, :count]
    return chosen.astype(np.int32), np.take_along_axis(scores, chosen, axis=1).astype(np.float64)


def _extend(
    filled: Tuples, totals: NDArray[np.float64], column: int, values: NDArray[np.int32],
    scores: NDArray[np.float64], keep: int,
) -> tuple[Tuples, NDArray[np.float64]]:  # fmt: skip
    """The ``keep`` best continuations over all members, best first; equal ones in order of entity ids."""
    joint = (totals[:, None] + scores).ravel()
    members = np.repeat(np.arange(len(filled)), values.shape[1])
    chosen = np.flatnonzero(joint > -np.inf)
    if len(chosen) > keep:
        chosen = chosen[np.argpartition(-joint[chosen], keep - 1)[:keep]]
    extended = filled[members[chosen]]
    extended[:, column] = values.ravel()[chosen]
    order = np.lexsort((*extended.T[::-1], -joint[chosen]))
    return extended[order], joint[chosen][order]
