"""What a row rests on: which patterns the graph holds once the variables are filled, and which links are missing.

Answering and explaining search here alike, so that a row and its explanation name the same links. A pattern between
two entities is held or missing. Patterns that share hidden variables stand or fall together, as one group:

1. the graph holds all of them if some assignment of the hidden variables satisfies all of them; if not, as few as
   possible are called missing, so that the others are held by one and the same assignment, the witness;
2. of all witnesses the one is chosen whose missing links are most probable together (their probabilities multiplied);
3. hidden variables on missing patterns alone get the entities that the model finds most probable there.

The graph is searched row by row (``EvidenceFinder``), the model is asked about the links of all rows together
(``chosen``): about the objects of a subject and a relation, so that any number of objects costs one question. Where
subjects have to be compared, ``SUBJECTS`` of them are; ``Evidence.is_complete`` tells where that was not all.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import product
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from biqe.errors import UnsupportedQuery
from biqe.exact.answers import tuples
from biqe.exact.together import largest
from biqe.graph.index import objects, subjects
from biqe.graph.knowledge_graph import Graph
from biqe.query.bound import HIDDEN, TARGET, BoundQuery, Edge

SUBJECTS = 8
"""Subjects of missing links that are compared, for each choice of missing patterns of a row."""
WAYS = 256
"""Witnesses that are weighed against each other for each choice of missing patterns."""
MATCHES = 4096
"""Ways to satisfy a set of patterns that are looked through for them."""
JUDGED = 100_000
"""The same where conditions on hidden variables may sort most of them out."""
PROPOSALS = 8
"""Entities that are tried for a hidden variable which no stored triple fills, where one link does not decide it."""
COMBINATIONS = 4096
"""Ways to fill several such variables that are weighed against each other."""
AHEAD = 12
"""Links that are asked about before the rows are known."""
SCORES_AT_ONCE = 4_000_000
"""Scores that one question about links may return (16 MB of float32)."""

Triple = tuple[int, int, int]
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


@dataclass(frozen=True)
class Opinion:
    """A model, as far as links are concerned."""

    prepare: Callable[[BoundQuery], BoundQuery]
    """A query as the model reads it; UnsupportedQuery where it cannot."""
    log_probabilities: Callable[[Sequence[BoundQuery]], NDArray[np.floating]]
    """(V, E) of prepared queries, a row for each target."""
    link_probabilities: Callable[[Sequence[Triple]], Sequence[float]]
    """How probable each link is by itself."""
    knows: Callable[[int, int], bool]
    """Whether it can have something to say about an entity and a relation."""


class EvidenceFinder:
    """Evidence for the rows of one query on one graph. Groups met before are remembered."""

    def __init__(self, graph: Graph, query: BoundQuery, allowed: Allowed | None = None) -> None:
        self.graph = graph
        self.query = query
        self.allowed = allowed or {}
        self._relations = graph.relation_count
        self._groups = _groups(query)
        self._neighbours: dict[tuple[Edge, int], Entities] = {}
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
        return sum((self.evidence_of(_first(ways[0])) for ways in self.alternatives(row)), Evidence())

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
        subsets, are_all = largest(group, partial(self._satisfiable, nodes))
        for held in subsets:
            missing = tuple(edge for edge in group if edge not in held)
            for way in self._filled(nodes, held, missing, hidden):
                yield way if are_all else replace(way, is_complete=False)

    def _filled(
        self, nodes: Sequence[int], held: tuple[Edge, ...], missing: tuple[Edge, ...], hidden: set[int]
    ) -> Iterator[Way]:
        """Ways in which the graph holds ``held``, that differ in the links that are missing."""
        inside = {node for edge in held for node in (edge[0], edge[2])} & hidden
        free = {node: np.flatnonzero(self.allowed[node]).astype(np.int32) for node in hidden - inside
                if node in self.allowed}  # fmt: skip
        shared = sorted(node for node in inside if any(node in (edge[0], edge[2]) for edge in missing))
        if not shared:
            yield Way(held, missing, tuple(nodes), free)
            return
        matches, is_complete = self._matches(nodes, held, shared)
        if len(shared) == 1 and self._leaf(missing, shared[0], nodes) is not None:
            yield Way(held, missing, tuple(nodes), {**free, shared[0]: matches[:, 0]}, is_complete)
            return
        # What is missing begins at the entities of the witness: each of them is a question to the model.
        if len(shared) == 1 and any(self._subject(edge) == shared[0] for edge in missing) and len(matches) > SUBJECTS:
            matches, is_complete = matches[:SUBJECTS], False
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

    def _leaf(self, missing: Sequence[Edge], node: int, nodes: Sequence[int]) -> tuple[int, int] | None:
        """Subject and relation of the missing link that ends in this open variable, if it is the only one about it and
        begins at an entity."""
        links = [self.fill(edge, nodes) for edge in missing if node in (edge[0], edge[2])]
        return links[0][:2] if len(links) == 1 and links[0].subject >= 0 else None

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


def chosen(
    finder: EvidenceFinder, choices: Sequence[Sequence[list[Way]]], opinion: Opinion | None
) -> tuple[list[Evidence], dict[IdLink, float]]:
    """Of each row, whose ``alternatives`` are in ``choices``, the most probable evidence; and how probable its missing
    links are, as far as the model can say. Without a model, the first evidence."""
    groups = {id(ways): ways for alternatives in choices for ways in alternatives}
    links = _Links(finder, opinion)
    best = dict(zip(groups, _best(links, list(groups.values())), strict=True))
    evidence = {key: finder.evidence_of(way) for key, way in best.items()}
    rows = [sum((evidence[id(ways)] for ways in alternatives), Evidence()) for alternatives in choices]
    said = {link: links.said.get(link) for row in rows for link in row.missing}
    return rows, {link: chance for link, chance in said.items() if chance is not None}


def _best(links: _Links, groups: list[list[Way]]) -> list[Way]:
    """The most probable way of each group."""
    finder = links.finder
    filled = iter(_proposed(links, _picked(links, [way for ways in groups for way in ways])))
    groups = [[next(filled) for _ in ways] for ways in groups]
    missing = {way: [finder.fill(edge, way.nodes) for edge in way.missing] for ways in groups for way in ways}
    links.ask(link for found in missing.values() for link in found if link.is_closed)

    def weight(way: Way) -> float:
        return math.prod(links.said.get(link) or 0.0 for link in missing[way])

    best = []
    for ways in groups:
        way = _first(max(ways, key=weight))
        best.append(way if all(each.is_complete for each in ways) else replace(way, is_complete=False))
    return best


def _first(way: Way) -> Way:
    """The way with the first candidate where nobody has chosen: what the graph holds is held."""
    nodes = list(way.nodes)
    for node, entities in way.candidates.items():
        if nodes[node] < 0 and len(entities) and any(node in (edge[0], edge[2]) for edge in way.held):
            nodes[node] = int(entities[0])
    return replace(way, nodes=tuple(nodes))


def _open(way: Way) -> list[int]:
    """Variables of missing patterns that have no entity yet."""
    return sorted({node for edge in way.missing for node in (edge[0], edge[2]) if way.nodes[node] < 0})


class _Links:
    """What a model says about the links of one query; nothing where there is no model, or where it cannot read them."""

    def __init__(self, finder: EvidenceFinder, opinion: Opinion | None) -> None:
        self.finder = finder
        self.opinion = opinion
        self.said: dict[IdLink, float] = {}

    def ask(self, links: Iterator[IdLink]) -> None:
        """Learn how probable these links are."""
        new = [link for link in dict.fromkeys(links) if link not in self.said]
        if self.opinion is None or not new:
            return
        try:
            self.said.update(zip(new, self.opinion.link_probabilities(new), strict=True))
        except UnsupportedQuery:
            self.opinion = None  # a model that cannot read a single link has no opinion on it

    def objects(self, keys: Sequence[tuple[int, int]]) -> Iterator[tuple[tuple[int, int], NDArray[np.floating]]]:
        """(E,) log-probabilities of the objects of each subject and relation that the model knows."""
        known = [key for key in keys if self.opinion is not None and self.opinion.knows(*key)]
        if self.opinion is None or not known:
            return
        subject, relation = known[0]
        try:
            # All of these queries have one structure, so one preparation serves them all.
            template = self.opinion.prepare(BoundQuery((subject, TARGET), ((0, relation, 1),), (1,)))
        except UnsupportedQuery:
            self.opinion = None
            return
        ((start, _, stop),) = template.edges
        step = max(1, SCORES_AT_ONCE // self.finder.graph.entity_count)
        for first in range(0, len(known), step):
            part = known[first : first + step]
            queries = [replace(template, nodes=(s, TARGET), edges=((start, r, stop),)) for s, r in part]
            yield from zip(part, self.opinion.log_probabilities(queries), strict=True)


def _picked(links: _Links, ways: list[Way]) -> list[Way]:
    """The ways, with the most probable object where one link alone decides on a variable."""
    finder = links.finder
    wanted: dict[tuple[int, int], list[tuple[int, int]]] = {}
    for number, way in enumerate(ways):
        for node in _open(way):
            key = finder._leaf(way.missing, node, way.nodes)
            if key is not None:
                wanted.setdefault(key, []).append((number, node))
    if not wanted:
        return ways
    # Links that have to be weighed anyway are asked about in the same call, by a model that remembers what it said.
    closed = (finder.fill(edge, way.nodes) for way in ways for edge in way.missing)
    keys = list(dict.fromkeys([*wanted, *(link[:2] for link in closed if link.is_closed)]))
    if len(keys) * finder.graph.entity_count > SCORES_AT_ONCE:
        keys = list(wanted)
    nodes = {number: list(ways[number].nodes) for places in wanted.values() for number, _ in places}
    for key, scores in links.objects(keys):
        for number, node in wanted.get(key, ()):
            entities = ways[number].candidates.get(node)
            if entities is None:
                nodes[number][node] = int(scores.argmax())
            elif len(entities):
                nodes[number][node] = int(entities[scores[entities].argmax()])
    return [replace(way, nodes=tuple(nodes[number])) if number in nodes else way for number, way in enumerate(ways)]


def _proposed(links: _Links, ways: list[Way]) -> list[Way]:
    """The ways, with the most probable entities in the place of variables that several missing links decide on."""
    finder = links.finder
    asked: dict[int, tuple[list[int], list[Edge], list[list[int]], bool]] = {}
    for number, (way, found) in enumerate(zip(ways, _candidates(links, ways), strict=True)):
        if found is not None and all(found[0]):
            open_nodes = _open(way)
            edges = [edge for edge in way.missing if edge[0] in open_nodes or edge[2] in open_nodes]
            asked[number] = open_nodes, edges, *found
    if not asked:
        return ways

    def tables(number: int) -> Iterator[tuple[Edge, list[IdLink]]]:
        open_nodes, edges, tried, _ = asked[number]
        axes = dict(zip(open_nodes, tried, strict=True))
        for edge in edges:
            ends = [axes.get(node, [ways[number].nodes[node]]) for node in dict.fromkeys((edge[0], edge[2]))]
            nodes = list(ways[number].nodes)
            filled = []
            for values in product(*ends):
                for node, value in zip(dict.fromkeys((edge[0], edge[2])), values, strict=True):
                    nodes[node] = value
                filled.append(finder.fill(edge, nodes))
            yield edge, filled

    links.ask(link for number in asked for _, filled in tables(number) for link in filled)
    found_ways = list(ways)
    for number, (open_nodes, _, tried, is_complete) in asked.items():
        total = np.zeros([len(entities) for entities in tried])
        for edge, filled in tables(number):
            with np.errstate(divide="ignore"):
                weights = np.log([links.said.get(link) or 0.0 for link in filled])
            ends = list(dict.fromkeys((edge[0], edge[2])))
            axes_of = [open_nodes.index(node) for node in ends if node in open_nodes]
            weights = weights.reshape([len(tried[axis]) for axis in axes_of])
            if axes_of != sorted(axes_of):
                weights = weights.T
            shape = [len(tried[axis]) if axis in axes_of else 1 for axis in range(len(tried))]
            total = total + weights.reshape(shape)
        way = ways[number]
        if np.isfinite(total).any():
            place = np.unravel_index(int(total.argmax()), total.shape)
            nodes = list(way.nodes)
            for node, entities, best in zip(open_nodes, tried, place, strict=True):
                nodes[node] = entities[int(best)]
            way = replace(way, nodes=tuple(nodes))
        found_ways[number] = way if is_complete else replace(way, is_complete=False)
    return found_ways


def _candidates(links: _Links, ways: list[Way]) -> list[tuple[list[list[int]], bool] | None]:
    """For each way, entities to try for each of its open variables, and whether these are all there are: all of a small
    graph, else those that the model finds likely. None where nothing is open, or nobody can say."""
    found: list[tuple[list[list[int]], bool] | None] = [None] * len(ways)
    opinion, everybody = links.opinion, links.finder.graph.entity_count
    if opinion is None:
        return found
    asked: dict[BoundQuery, list[int]] = {}
    for number, way in enumerate(ways):
        open_nodes = _open(way)
        if not open_nodes:
            continue
        choices = [way.candidates.get(node) for node in open_nodes]
        count = _tried(len(open_nodes))
        if all((everybody if c is None else len(c)) <= count for c in choices):
            found[number] = [list(range(everybody)) if c is None else c.tolist() for c in choices], True
            continue
        edges = [edge for edge in way.missing if edge[0] in open_nodes or edge[2] in open_nodes]
        used = list(dict.fromkeys(node for edge in edges for node in (edge[0], edge[2])))
        slot = {node: place for place, node in enumerate(used)}
        query = BoundQuery(
            tuple(TARGET if node in open_nodes else way.nodes[node] for node in used),
            tuple((slot[subject], relation, slot[object_]) for subject, relation, object_ in edges),
            tuple(slot[node] for node in open_nodes),
        )
        asked.setdefault(query, []).append(number)
    prepared: dict[BoundQuery, list[int]] = {}
    for query, numbers in asked.items():
        try:
            prepared.setdefault(opinion.prepare(query), []).extend(numbers)
        except UnsupportedQuery:
            continue
    if not prepared:
        return found
    widest = max(len(query.targets) for query in prepared)
    step = max(1, SCORES_AT_ONCE // (widest * everybody))
    queries = list(prepared)
    scores = (row for first in range(0, len(queries), step)
              for row in opinion.log_probabilities(queries[first : first + step]))  # fmt: skip
    for query, numbers in prepared.items():
        rows = [next(scores) for _ in query.targets]
        for number in numbers:
            tried, count = [], _tried(len(rows))
            for node, row in zip(_open(ways[number]), rows, strict=True):
                entities = ways[number].candidates.get(node, np.arange(everybody, dtype=np.int32))
                tried.append(entities[np.argsort(-row[entities], kind="stable")[:count]].tolist())
            found[number] = tried, False
    return found


def _tried(variables: int) -> int:
    """Entities that are tried for each of so many variables."""
    return min(PROPOSALS, max(1, int(COMBINATIONS ** (1 / variables) + 1e-9)))


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
