"""Which patterns of a query the graph holds once the targets are filled, and which are missing.

A pattern between two constants is held or missing. Patterns that share hidden variables stand or fall together,
as one group: the graph holds all of them if some assignment of the hidden variables satisfies all of them; if
not, as few as possible are called missing, so that the others are held by one and the same assignment, the
witness. There may be several witnesses; ``Evidence`` is chosen among them by whoever can weigh their links.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from biqe.exact.answers import tuples
from biqe.exact.together import largest
from biqe.graph.index import objects, subjects
from biqe.graph.knowledge_graph import Graph
from biqe.query.bound import HIDDEN, BoundQuery, Edge

WITNESSES = 8
"""Witnesses that are weighed against each other for each choice of missing patterns."""


AHEAD = 12
"""Links that are asked about before the rows are known."""


class IdLink(NamedTuple):
    """A pattern with its variables filled in, in ids. A hidden variable without a witness is ``-1 - node``."""

    subject: int
    relation: int
    object: int

    @property
    def is_closed(self) -> bool:
        """Whether both ends are entities."""
        return self.subject >= 0 and self.object >= 0


@dataclass(frozen=True)
class Evidence:
    """The patterns of a row, filled: those that the graph holds and those that it does not."""

    held: tuple[IdLink, ...] = ()
    missing: tuple[IdLink, ...] = ()

    def __add__(self, other: Evidence) -> Evidence:
        return Evidence(self.held + other.held, self.missing + other.missing)


class EvidenceFinder:
    """Evidence for the rows of one query on one graph. Groups met before are remembered."""

    def __init__(self, graph: Graph, query: BoundQuery) -> None:
        self.graph = graph
        self.query = query
        self._relations = graph.relation_count
        self._groups = _groups(query)
        self._neighbours: dict[tuple[Edge, int], NDArray[np.int32]] = {}
        self._seen: dict[tuple[int, tuple[int, ...]], list[Evidence]] = {}

    def alternatives(self, row: Sequence[int]) -> list[list[Evidence]]:
        """For each group of patterns, the witnesses among which to choose; never empty.

        ``row`` holds one entity for each target, in SELECT order.
        """
        nodes = list(self.query.nodes)
        for node, entity in zip(self.query.targets, row, strict=True):
            nodes[node] = int(entity)
        found = []
        for number, group in enumerate(self._groups):
            key = number, tuple(nodes[node] for edge in group for node in (edge[0], edge[2]))
            if key not in self._seen:
                self._seen[key] = list(self._weighable(nodes, group))
            found.append(self._seen[key])
        return found

    def evidence(self, row: Sequence[int]) -> Evidence:
        """The first witness of each group."""
        return sum((choices[0] for choices in self.alternatives(row)), Evidence())

    def _weighable(self, nodes: Sequence[int], group: tuple[Edge, ...]) -> Iterator[Evidence]:
        if not any(nodes[node] == HIDDEN for edge in group for node in (edge[0], edge[2])):
            links = {link: self.holds(link) for link in (self.fill(edge, nodes) for edge in group)}
            yield Evidence(tuple(link for link, is_held in links.items() if is_held),
                           tuple(link for link, is_held in links.items() if not is_held))  # fmt: skip
            return
        hidden = {node for edge in group for node in (edge[0], edge[2]) if nodes[node] == HIDDEN}
        if len(hidden) == 1 and not any(edge[0] == edge[2] for edge in group):
            yield from self._around(nodes, group, hidden.pop())
            return
        subsets, _ = largest(group, partial(self._satisfiable, nodes))
        for held in subsets:
            missing = [edge for edge in group if edge not in held]
            for witness in self._witnesses(nodes, held, WITNESSES):
                yield Evidence(tuple(self.fill(edge, witness) for edge in held),
                               tuple(self.fill(edge, witness) for edge in missing))  # fmt: skip

    def _around(self, nodes: Sequence[int], group: tuple[Edge, ...], hidden: int) -> Iterator[Evidence]:
        """What ``_weighable`` finds where all patterns meet in one hidden variable, which is what most rows ask."""
        filled = [-1 - node if value == HIDDEN else value for node, value in enumerate(nodes)]
        subsets, _ = largest(group, lambda edges: len(self._common(filled, edges, hidden)) > 0)
        for held in subsets:
            missing = [edge for edge in group if edge not in held]
            for entity in self._common(filled, held, hidden)[:WITNESSES].tolist() if held else [-1 - hidden]:
                witness = [*filled[:hidden], entity, *filled[hidden + 1 :]]
                yield Evidence(tuple(self.fill(edge, witness) for edge in held),
                               tuple(self.fill(edge, witness) for edge in missing))  # fmt: skip

    def _satisfiable(self, nodes: Sequence[int], edges: tuple[Edge, ...]) -> bool:
        return next(self._witnesses(nodes, edges, 1), None) is not None

    def _witnesses(self, nodes: Sequence[int], edges: tuple[Edge, ...], count: int) -> Iterator[list[int]]:
        """Up to ``count`` copies of ``nodes`` with the hidden variables of ``edges`` filled so that the graph
        holds all of them; hidden variables outside of ``edges`` stay as ``-1 - node``."""
        nodes = [-1 - node if value == HIDDEN else value for node, value in enumerate(nodes)]
        used = list(dict.fromkeys(node for edge in edges for node in (edge[0], edge[2])))
        hidden = [node for node in used if nodes[node] < 0]
        if not edges:
            yield nodes
            return
        if len(hidden) == 1 and not any(edge[0] == edge[2] for edge in edges):
            for entity in self._common(nodes, edges, hidden[0])[:count].tolist():
                yield [*nodes[: hidden[0]], entity, *nodes[hidden[0] + 1 :]]
            return
        number = {node: place for place, node in enumerate(used)}
        query = BoundQuery(
            tuple(-1 if nodes[node] < 0 else nodes[node] for node in used),
            tuple((number[subject], relation, number[object_]) for subject, relation, object_ in edges),
            tuple(number[node] for node in hidden),
        )
        for row in tuples(self.graph, query, limit=count).tolist():
            filled = list(nodes)
            for node, entity in zip(hidden, row, strict=True):
                filled[node] = entity
            yield filled

    def _common(self, nodes: Sequence[int], edges: Sequence[Edge], hidden: int) -> NDArray[np.int32]:
        """Entities that satisfy all ``edges``, of which none begins and ends there, in the place of the one hidden
        variable, sorted: what ``tuples`` gives, without a join."""
        common = self._near(nodes, edges[0], hidden)
        for edge in edges[1:]:
            common = _intersection(common, self._near(nodes, edge, hidden))
        return common

    def _near(self, nodes: Sequence[int], edge: Edge, hidden: int) -> NDArray[np.int32]:
        """Entities that satisfy one edge in the place of the hidden variable."""
        key = edge, nodes[edge[0] if edge[2] == hidden else edge[2]]
        found = self._neighbours.get(key)
        if found is None:
            link, index = self.fill(edge, nodes), self.graph.index
            found = self._neighbours[key] = (
                subjects(index, link.relation, link.object)
                if link.subject < 0
                else objects(index, link.subject, link.relation)
            )
        return found

    def links_ahead(self) -> list[tuple[int, int]]:
        """Subjects and relations of links that the rows of this query will be weighed by, whatever the rows are: those
        of constants, and of the first entities that stand for a hidden variable."""
        nodes, found = self.query.nodes, []
        for group in self._groups:
            hidden = {node for edge in group for node in (edge[0], edge[2]) if nodes[node] == HIDDEN}
            from_constants = tuple(edge for edge in group if nodes[edge[0]] >= 0 or nodes[edge[2]] >= 0)
            witnesses = list(self._witnesses(nodes, from_constants, WITNESSES)) if len(hidden) == 1 else []
            for filled in [nodes, *(witnesses if from_constants else ())]:
                links = (self.fill(edge, filled) for edge in group)
                found += [(link.subject, link.relation) for link in links if link.subject >= 0 and not link.is_closed]
        return list(dict.fromkeys(found))[:AHEAD]

    def fill(self, edge: Edge, nodes: Sequence[int]) -> IdLink:
        """The edge as a stored triple would be written: never an inverse relation."""
        subject, relation, object_ = edge
        if relation >= self._relations:
            subject, relation, object_ = object_, relation - self._relations, subject
        return IdLink(nodes[subject], relation, nodes[object_])

    def holds(self, link: IdLink) -> bool:
        """Whether the graph holds this triple."""
        stored = objects(self.graph.index, link.subject, link.relation)
        place = int(np.searchsorted(stored, link.object))
        return place < len(stored) and int(stored[place]) == link.object


def _intersection(first: NDArray[np.int32], second: NDArray[np.int32]) -> NDArray[np.int32]:
    """Values of both; each is sorted and has no value twice."""
    few, many = (first, second) if len(first) <= len(second) else (second, first)
    if len(few) == 0:
        return few
    places = np.minimum(np.searchsorted(many, few), len(many) - 1)
    return few[many[places] == few]


def _groups(query: BoundQuery) -> list[tuple[Edge, ...]]:
    """Patterns that share hidden variables together, every other pattern alone; in the order of the query."""
    edges = list(dict.fromkeys(query.edges))
    group_of: dict[int, int] = {}
    members: dict[int, list[Edge]] = {}
    for number, edge in enumerate(edges):
        members[number] = [edge]
        for node in (edge[0], edge[2]):
            if query.nodes[node] != HIDDEN:
                continue
            other = group_of.setdefault(node, number)
            if other != number:
                members[number] = members.pop(other) + members[number]
                group_of = {n: number if g == other else g for n, g in group_of.items()}
    return sorted(map(tuple, members.values()), key=lambda group: edges.index(group[0]))
