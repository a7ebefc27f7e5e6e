"""The facts that together make a row: an entity for every variable, and for each pattern whether it is stored.

Of all ways to fill the hidden variables the one is chosen that needs the fewest missing links, and among those the
one whose missing links are most probable together (their probabilities multiplied). Patterns that share hidden
variables stand or fall together, as one group; groups are searched one by one:

1. the exact engine finds the largest sets of patterns that stored triples satisfy together, and the entities that do;
2. hidden variables on none of these patterns get the entities that the model finds most probable there.

The search is complete for the queries people write. Where it had to stop early, ``is_complete`` is false: the witness
is a witness, but there may be a better one.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from biqe.errors import UnsupportedQuery
from biqe.exact.answers import tuples
from biqe.exact.together import largest
from biqe.explain.asking import Asker, Triple
from biqe.graph.index import objects
from biqe.graph.knowledge_graph import Graph
from biqe.query.bound import HIDDEN, TARGET, BoundQuery, Edge
from biqe.query.dag import components

WITNESSES = 64
"""Ways to satisfy one set of patterns that are weighed against each other."""
PROPOSALS = 64
"""Entities that are tried for a hidden variable which no stored triple fills."""
COMBINATIONS = 4096
"""Ways to fill several such variables that are weighed against each other."""
JUDGED = 100_000
"""Ways to satisfy a set of patterns that are looked through for those that conditions allow."""
NOBODY = -1
"""In place of an entity, where none was found."""

Filled = dict[int, int]
"""Entities by node."""
Allowed = Mapping[int, NDArray[np.bool_]]
"""(E,) entities that a hidden variable may be, by node; a node that is not there may be any."""


@dataclass(frozen=True)
class Found:
    """A witness in ids."""

    nodes: tuple[int, ...]
    """Entity of each node of the query; NOBODY for a hidden variable that nothing fills."""
    stored: tuple[bool, ...]
    """For each edge of the query, whether the graph holds it."""
    probabilities: tuple[float | None, ...]
    """For each edge: 1 where it is stored, the model's where it is missing, None where nobody can say."""
    is_complete: bool
    """Whether nothing better can have been overlooked."""


def holds(graph: Graph, triple: Triple) -> bool:
    """Whether the graph holds this triple; its relation may be an inverse."""
    subject, relation, object_ = forward(triple, graph.relation_count)
    stored = objects(graph.index, subject, relation)
    place = int(np.searchsorted(stored, object_))
    return place < len(stored) and int(stored[place]) == object_


def forward(edge: Edge, relation_count: int) -> Edge:
    """The edge as a stored triple is written: never by an inverse relation."""
    subject, relation, object_ = edge
    return edge if relation < relation_count else (object_, relation - relation_count, subject)


def find(
    graph: Graph, query: BoundQuery, row: Mapping[int, int], asker: Asker | None, allowed: Allowed | None = None
) -> Found:
    """The best witness of a row; ``row`` gives an entity to each target node. Without a model missing links have no
    probability, and a hidden variable that no stored triple fills stays empty."""
    search = _Search(graph, query, dict(row), asker, allowed or {})
    for group in search.groups():
        search.fill(group)
    nodes = tuple(search.filled.get(node, NOBODY) for node in range(len(query.nodes)))
    links = [(nodes[s], relation, nodes[o]) for s, relation, o in query.edges]
    stored = tuple(NOBODY not in (s, o) and holds(graph, (s, r, o)) for s, r, o in links)
    chances = search.chances([link for link, is_stored in zip(links, stored, strict=True) if not is_stored])
    return Found(
        nodes, stored,
        tuple(1.0 if is_stored else chances[link] for link, is_stored in zip(links, stored, strict=True)),
        search.is_complete,
    )  # fmt: skip


