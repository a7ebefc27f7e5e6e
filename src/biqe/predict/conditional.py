"""A query with some of its targets filled in, put to the model again, many fillings at a time.

Only what still depends on the open targets is asked. A pattern between two filled nodes says nothing about the
others, so it is left out, and what falls apart is asked apart.

``row_share`` is the share of one row out of 1 over all rows, from which an explanation starts: p(first) p(second |
first) ... The surest target is asked for first, the row's own entity is put in its place, and the others are asked
again with what still depends on them. This is what the beam does, along one row; with three targets or more the beam
may fill them in another order.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from biqe.errors import UnsupportedQuery
from biqe.predict.predictor import Predictor, Scores
from biqe.query.bound import HIDDEN, TARGET, BoundQuery
from biqe.query.dag import analyse, components

Keep = Callable[[Scores, slice], tuple[NDArray[Any], ...]]
"""Takes (n, V, E) scores of the fillings in the slice, and returns what is worth keeping of them."""


@dataclass(frozen=True)
class Part:
    """A connected piece of a query that has open targets."""

    query: BoundQuery
    places: tuple[int, ...]
    """For each node of ``query``, its node in the whole query."""
    columns: tuple[int, ...]
    """For each target of ``query``, its column in the rows."""


def subquery(query: BoundQuery, places: Sequence[int]) -> BoundQuery:
    """The query of some nodes and of the patterns between them; it asks for those that are targets."""
    number = {node: place for place, node in enumerate(places)}
    return BoundQuery(
        tuple(query.nodes[node] for node in places),
        tuple((number[s], relation, number[o]) for s, relation, o in query.edges if s in number),
        tuple(number[node] for node in query.targets if node in number),
        tuple(query.names[node] for node in places) if query.names else (),
    )


def alone(query: BoundQuery, target: int) -> BoundQuery:
    """The query for one of its targets, the others hidden."""
    nodes = tuple(HIDDEN if value == TARGET and node != target else value for node, value in enumerate(query.nodes))
    return replace(query, nodes=nodes, targets=(target,))


def filled_in(query: BoundQuery, row: Sequence[int]) -> BoundQuery:
    """The query with an entity in the place of each of its targets."""
    nodes = list(query.nodes)
    for node, entity in zip(query.targets, row, strict=True):
        nodes[node] = entity
    return replace(query, nodes=tuple(nodes), targets=())


def open_parts(query: BoundQuery, filled: Mapping[int, int]) -> list[Part]:
    """What is left to ask once the target nodes in ``filled`` hold entities: a part for each connected piece that still
    has a target. UnsupportedQuery where no pattern is left that says anything about one."""
    nodes = tuple(filled.get(node, value) for node, value in enumerate(query.nodes))
    targets = tuple(node for node in query.targets if node not in filled)
    # With nothing filled, a connected query is asked whole, patterns between constants included.
    whole = not filled and len(_pieces(query)) == 1
    edges = tuple(edge for edge in query.edges if whole or nodes[edge[0]] < 0 or nodes[edge[2]] < 0)
    left = replace(query, nodes=nodes, edges=edges, targets=targets)
    found = []
    pieces = [piece for piece in components(len(nodes), edges) if not set(piece).isdisjoint(targets)]
    for places in sorted(pieces, key=lambda piece: min(targets.index(node) for node in piece if node in targets)):
        part = subquery(left, places)
        own = tuple(node for node in targets if node in places)
        if not part.edges:
            name = f"?{query.names[own[0]]}" if query.names else f"target {own[0]}"
            raise UnsupportedQuery(f"nothing is said about {name} any more")
        found.append(Part(part, tuple(places), tuple(query.targets.index(node) for node in own)))
    return found


def _pieces(query: BoundQuery) -> list[list[int]]:
    """Nodes that hang together; constants that no pattern names are left out."""
    used = {node for edge in query.edges for node in (edge[0], edge[2])}
    parts = components(len(query.nodes), query.edges)
    return [part for part in parts if part[0] in used or query.nodes[part[0]] < 0]


def fillable(predictor: Predictor, query: BoundQuery, targets: list[int]) -> list[int]:
    """Open targets that may be filled next. A model without inverse relations has only seen constants at the start of
    paths: there, these are the targets that lie behind no other open target."""
    if predictor.inverses:
        return targets
    behind = analyse(query).descendants
    first = [node for node in targets if not any(node in behind[other] for other in targets if other != node)]
    return first or targets


# Many fillings at a time


@dataclass(frozen=True)
class Template:
    """One query as the model reads it, to be filled with the entities of many rows."""

    query: BoundQuery
    columns: tuple[int, ...]
    """For each target of ``query``, its column in the rows."""
    slots: tuple[tuple[int, int], ...]
    """(node, column): the entity of this column goes to this node."""

    def filled(self, rows: NDArray[np.int32]) -> tuple[NDArray[np.int32], NDArray[np.int64]]:
        """Nodes of each different filling by ``rows``, and the filling that each row has."""
        nodes = np.tile(np.array(self.query.nodes, np.int32), (len(rows), 1))
        for node, column in self.slots:
            nodes[:, node] = rows[:, column]
        different, filling = np.unique(nodes, axis=0, return_inverse=True)
        return different, filling.reshape(-1)


class Templates:
    """The templates of one query, by which of its targets are filled."""

    def __init__(self, predictor: Predictor, query: BoundQuery) -> None:
        self._predictor = predictor
        self._query = query
        self._found: dict[frozenset[int], list[Template]] = {}

    def after(self, closed: Collection[int]) -> list[Template]:
        """What is asked once the columns ``closed`` are filled; together they have every other target."""
        key = frozenset(closed)
        if key not in self._found:
            self._found[key] = list(self._made(key))
        return self._found[key]

    def of(self, column: int, closed: Collection[int]) -> tuple[Template, int]:
        """The template that has this open column, and the column's number among its targets."""
        return next((t, t.columns.index(column)) for t in self.after(closed) if column in t.columns)

    def _made(self, closed: frozenset[int]) -> Iterator[Template]:
        targets = self._query.targets
        filled = {targets[column]: column for column in closed}
        # Any entity will do: its place is filled with those of the rows.
        for part in open_parts(self._query, dict.fromkeys(filled, 0)):
            slots = tuple((slot, filled[node]) for slot, node in enumerate(part.places) if node in filled)
            for query in prepared_apart(self._predictor, part.query):
                columns = tuple(part.columns[part.query.targets.index(target)] for target in query.targets)
                yield Template(query, columns, slots)


