"""Queries in ids: one as nodes and edges, many as columns.

A node holds an entity id, or TARGET (projected variable, becomes [MASK]), or HIDDEN (existential variable).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from biqe.errors import InvalidOption

TARGET = -1
"""Node value of a projected variable."""
HIDDEN = -2
"""Node value of an existential variable."""

Edge = tuple[int, int, int]
"""(subject node, relation id, object node); nodes are positions in ``BoundQuery.nodes``."""


Outline = tuple[tuple[int, ...], tuple[tuple[int, int], ...], tuple[int, ...]]
"""Nodes of a query, with 0 for every constant; ends of its edges; its targets."""


@dataclass(frozen=True)
class BoundQuery:
    """A conjunctive query over ids."""

    nodes: tuple[int, ...]
    """Entity id, TARGET or HIDDEN for each node. Each variable has one node. A constant may have
    several: a bound query gives it one, a mined one gives each branch its own."""
    edges: tuple[Edge, ...]
    targets: tuple[int, ...]
    """Nodes of the projected variables, in SELECT order."""
    names: tuple[str, ...] = ()
    """Variable name of each node ('' for constants); empty where queries were mined."""
    limit: int | None = None
    negated: tuple[int, ...] = ()
    """For each edge its negated part, from 1: there must be no entities for the variables of this part alone with which
    all its edges hold. 0 for edges that are asked for; empty where there is no negation."""

    @property
    def anchors(self) -> tuple[int, ...]:
        """Nodes that are constants."""
        return tuple(node for node, value in enumerate(self.nodes) if value >= 0)

    @property
    def outline(self) -> Outline:
        """The query without its entities and relations: equal where two queries differ in nothing else."""
        return tuple(min(value, 0) for value in self.nodes), tuple((s, o) for s, _, o in self.edges), self.targets


def forward(edge: Edge, relation_count: int) -> Edge:
    """The edge as a stored triple is written: never by an inverse relation."""
    subject, relation, object_ = edge
    return edge if relation < relation_count else (object_, relation - relation_count, subject)


def selected_rows(queries: Iterable[BoundQuery]) -> list[int]:
    """For each target of each query in SELECT order, its row in a table that has the targets by ascending node.

    >>> selected_rows([BoundQuery((-1, -1), (), (1, 0)), BoundQuery((-1,), (), (0,))])
    [1, 0, 2]
    """
    rows: list[int] = []
    for query in queries:
        first = len(rows)
        places = {node: first + place for place, node in enumerate(sorted(query.targets))}
        rows += [places[node] for node in query.targets]
    return rows


def link_queries(keys: Sequence[tuple[int, int]], prepare: Callable[[BoundQuery], BoundQuery]) -> list[BoundQuery]:
    """For each subject and relation, the query for the objects of such links, as ``prepare`` makes it.

    All of them have one structure, so one preparation serves them all.
    """
    if not keys:
        return []
    subject, relation = keys[0]
    template = prepare(BoundQuery((subject, TARGET), ((0, relation, 1),), (1,)))
    ((start, _, stop),) = template.edges
    return [replace(template, nodes=(s, TARGET), edges=((start, r, stop),)) for s, r in keys]


KINDS = ("triple", "path", "dag")
ROLES = ("none", "tail", "intersection", "branch")
"""Where a target stands, by role code: no target, the leaf, the entity where branches meet, all others."""


@dataclass(frozen=True)
class AnswerSets:
    """One sorted set of entity ids for each target of a query set, as offsets and values."""

    offsets: NDArray[np.int64]
    """(V+1,)"""
    values: NDArray[np.int32]

    def __len__(self) -> int:
        return len(self.offsets) - 1

    def __getitem__(self, target: int) -> NDArray[np.int32]:
        return self.values[self.offsets[target] : self.offsets[target + 1]]

    def take(self, targets: NDArray[np.int64]) -> AnswerSets:
        """The sets of these targets, in this order."""
        return AnswerSets(*_take_ragged(self.offsets, targets, self.values))


@dataclass(frozen=True)
class QuerySet:
    """Queries as columns. Q queries, N nodes, M edges, V targets in all.

    Targets are numbered 0..V-1 in order of query, then of node: the order of ``target_nodes``, of every
    ``AnswerSets`` in ``filters``, and of the rows that a model's ``scores`` returns.

    >>> queries = QuerySet.of([BoundQuery((TARGET, 7), ((0, 2, 1),), ("x", "y"))])
    >>> len(queries), queries.nodes.tolist(), queries.edges.tolist()
    (1, [-1, 7], [[0, 2, 1]])
    """

    node_offsets: NDArray[np.int64]
    """(Q+1,) slice of each query's nodes."""
    nodes: NDArray[np.int32]
    """(N,) entity id, TARGET or HIDDEN."""
    gold: NDArray[np.int32]
    """(N,) the entity that the miner saw at the node; -1 where none is known."""
    roles: NDArray[np.int8]
    """(N,) index into ROLES."""
    edge_offsets: NDArray[np.int64]
    """(Q+1,) slice of each query's edges."""
    edges: NDArray[np.int32]
    """(M, 3) subject node, relation, object node; nodes count from the query's first. Relation ids of 2R:
    ids R..2R-1 are inverses (see Vocabulary.inverse)."""
    kinds: NDArray[np.int8]
    """(Q,) index into KINDS."""
    filters: Mapping[str, AnswerSets] = field(default_factory=dict)
    """True values of each target by graph: ``split`` and ``complete``. Empty where none were computed."""
    negated: NDArray[np.int8] | None = None
    """(M,) as ``BoundQuery.negated``; None where no query has a negation."""

    def __len__(self) -> int:
        return len(self.node_offsets) - 1

    @property
    def target_nodes(self) -> NDArray[np.int64]:
        """(V,) positions of the targets in ``nodes``."""
        return np.flatnonzero(self.nodes == TARGET)

    @property
    def target_offsets(self) -> NDArray[np.int64]:
        """(Q+1,) slice of each query's targets."""
        running = np.zeros(len(self.nodes) + 1, np.int64)
        np.cumsum(self.nodes == TARGET, out=running[1:])
        return running[self.node_offsets]

    def __getitem__(self, row: int) -> BoundQuery:
        start, stop = self.node_offsets[row], self.node_offsets[row + 1]
        nodes = tuple(self.nodes[start:stop].tolist())
        own = slice(self.edge_offsets[row], self.edge_offsets[row + 1])
        edges = self.edges[own].tolist()
        targets = tuple(node for node, value in enumerate(nodes) if value == TARGET)
        negated = () if self.negated is None or not self.negated[own].any() else tuple(self.negated[own].tolist())
        return BoundQuery(nodes, tuple((s, r, o) for s, r, o in edges), targets, negated=negated)

    def __iter__(self) -> Iterator[BoundQuery]:
        return (self[row] for row in range(len(self)))

    @classmethod
    def of(cls, queries: Sequence[BoundQuery]) -> QuerySet:
        """A query set of hand-made queries, without gold entities, roles or filters."""
        node_offsets = np.cumsum([0, *(len(query.nodes) for query in queries)])
        edge_offsets = np.cumsum([0, *(len(query.edges) for query in queries)])
        nodes = np.array([node for query in queries for node in query.nodes], np.int32)
        edges = np.array([edge for query in queries for edge in query.edges], np.int32).reshape(-1, 3)
        return cls(
            node_offsets.astype(np.int64),
            nodes,
            np.where(nodes >= 0, nodes, -1).astype(np.int32),
            np.zeros(len(nodes), np.int8),
            edge_offsets.astype(np.int64),
            edges,
            np.full(len(queries), KINDS.index("dag"), np.int8),
            negated=_negated([query.negated or (0,) * len(query.edges) for query in queries]),
        )

    def take(self, rows: NDArray[np.integer]) -> QuerySet:
        """The queries ``rows``, in this order, with their filters."""
        rows = np.asarray(rows, np.int64)
        node_offsets, nodes = _take_ragged(self.node_offsets, rows, self.nodes)
        edge_offsets, edges = _take_ragged(self.edge_offsets, rows, self.edges)
        _, targets = _take_ragged(self.target_offsets, rows, np.arange(self.target_offsets[-1]))
        return QuerySet(
            node_offsets,
            nodes,
            _take_ragged(self.node_offsets, rows, self.gold)[1],
            _take_ragged(self.node_offsets, rows, self.roles)[1],
            edge_offsets,
            edges,
            self.kinds[rows],
            {graph: answers.take(targets) for graph, answers in self.filters.items()},
            None if self.negated is None else _take_ragged(self.edge_offsets, rows, self.negated)[1],
        )

    def with_filters(self, **filters: AnswerSets) -> QuerySet:
        """The same queries with these filters added; each must have one set a target."""
        for graph, answers in filters.items():
            if len(answers) != len(self.target_nodes):
                raise InvalidOption(
                    f"filter {graph!r} has {len(answers):,} sets; the queries have {len(self.target_nodes):,} targets"
                )
        return replace(self, filters={**self.filters, **filters})