class _Search:
    """One search: what is filled so far, and what the model said about links."""

    def __init__(self, graph: Graph, query: BoundQuery, row: Filled, asker: Asker | None, allowed: Allowed) -> None:
        self.graph, self.query, self.asker, self.allowed = graph, query, asker, allowed
        self.filled = {node: value for node, value in enumerate(query.nodes) if value >= 0} | row
        self.is_complete = True
        self._said: dict[Triple, float | None] = {}
        self._proposed: dict[tuple[object, ...], tuple[Filled, float]] = {}

    def groups(self) -> Iterator[tuple[Edge, ...]]:
        """Patterns that share hidden variables, those of each group together."""
        hidden = {node for node, value in enumerate(self.query.nodes) if value == HIDDEN}
        inner = [edge for edge in self.query.edges if edge[0] in hidden and edge[2] in hidden]
        for members in components(len(self.query.nodes), inner):
            if members[0] in hidden:
                yield tuple(edge for edge in self.query.edges if edge[0] in members or edge[2] in members)

    def chances(self, links: Sequence[Triple]) -> dict[Triple, float | None]:
        """Probability of each link; None where an end is not known or no model can say."""
        new = [link for link in dict.fromkeys(links) if link not in self._said]
        closed = [link for link in new if NOBODY not in (link[0], link[2])] if self.asker is not None else []
        self._said.update(dict.fromkeys(new))
        if closed and self.asker is not None:
            as_stored = [forward(link, self.graph.relation_count) for link in closed]
            try:
                self._said.update(zip(closed, self.asker.link_probabilities(as_stored), strict=True))
            except UnsupportedQuery:
                # A model that cannot read a single link has no opinion on it.
                self.asker = None
        return {link: self._said[link] for link in links}

    def fill(self, group: tuple[Edge, ...]) -> None:
        """Fill the hidden variables of a group, as well as can be."""
        ways: list[tuple[Filled, list[Edge]]] = []
        subsets, are_all = largest(group, self._is_satisfiable)
        self.is_complete &= are_all
        for held in subsets:
            missing = [edge for edge in group if edge not in held]
            found = list(self._satisfying(held, WITNESSES + 1 if missing else 1))
            if len(found) > WITNESSES:
                self.is_complete = False
            ways += [(way, missing) for way in found[:WITNESSES]]
        closed = [
            link for way, missing in ways for edge in missing if NOBODY not in (link := self._link(edge, way))[::2]
        ]
        said = self.chances(closed)
        best, best_weight = ways[0][0], -np.inf
        for number, (way, missing) in enumerate(ways):
            weight = sum(_log(said.get(self._link(edge, way), 1.0)) for edge in missing)
            proposal, more = self._propose(way, missing)
            if number == 0 or weight + more > best_weight:
                best, best_weight = way | proposal, weight + more
        self.filled |= best

    def _link(self, edge: Edge, way: Filled) -> Triple:
        """The edge with entities at its ends, or NOBODY."""
        ends = [way.get(node, self.filled.get(node, NOBODY)) for node in (edge[0], edge[2])]
        return ends[0], edge[1], ends[1]

    def _is_satisfiable(self, edges: tuple[Edge, ...]) -> bool:
        return next(self._satisfying(edges, 1), None) is not None

    def _satisfying(self, edges: tuple[Edge, ...], count: int) -> Iterator[Filled]:
        """Up to ``count`` ways to fill the hidden variables of ``edges`` so that the graph holds all of them."""
        used = list(dict.fromkeys(node for edge in edges for node in (edge[0], edge[2])))
        number = {node: place for place, node in enumerate(used)}
        hidden = [node for node in used if node not in self.filled]
        if not hidden:
            yield {}
            return
        query = BoundQuery(
            tuple(self.filled.get(node, TARGET) for node in used),
            tuple((number[subject], relation, number[object_]) for subject, relation, object_ in edges),
            tuple(number[node] for node in hidden),
        )
        conditions = [(column, self.allowed[node]) for column, node in enumerate(hidden) if node in self.allowed]
        rows = tuples(self.graph, query, limit=JUDGED if conditions else count)
        if conditions and len(rows) == JUDGED:
            self.is_complete = False
        for column, mask in conditions:
            rows = rows[mask[rows[:, column]]]
        for row in rows[:count].tolist():
            yield dict(zip(hidden, row, strict=True))

    def _propose(self, way: Filled, missing: Sequence[Edge]) -> tuple[Filled, float]:
        """Entities for the variables that ``way`` leaves open, and the log-probability of the links they need."""
        open_nodes = sorted({node for edge in missing for node in (edge[0], edge[2])} - way.keys() - self.filled.keys())
        edges = [edge for edge in missing if edge[0] in open_nodes or edge[2] in open_nodes]
        if not open_nodes:
            return {}, 0.0
        key = (tuple(edges), *(self._link(edge, way) for edge in edges))
        if key not in self._proposed:
            self._proposed[key] = self._most_probable(way, open_nodes, edges)
        return self._proposed[key]

    def _most_probable(self, way: Filled, open_nodes: list[int], edges: list[Edge]) -> tuple[Filled, float]:
        candidates = self._candidates(way, open_nodes, edges)
        if candidates is None or not all(candidates):
            return {}, -np.inf
        if any(len(tried) < self._choices(node) for node, tried in zip(open_nodes, candidates, strict=True)):
            self.is_complete = False
        axes = {node: axis for axis, node in enumerate(open_nodes)}
        total = np.zeros([len(entities) for entities in candidates])
        for edge in edges:
            ends = [candidates[axes[n]] if n in axes else [self._link(edge, way)[2 * e]]
                    for e, n in enumerate((edge[0], edge[2]))]  # fmt: skip
            links = [(s, edge[1], o) for s in ends[0] for o in ends[1]]
            said = self.chances(links)
            table = np.array([_log(said[link]) for link in links]).reshape(len(ends[0]), len(ends[1]))
            if edge[0] == edge[2]:
                table = np.diagonal(table)
            total = total + _spread(table, edge, axes)
        if not np.isfinite(total).any():
            return {}, -np.inf
        place = np.unravel_index(int(total.argmax()), total.shape)
        chosen = {node: candidates[axis][int(place[axis])] for node, axis in axes.items()}
        return chosen, float(total[place])

    def _candidates(self, way: Filled, open_nodes: list[int], edges: list[Edge]) -> list[list[int]] | None:
        """Entities to try for each open variable: all of a small graph, else those that the model finds likely."""
        count = min(PROPOSALS, max(1, int(COMBINATIONS ** (1 / len(open_nodes)) + 1e-9)))
        if self.asker is None:
            return None
        if all(self._choices(node) <= count for node in open_nodes):
            everybody = np.ones(self.graph.entity_count, bool)
            return [np.flatnonzero(self.allowed.get(node, everybody)).tolist() for node in open_nodes]
        used = list(dict.fromkeys(node for edge in edges for node in (edge[0], edge[2])))
        number = {node: place for place, node in enumerate(used)}
        query = BoundQuery(
            tuple(TARGET if node in open_nodes else (self.filled | way)[node] for node in used),
            tuple((number[subject], relation, number[object_]) for subject, relation, object_ in edges),
            tuple(number[node] for node in open_nodes),
        )
        try:
            scores = self.asker.log_probabilities([self.asker.prepare(query)])
        except UnsupportedQuery:
            return None
        found = []
        for node, likely in zip(open_nodes, np.argsort(-scores, axis=1, kind="stable"), strict=True):
            found.append((likely[self.allowed[node][likely]] if node in self.allowed else likely)[:count].tolist())
        return found

    def _choices(self, node: int) -> int:
        """How many entities a variable may be."""
        return int(self.allowed[node].sum()) if node in self.allowed else self.graph.entity_count


def _spread(table: np.ndarray, edge: Edge, axes: Mapping[int, int]) -> np.ndarray:
    """A table over the ends of an edge, (subjects, objects) or one axis for a loop, laid along the axes of the open
    variables."""
    shape = [1] * len(axes)
    if edge[0] == edge[2]:
        shape[axes[edge[0]]] = len(table)
        return table.reshape(shape)
    first, second = axes.get(edge[0]), axes.get(edge[2])
    if first is not None:
        shape[first] = table.shape[0]
    if second is not None:
        shape[second] = table.shape[1]
    if first is not None and second is not None and first > second:
        table = table.T
    return table.reshape(shape)


def _log(chance: float | None) -> float:
    return -np.inf if not chance else float(np.log(chance))