def prepared_apart(
    predictor: Predictor, query: BoundQuery, muted: frozenset[int] = frozenset()
) -> Iterator[BoundQuery]:
    """The query as the model reads it; one for each target where the model cannot predict them together."""
    try:
        yield predictor.prepare(query, muted)
        return
    except UnsupportedQuery:
        if len(query.targets) == 1:
            raise
    for target in query.targets:
        yield predictor.prepare(alone(query, target), muted)


def ask(predictor: Predictor, template: Template, nodes: NDArray[np.int32], keep: Keep) -> tuple[NDArray[Any], ...]:
    """What ``keep`` keeps of the scores of (n, nodes) fillings of a template, which go to the model in as many calls as
    they need to fit in memory."""
    targets = len(template.columns)
    step = predictor.queries_at_once(targets)
    kept = []
    for start in range(0, len(nodes), step):
        rows = slice(start, min(start + step, len(nodes)))
        queries = [replace(template.query, nodes=tuple(each)) for each in nodes[rows].tolist()]
        scores = predictor.log_probabilities(queries)
        kept.append(keep(scores.reshape(len(queries), targets, scores.shape[1]), rows))
    return tuple(np.concatenate(pieces) for pieces in zip(*kept, strict=True))


# The share of one row


Masks = Mapping[int, NDArray[np.bool_]]
"""(E,) entities that conditions leave a node, by node."""


def row_share(
    predictor: Predictor,
    query: BoundQuery,
    row: Mapping[int, int],
    muted: frozenset[int] = frozenset(),
    *,
    settled: Set[int] = frozenset(),
    permitted: Masks | None = None,
    whole: bool = False,
) -> float:
    """p(row), where ``row`` gives an entity to each target node. UnsupportedQuery where the model cannot read what has
    to be asked, or where no pattern says anything about a target.

    Parts of the query that nothing joins are asked one by one and their shares multiplied; with ``whole`` they are
    read at once. Parts whose nodes are all in ``settled`` count as 1. ``muted`` are constants that the model is not
    told. ``permitted`` decides which target is the surest, and changes no share.
    """
    total = 0.0
    every = Part(query, tuple(range(len(query.nodes))), tuple(range(len(query.targets))))
    for part in [every] if whole else open_parts(query, {}):
        if set(part.places) <= settled:
            continue
        slots = {node: slot for slot, node in enumerate(part.places)}
        own = {slots[node]: entity for node, entity in row.items() if node in slots}
        masks = {slots[node]: mask for node, mask in (permitted or {}).items() if node in slots}
        hidden = frozenset(slots[node] for node in muted if node in slots)
        total += _log_share(predictor, part.query, own, hidden, masks)
    return min(1.0, float(np.exp(total)))  # rounding in single precision may carry it a little over 1


def _log_share(
    predictor: Predictor, query: BoundQuery, row: Mapping[int, int], muted: frozenset[int], permitted: Masks
) -> float:
    filled: dict[int, int] = {}
    left = list(query.targets)
    total = 0.0
    while left:
        scores = _given(predictor, query, filled, muted)
        surest = max(fillable(predictor, query, left), key=lambda node: _largest(scores[node], permitted.get(node)))
        total += float(scores[surest][row[surest]])
        filled[surest] = row[surest]
        left.remove(surest)
    return total


def _given(
    predictor: Predictor, query: BoundQuery, filled: Mapping[int, int], muted: frozenset[int]
) -> dict[int, Scores]:
    """Log-probabilities of each open target, given what is filled."""
    if not filled:
        try:
            read = predictor.prepare(query, muted)
            return dict(zip(read.targets, predictor.log_probabilities([read]), strict=True))
        except UnsupportedQuery:
            if len(query.targets) == 1:
                raise
    found: dict[int, Scores] = {}
    for part in open_parts(query, filled):
        hidden = frozenset(slot for slot, node in enumerate(part.places) if node in muted)
        prepared = list(prepared_apart(predictor, part.query, hidden))
        targets = [part.places[target] for piece in prepared for target in piece.targets]
        found.update(zip(targets, predictor.log_probabilities(prepared), strict=True))
    return found


def _largest(scores: Scores, permitted: NDArray[np.bool_] | None) -> float:
    """The largest score of an entity that is permitted."""
    return float((scores if permitted is None else scores[permitted]).max(initial=-np.inf))