def concatenate(parts: Sequence[QuerySet]) -> QuerySet:
    """One query set after the other. Filters that not all parts have are dropped."""
    shared = set.intersection(*(set(part.filters) for part in parts)) if parts else set()
    return QuerySet(
        _join_offsets([part.node_offsets for part in parts]),
        np.concatenate([part.nodes for part in parts]),
        np.concatenate([part.gold for part in parts]),
        np.concatenate([part.roles for part in parts]),
        _join_offsets([part.edge_offsets for part in parts]),
        np.concatenate([part.edges for part in parts]),
        np.concatenate([part.kinds for part in parts]),
        {
            graph: AnswerSets(
                _join_offsets([part.filters[graph].offsets for part in parts]),
                np.concatenate([part.filters[graph].values for part in parts]),
            )
            for graph in sorted(shared)
        },
        _negated([[0] * len(part.edges) if part.negated is None else part.negated for part in parts]),
    )


def _negated(parts: Sequence[Sequence[int] | NDArray[np.int8]]) -> NDArray[np.int8] | None:
    """Negated parts of the edges of several queries or sets; None where there is no negation."""
    found = np.concatenate([np.zeros(0, np.int8), *(np.asarray(part, np.int8) for part in parts)])
    return found if found.any() else None


def _join_offsets(parts: Sequence[NDArray[np.int64]]) -> NDArray[np.int64]:
    lengths = [np.diff(part) for part in parts]
    joined = np.zeros(sum(map(len, lengths)) + 1, np.int64)
    np.cumsum(np.concatenate(lengths), out=joined[1:])
    return joined


def members(offsets: NDArray[np.int64], rows: NDArray[np.integer]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Of all elements of the slices ``rows``: which of the rows each belongs to, and its position."""
    counts = offsets[rows + 1] - offsets[rows]
    owners = np.repeat(np.arange(len(rows)), counts)
    return owners, np.arange(len(owners)) + (offsets[rows] - np.cumsum(counts) + counts)[owners]


def _take_ragged(offsets, rows, values):  # type: ignore[no-untyped-def]
    """New offsets and the values of the slices ``rows``, in their order."""
    taken = np.zeros(len(rows) + 1, np.int64)
    np.cumsum(offsets[rows + 1] - offsets[rows], out=taken[1:])
    return taken, values[members(offsets, rows)[1]]
