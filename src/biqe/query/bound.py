"""A query in ids: nodes and edges, ready for the exact engine, the models and the miners.

A node holds an entity id, or TARGET (projected variable, becomes [MASK]), or HIDDEN (existential variable).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace

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

    @property
    def anchors(self) -> tuple[int, ...]:
        """Nodes that are constants."""
        return tuple(node for node, value in enumerate(self.nodes) if value >= 0)

    @property
    def outline(self) -> Outline:
        """The query without its entities and relations: equal where two queries differ in nothing else."""
        return tuple(min(value, 0) for value in self.nodes), tuple((s, o) for s, _, o in self.edges), self.targets


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
