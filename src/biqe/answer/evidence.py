"""Which patterns of a query the graph holds once the targets are filled, and which are missing.

A pattern between two constants is held or missing. Patterns that share hidden variables stand or fall together,
as one group: the graph holds all of them if some assignment of the hidden variables satisfies all of them; if
not, as few as possible are called missing, so that the others are held by one and the same assignment, the
witness. There may be several witnesses; ``Evidence`` is chosen among them by whoever can weigh their links.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import NamedTuple

import numpy as np

from biqe.exact.answers import tuples
from biqe.graph.index import objects
from biqe.graph.knowledge_graph import Graph
from biqe.query.bound import HIDDEN, BoundQuery, Edge

WITNESSES = 8
"""Witnesses that are weighed against each other for each choice of missing patterns."""
SEARCH = 256
"""Choices of missing patterns that are tried in one group before as few as possible becomes merely few."""


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
        self._groups = _groups(query)
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
            links = [self.fill(edge, nodes) for edge in group]
            yield Evidence(tuple(link for link in links if self.holds(link)),
                           tuple(link for link in links if not self.holds(link)))  # fmt: skip
            return
        for held in self._largest(nodes, group):
            missing = [edge for edge in group if edge not in held]
            for witness in self._witnesses(nodes, held, WITNESSES):
                yield Evidence(tuple(self.fill(edge, witness) for edge in held),
                               tuple(self.fill(edge, witness) for edge in missing))  # fmt: skip

    def _largest(self, nodes: Sequence[int], group: tuple[Edge, ...]) -> list[tuple[Edge, ...]]:
        """The largest subsets of the group that one assignment of its hidden variables satisfies."""
        # What cannot be satisfied alone is in none of them; usually nothing else has to be searched.
        possible = tuple(edge for edge in group if self._satisfiable(nodes, (edge,)))
        tried = 0
        for size in range(len(possible), 0, -1):
            chosen: list[tuple[Edge, ...]] = []
            for subset in combinations(possible, size):
                tried += 1
                if tried > SEARCH:
                    return chosen or [self._greedy(nodes, possible)]
                if self._satisfiable(nodes, subset):
                    chosen.append(subset)
            if chosen:
                return chosen
        return [()]

    def _greedy(self, nodes: Sequence[int], possible: tuple[Edge, ...]) -> tuple[Edge, ...]:
        """A subset that no further pattern can join."""
        held: tuple[Edge, ...] = ()
        for edge in possible:
            if self._satisfiable(nodes, (*held, edge)):
                held = (*held, edge)
        return held

    def _satisfiable(self, nodes: Sequence[int], edges: tuple[Edge, ...]) -> bool:
        return next(self._witnesses(nodes, edges, 1), None) is not None

    def _witnesses(self, nodes: Sequence[int], edges: tuple[Edge, ...], count: int) -> Iterator[list[int]]:
        """Up to ``count`` copies of ``nodes`` with the hidden variables of ``edges`` filled so that the graph
        holds all of them; hidden variables outside of ``edges`` stay as ``-1 - node``."""
        nodes = [-1 - node if value == HIDDEN else value for node, value in enumerate(nodes)]
        used = list(dict.fromkeys(node for edge in edges for node in (edge[0], edge[2])))
        number = {node: place for place, node in enumerate(used)}
        hidden = [node for node in used if nodes[node] < 0]
        if not edges:
            yield nodes
            return
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

    def fill(self, edge: Edge, nodes: Sequence[int]) -> IdLink:
        """The edge as a stored triple would be written: never an inverse relation."""
        subject, relation, object_ = edge
        if relation >= self.graph.relation_count:
            subject, relation, object_ = object_, self.graph.vocabulary.inverse(relation), subject
        return IdLink(nodes[subject], relation, nodes[object_])

    def holds(self, link: IdLink) -> bool:
        """Whether the graph holds this triple."""
        stored = objects(self.graph.index, link.subject, link.relation)
        place = int(np.searchsorted(stored, link.object))
        return place < len(stored) and int(stored[place]) == link.object


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
