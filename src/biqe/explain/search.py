"""What a row rests on: which patterns the graph holds once the variables are filled, and which links are missing.

Answering and explaining search here alike, so that a row and its explanation name the same links. A pattern between
two entities is held or missing. Patterns that share hidden variables stand or fall together, as one group: the graph
holds all of them if some assignment of the hidden variables satisfies all of them; if not, as few as possible are
called missing, so that the others are held by one and the same assignment, the witness. There may be several ways to do
so; ``weigh`` chooses among them.

Where subjects of missing links have to be compared, ``SUBJECTS`` of them are; ``Evidence.is_complete`` tells where that
was not all.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from biqe.exact.answers import tuples
from biqe.exact.max_consistent_patterns import max_consistent_patterns
from biqe.graph.index import objects, subjects
from biqe.graph.knowledge_graph import Graph
from biqe.query.bound import HIDDEN, TARGET, BoundQuery, Edge

SUBJECTS = 6
"""Subjects of missing links that are compared, for each choice of missing patterns of a row. All of them, a constant's
link and one target of the question are eight rows, which one product with a table of entities takes in one go."""
WAYS = 256
"""Witnesses that are weighed against each other for each choice of missing patterns."""
MATCHES = 4096
"""Ways to satisfy a set of patterns that are looked through for them."""
JUDGED = 100_000
"""The same where conditions on hidden variables may sort most of them out."""
AHEAD = 7
"""Links that are asked about before the rows are known; see SUBJECTS."""

Entities = NDArray[np.int32]
Allowed = Mapping[int, NDArray[np.bool_]]
"""(E,) entities that a hidden variable may be, by node; a node that is not there may be any."""


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
    """The patterns of a row, filled: those that the graph holds and those that it does not, each link once."""

    held: tuple[IdLink, ...] = ()
    missing: tuple[IdLink, ...] = ()
    filled: tuple[tuple[int, int], ...] = ()
    """Node and entity of each variable that has one."""
    is_complete: bool = True
    """Whether no better witness can have been overlooked."""

    def __add__(self, other: Evidence) -> Evidence:
        return Evidence(
            tuple(dict.fromkeys(self.held + other.held)),
            tuple(dict.fromkeys(self.missing + other.missing)),
            tuple(dict.fromkeys(self.filled + other.filled)),
            self.is_complete and other.is_complete,
        )


@dataclass(frozen=True, eq=False)
class Way:
    """One way to fill the patterns of a group; what is still open in it, the model decides."""

    held: tuple[Edge, ...]
    missing: tuple[Edge, ...]
    nodes: tuple[int, ...]
    """Entity of each node of the query, or ``-1 - node``."""
    candidates: Mapping[int, Entities] = field(default_factory=dict)
    """Entities that an open variable may be, sorted; one that is not there may be any."""
    is_complete: bool = True

    def filled(self, nodes: Sequence[int]) -> Way:
        """The same with other entities."""
        return Way(self.held, self.missing, tuple(nodes), self.candidates, self.is_complete)

    def incomplete(self) -> Way:
        """The same where a better one may have been overlooked."""
        return Way(self.held, self.missing, self.nodes, self.candidates, False)


class EvidenceFinder:
    """Evidence for the rows of one query on one graph. Groups met before are remembered."""

    def __init__(self, graph: Graph, query: BoundQuery, allowed: Allowed | None = None) -> None:
        self.graph = graph
        self.query = query
        self.allowed = allowed or {}
        self._relations = graph.relation_count
        self._groups = _groups(query)
        self._neighbours: dict[tuple[Edge, int, int], Entities] = {}
        self._seen: dict[tuple[int, tuple[int, ...]], list[Way]] = {}

    def alternatives(self, row: Sequence[int]) -> list[list[Way]]:
        """For each group of patterns, the ways among which to choose; never empty.

        ``row`` holds one entity for each target, in SELECT order.
        """
        nodes = [-1 - node if value == HIDDEN else value for node, value in enumerate(self.query.nodes)]
        for node, entity in zip(self.query.targets, row, strict=True):
            nodes[node] = int(entity)
        found = []
        for number, group in enumerate(self._groups):
            key = number, tuple(nodes[node] for edge in group for node in (edge[0], edge[2]))
            if key not in self._seen:
                self._seen[key] = list(self._ways(nodes, group))
            found.append(self._seen[key])
        return found

    def evidence(self, row: Sequence[int]) -> Evidence:
        """By the first witness of each group; no model is asked."""
        return sum((self.evidence_of(first_of(ways[0])) for ways in self.alternatives(row)), Evidence())

    def evidence_of(self, way: Way) -> Evidence:
        """The links of a way; where patterns that the graph holds have variables still open, their first match."""
        nodes: Sequence[int] = way.nodes
        if any(nodes[node] < 0 for edge in way.held for node in (edge[0], edge[2])):
            nodes = next(self._witnesses(nodes, way.held, 1))
        own = dict.fromkeys(node for edge in (*way.held, *way.missing) for node in (edge[0], edge[2]))
        return Evidence(
            tuple(dict.fromkeys(self.fill(edge, nodes) for edge in way.held)),
            tuple(dict.fromkeys(self.fill(edge, nodes) for edge in way.missing)),
            tuple((node, nodes[node]) for node in own if self.query.nodes[node] < 0 <= nodes[node]),
            way.is_complete,
        )

    def _ways(self, nodes: Sequence[int], group: tuple[Edge, ...]) -> Iterator[Way]:
        hidden = {node for edge in group for node in (edge[0], edge[2]) if nodes[node] < 0}
        if not hidden:
            held = tuple(edge for edge in group if self.holds(self.fill(edge, nodes)))
            yield Way(held, tuple(edge for edge in group if edge not in held), tuple(nodes))
            return
        subsets, are_all = max_consistent_patterns(group, partial(self._satisfiable, nodes))
        for held in subsets:
            missing = tuple(edge for edge in group if edge not in held)
            for way in self._filled(nodes, held, missing, hidden):
                yield way if are_all else way.incomplete()

    def _filled(
        self, nodes: Sequence[int], held: tuple[Edge, ...], missing: tuple[Edge, ...], hidden: set[int]
    ) -> Iterator[Way]:
        """Ways in which the graph holds ``held``, that differ in the links that are missing."""
        inside = {node for edge in held for node in (edge[0], edge[2])} & hidden
        free = {
            node: np.flatnonzero(self.allowed[node]).astype(np.int32)
            for node in hidden - inside
            if node in self.allowed
        }
        shared = sorted(node for node in inside if any(node in (edge[0], edge[2]) for edge in missing))
        if not shared:
            yield Way(held, missing, tuple(nodes), free)
            return
        matches, is_complete = self._matches(nodes, held, shared)
        if len(shared) == 1 and self.leaf(missing, shared[0], nodes) is not None:
            yield Way(held, missing, tuple(nodes), {**free, shared[0]: matches[:, 0]}, is_complete)
            return
        # What is missing begins at the entities of the witness: each of them is a question to the model.
        if len(shared) == 1 and any(self._subject(edge) == shared[0] for edge in missing) and len(matches) > SUBJECTS:
            matches, is_complete = matches[:SUBJECTS], False
        if len(shared) == 1 and self.root(missing, shared[0], nodes) is not None:
            yield Way(held, missing, tuple(nodes), {**free, shared[0]: matches[:, 0]}, is_complete)
            return
        asked: set[int] = set()
        ways: list[tuple[int, ...]] = []
        for match in matches.tolist():
            filled = list(nodes)
            for node, entity in zip(shared, match, strict=True):
                filled[node] = entity
            links = [self.fill(edge, filled) for edge in missing]
            more = asked | {link.subject for link in links if link.subject >= 0}
            if len(ways) == WAYS or (ways and len(more) > max(SUBJECTS, len(asked))):
                is_complete = False
                continue
            asked = more
            ways.append(tuple(filled))
        for way in ways:
            yield Way(held, missing, way, free, is_complete)

    def leaf(self, missing: Sequence[Edge], node: int, nodes: Sequence[int]) -> tuple[int, int] | None:
        """Subject and relation of the missing link that ends in this open variable, if it is the only one about it and
        begins at an entity."""
        links = [self.fill(edge, nodes) for edge in missing if node in (edge[0], edge[2])]
        return links[0][:2] if len(links) == 1 and links[0].subject >= 0 else None

    def root(self, missing: Sequence[Edge], node: int, nodes: Sequence[int]) -> tuple[int, int] | None:
        """Relation and object of the missing link that begins at this open variable, if it is the only one about it and
        ends in an entity."""
        links = [self.fill(edge, nodes) for edge in missing if node in (edge[0], edge[2])]
        return links[0][1:] if len(links) == 1 and links[0].object >= 0 else None

    def _satisfiable(self, nodes: Sequence[int], edges: tuple[Edge, ...]) -> bool:
        open_ = {edge[0] if nodes[edge[0]] < 0 else edge[2] for edge in edges}
        if len(open_) == 1 and all((nodes[edge[0]] < 0) != (nodes[edge[2]] < 0) for edge in edges):
            (node,) = open_  # what most rows ask, at once
            common = self._common(nodes, edges, node)
            return len(common[self.allowed[node][common]] if node in self.allowed else common) > 0
        return next(self._witnesses(nodes, edges, 1), None) is not None

    def _witnesses(self, nodes: Sequence[int], edges: tuple[Edge, ...], count: int) -> Iterator[list[int]]:
        """Up to ``count`` copies of ``nodes`` with the hidden variables of ``edges`` filled so that the graph
        holds all of them; hidden variables outside of ``edges`` stay as ``-1 - node``."""
        nodes = [-1 - node if value == HIDDEN else value for node, value in enumerate(nodes)]
        hidden = list(dict.fromkeys(node for edge in edges for node in (edge[0], edge[2]) if nodes[node] < 0))
        if not hidden:
            if all(self.holds(self.fill(edge, nodes)) for edge in edges):
                yield nodes
            return
        matches, _ = self._matches(nodes, edges, hidden, count)
        for row in matches[:count].tolist():
            filled = list(nodes)
            for node, entity in zip(hidden, row, strict=True):
                filled[node] = entity
            yield filled

    def _matches(
        self, nodes: Sequence[int], edges: tuple[Edge, ...], columns: Sequence[int], count: int = MATCHES
    ) -> tuple[Entities, bool]:
        """(n, columns) distinct entities of these variables for which the graph holds all ``edges``, sorted; at least
        ``count`` of them if there are so many, and whether these are all."""
        closed = [edge for edge in edges if nodes[edge[0]] >= 0 and nodes[edge[2]] >= 0]
        if not all(self.holds(self.fill(edge, nodes)) for edge in closed):
            return np.zeros((0, len(columns)), np.int32), True
        edges = tuple(edge for edge in edges if edge not in closed)
        used = list(dict.fromkeys(node for edge in edges for node in (edge[0], edge[2])))
        hidden = [node for node in used if nodes[node] < 0]
        if hidden == list(columns) and len(hidden) == 1 and not any(edge[0] == edge[2] for edge in edges):
            common = self._common(nodes, edges, hidden[0])
            if hidden[0] in self.allowed:
                common = common[self.allowed[hidden[0]][common]]
            return common[:, None], True
        conditions = [node for node in hidden if node in self.allowed]
        listed = [*columns, *(node for node in conditions if node not in columns)]
        number = {node: place for place, node in enumerate(used)}
        query = BoundQuery(
            tuple(nodes[node] if nodes[node] >= 0 else TARGET if node in listed else HIDDEN for node in used),
            tuple((number[subject], relation, number[object_]) for subject, relation, object_ in edges),
            tuple(number[node] for node in listed),
        )
        most = JUDGED if conditions else self.graph.entity_count if len(columns) == 1 else count
        rows = tuples(self.graph, query, limit=most + 1)
        is_complete = len(rows) <= most
        for node in conditions:
            rows = rows[self.allowed[node][rows[:, listed.index(node)]]]
        rows = rows[:most, : len(columns)]
        return (np.unique(rows, axis=0) if len(listed) > len(columns) else rows), is_complete

    def _common(self, nodes: Sequence[int], edges: Sequence[Edge], hidden: int) -> Entities:
        """Entities that satisfy all ``edges``, of which none begins and ends there, in the place of the one hidden
        variable, sorted: what ``tuples`` gives, without a join."""
        common = self._near(nodes, edges[0], hidden)
        for edge in edges[1:]:
            common = _intersection(common, self._near(nodes, edge, hidden))
        return common

    def _near(self, nodes: Sequence[int], edge: Edge, hidden: int) -> Entities:
        """Entities that satisfy one edge in the place of the hidden variable."""
        key = edge, hidden, nodes[edge[0] if edge[2] == hidden else edge[2]]
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
            witnesses = list(self._witnesses(nodes, from_constants, SUBJECTS)) if len(hidden) == 1 else []
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

    def _subject(self, edge: Edge) -> int:
        """The node that is the subject of the edge as a stored triple would be written."""
        return edge[0] if edge[1] < self._relations else edge[2]

    def holds(self, link: IdLink) -> bool:
        """Whether the graph holds this triple."""
        stored = objects(self.graph.index, link.subject, link.relation)
        place = int(np.searchsorted(stored, link.object))
        return place < len(stored) and int(stored[place]) == link.object


def first_of(way: Way) -> Way:
    """The way with the first candidate where nobody has chosen: what the graph holds is held."""
    nodes = list(way.nodes)
    for node, entities in way.candidates.items():
        if nodes[node] < 0 and len(entities) and any(node in (edge[0], edge[2]) for edge in way.held):
            nodes[node] = int(entities[0])
    return way.filled(nodes)


def _intersection(first: Entities, second: Entities) -> Entities:
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
