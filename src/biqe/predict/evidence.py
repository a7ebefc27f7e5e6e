"""What a row rests on: an entity for every variable of the query, and so for each pattern a link, stored or missing.

The targets of a row are given. The hidden variables get the entities that make the product of the link probabilities
largest, where a stored link counts 1. Patterns that share hidden variables stand or fall together, so they are searched
as one group; a pattern between two given entities is stored or missing.

1. Where the graph holds all patterns of a group for some entities, those are taken.
2. Else, where there are few enough, all assignments are compared by the probabilities of their missing links. Where
   there are more, the search over links (links/beam.py) finds those that are most probable as it walks them, and these
   are compared.
3. Without a model, and where it cannot search the group, as few links as possible are missing, and a variable that no
   stored link reaches stays open.

Rows that were searched by probabilities of links have their evidence from that search already (link_search.py).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations, product
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import NDArray

from biqe.errors import UnsupportedQuery
from biqe.exact.answers import tuples
from biqe.graph.knowledge_graph import Graph
from biqe.predict.predictor import Predictor
from biqe.query.bound import HIDDEN, TARGET, BoundQuery, Edge, QuerySet, forward

if TYPE_CHECKING:
    import torch

    from biqe.links.beam import Tuples

COMPARED = 64
"""Assignments of a group that are compared by the probabilities of their missing links, and partial ones that the
search keeps."""
JUDGED = 100_000
"""Stored matches that are looked through where conditions on hidden variables may sort most of them out."""

Masks = Mapping[int, NDArray[np.bool_]]
"""(E,) entities that a hidden variable may be, by node; a node that is not there may be any."""
Nodes = tuple[int, ...]
"""Entity of each node of the query; ``-1 - node`` for one that is open."""


class IdLink(NamedTuple):
    """A pattern with its variables filled in, as a stored triple is written, in ids. A hidden variable that nothing
    fills is ``-1 - node``."""

    subject: int
    relation: int
    object: int

    @property
    def is_closed(self) -> bool:
        """Whether both ends are entities."""
        return self.subject >= 0 and self.object >= 0


@dataclass(frozen=True)
class Evidence:
    """An assignment of all variables of a query, and which of its patterns are stored under it."""

    nodes: Nodes = ()
    """Entity of each node; ``-1 - node`` for a hidden variable that nothing fills."""
    links: tuple[IdLink, ...] = ()
    """One for each pattern of the query, in its order."""
    stored: tuple[bool, ...] = ()
    """For each pattern, whether the graph holds its link."""
    is_complete: bool = True
    """Whether no better assignment can have been overlooked."""

    @property
    def held(self) -> tuple[IdLink, ...]:
        """Links that the graph holds, each once."""
        return tuple(dict.fromkeys(link for link, held in zip(self.links, self.stored, strict=True) if held))

    @property
    def missing(self) -> tuple[IdLink, ...]:
        """Links that the graph does not hold, each once."""
        return tuple(dict.fromkeys(link for link, held in zip(self.links, self.stored, strict=True) if not held))


class EvidenceSearch:
    """Evidence for the rows of one query on one graph."""

    def __init__(self, graph: Graph, query: BoundQuery, allowed: Masks | None = None) -> None:
        self.graph = graph
        self.query = query
        self.allowed = allowed or {}
        self._edges = tuple(forward(edge, graph.relation_count) for edge in query.edges)
        self._groups = _groups(query.nodes, self._edges)
        self._held: dict[IdLink, bool] = {}

    def find(
        self, rows: Iterable[Sequence[int]], predictor: Predictor | None = None
    ) -> tuple[list[Evidence], dict[IdLink, float]]:
        """The best evidence of each row, which has an entity for each target in SELECT order; and how probable the
        missing links are, as far as the model can say."""
        predictor = None if predictor is None else predictor.for_question()
        every: list[Nodes] = []
        for row in rows:
            nodes = [-1 - node if value == HIDDEN else value for node, value in enumerate(self.query.nodes)]
            for node, entity in zip(self.query.targets, row, strict=True):
                nodes[node] = int(entity)
            every.append(tuple(nodes))
        is_complete = [True] * len(every)
        for group in self._groups:
            # Rows with the same entities around a group's hidden variables share its assignment.
            around = [tuple(nodes[node] for edge in group for node in (edge[0], edge[2])) for nodes in every]
            example = {key: nodes for key, nodes in zip(around, every, strict=True)}
            found = dict(zip(example, self._solved(group, list(example.values()), predictor), strict=True))
            hidden = {node for edge in group for node in (edge[0], edge[2]) if self.query.nodes[node] == HIDDEN}
            for number, key in enumerate(around):
                best, is_best = found[key]
                every[number] = tuple(
                    best[node] if node in hidden else value for node, value in enumerate(every[number])
                )
                is_complete[number] &= is_best
        evidence = [self.filled(nodes, is_best) for nodes, is_best in zip(every, is_complete, strict=True)]
        missing = dict.fromkeys(link for each in evidence for link in each.missing if link.is_closed)
        return evidence, _probabilities(predictor, list(missing))

    def filled(self, nodes: Sequence[int], is_complete: bool = True) -> Evidence:
        """The evidence of an assignment."""
        links = tuple(IdLink(nodes[edge[0]], edge[1], nodes[edge[2]]) for edge in self._edges)
        return Evidence(tuple(nodes), links, tuple(map(self._holds, links)), is_complete)

    def _holds(self, link: IdLink) -> bool:
        if link not in self._held:
            self._held[link] = link.is_closed and self.graph.holds(*link)
        return self._held[link]

    # One group of patterns, for many rows

    def _solved(
        self, edges: tuple[Edge, ...], every: Sequence[Nodes], predictor: Predictor | None
    ) -> list[tuple[Nodes, bool]]:
        """The best assignment of each row, and whether no better one can have been overlooked."""
        found: list[tuple[Nodes, bool] | None] = []
        for nodes in every:
            match = self._match(edges, nodes)
            found.append(None if match is None else (match, True))
        left = [number for number, each in enumerate(found) if each is None]
        searched = self._searched(edges, [every[number] for number in left], predictor) if predictor and left else []
        for number, best in zip(left, searched or [None] * len(left), strict=True):
            found[number] = self._most_stored(edges, every[number]) if best is None else best
        return [each for each in found if each is not None]

    def _match(self, edges: Sequence[Edge], nodes: Nodes) -> Nodes | None:
        """The first entities of the open variables for which the graph holds all ``edges``; None where there are
        none."""
        closed = [edge for edge in edges if nodes[edge[0]] >= 0 and nodes[edge[2]] >= 0]
        if not all(self._holds(IdLink(nodes[s], relation, nodes[o])) for s, relation, o in closed):
            return None
        used = list(dict.fromkeys(node for edge in edges if edge not in closed for node in (edge[0], edge[2])))
        query = self._subquery([edge for edge in edges if edge not in closed], used, nodes)
        has_conditions = any(node in self.allowed for node in used)
        rows = tuples(self.graph, query, limit=JUDGED if has_conditions else 1)
        hidden = [used[target] for target in query.targets]
        for column, node in enumerate(hidden):
            if node in self.allowed:
                rows = rows[self.allowed[node][rows[:, column]]]
        return _with(nodes, hidden, rows[0].tolist()) if len(rows) else None

    def _subquery(self, edges: Sequence[Edge], used: Sequence[int], nodes: Nodes) -> BoundQuery:
        """The query of some edges, whose open variables are its targets."""
        number = {node: place for place, node in enumerate(used)}
        return BoundQuery(
            tuple(max(nodes[node], TARGET) for node in used),
            tuple((number[subject], relation, number[object_]) for subject, relation, object_ in edges),
            tuple(place for place, node in enumerate(used) if nodes[node] < 0),
        )

    def _most_stored(self, edges: Sequence[Edge], nodes: Nodes) -> tuple[Nodes, bool]:
        """The assignment that keeps most patterns stored; what is in none of these stays open."""
        subsets, are_all = max_consistent_patterns(edges, lambda held: self._match(held, nodes) is not None)
        best = self._match(subsets[0], nodes) if subsets[0] else None
        best = nodes if best is None else best
        for node, mask in self.allowed.items():
            # A variable that conditions are about is one of the entities that they leave.
            if best[node] < 0 and mask.any() and any(node in (edge[0], edge[2]) for edge in edges):
                best = _with(best, [node], [int(mask.argmax())])
        return best, are_all

    def _searched(
        self, edges: tuple[Edge, ...], every: Sequence[Nodes], predictor: Predictor
    ) -> list[tuple[Nodes, bool] | None]:
        """By the search over links; None for rows that it finds nothing for, no list where it cannot search these."""
        used = list(dict.fromkeys(node for edge in edges for node in (edge[0], edge[2])))
        queries = [self._subquery(edges, used, nodes) for nodes in every]
        open_nodes = [used[target] for target in queries[0].targets]
        all_tried = self.graph.entity_count ** len(open_nodes) <= COMPARED
        if all_tried:
            possible = [np.flatnonzero(self.allowed[n]) if n in self.allowed else self._everybody for n in open_nodes]
            rows = [list(row) for row in product(*(ids.tolist() for ids in possible))]
            states = [[_with(nodes, open_nodes, row) for row in rows] for nodes in every]
        else:
            found = self._tuples(queries, open_nodes, predictor)
            if found is None:
                return []
            states = [
                [_with(nodes, open_nodes, row) for row in rows.rows.tolist()]
                for nodes, rows in zip(every, found, strict=True)
            ]
        missing = {nodes: self._missing(edges, nodes) for several in states if len(several) > 1 for nodes in several}
        chances = _probabilities(predictor, list(dict.fromkeys(link for own in missing.values() for link in own)))
        if missing and not chances and any(missing.values()):
            return []  # the model cannot read single links
        # All entities of one variable are compared. Calibrated links are alike from either end, shares are not.
        is_complete = (len(open_nodes) == 1 and predictor.links is not None) or all_tried
        best: list[tuple[Nodes, bool] | None] = []
        for several in states:
            # Of equal products the one with more stored links, then that of the first entities.
            weighed = [
                (-math.prod(chances.get(link, 0.0) for link in missing[nodes]), len(missing[nodes]), nodes)
                for nodes in (several if len(several) > 1 else ())
            ]
            nodes = min(weighed)[2] if weighed else next(iter(several), None)
            best.append(None if nodes is None else (nodes, is_complete))
        return best

    def _tuples(
        self, queries: Sequence[BoundQuery], open_nodes: Sequence[int], predictor: Predictor
    ) -> list[Tuples] | None:
        """The best entities of the open variables of each query; None where these cannot be searched."""
        import torch

        from biqe.links.beam import joint_tuples
        from biqe.links.structures import StructuredQueries

        links = predictor.links or ModelLinks(predictor, self.graph)
        count, relations = self.graph.entity_count, self.graph.relation_count
        try:
            batch = StructuredQueries(QuerySet.of(queries), count, relations, predictor.name).batch(
                np.arange(len(queries))
            )
            beside = None
            if not self.allowed.keys().isdisjoint(open_nodes):
                table = torch.zeros(len(open_nodes), count)
                for place, node in enumerate(open_nodes):
                    if node in self.allowed:
                        table[place, ~torch.from_numpy(self.allowed[node])] = -torch.inf
                beside = table.repeat(len(queries), 1)
            with torch.no_grad():
                return joint_tuples(batch, links, "product", COMPARED, COMPARED, beside)
        except UnsupportedQuery:  # a loop, or nothing given that the search could start from
            return None

    @property
    def _everybody(self) -> NDArray[np.int64]:
        return np.arange(self.graph.entity_count)

    def _missing(self, edges: Sequence[Edge], nodes: Nodes) -> list[IdLink]:
        links = (IdLink(nodes[subject], relation, nodes[object_]) for subject, relation, object_ in edges)
        return [link for link in links if not self._holds(link)]


class ModelLinks:
    """What a model without probabilities of links says about single links, as the search needs it: the share of each
    object, and stored links certain. Against a relation that the model has no inverse of, all subjects are alike."""

    certain = False  # the search need not keep all of them: where they alone are enough, they were found before

    def __init__(self, predictor: Predictor, graph: Graph) -> None:
        from biqe.links.stored import StoredLinks

        self._predictor = predictor
        self._stored = StoredLinks(graph)
        self.entity_count, self._relation_count = graph.entity_count, graph.relation_count

    def to_all(self, heads: torch.Tensor, relations: torch.Tensor) -> torch.Tensor:
        """(n, E) logarithms."""
        import torch

        from biqe.links.truth import CERTAIN

        keys = list(zip(heads.tolist(), relations.tolist(), strict=True))
        asked = {key for key in keys if key[1] < self._relation_count or self._predictor.inverses}
        said = dict(self._predictor.link_scores(list(asked)))
        table = torch.full((len(keys), self.entity_count), -math.log(self.entity_count))
        for number, key in enumerate(keys):
            if key in said:
                table[number] = torch.from_numpy(said[key]).clamp(max=0.0)
        self._stored.mark(table, heads, relations, CERTAIN)
        return table


def _probabilities(predictor: Predictor | None, links: Sequence[IdLink]) -> dict[IdLink, float]:
    """How probable these links are; nothing where nobody can say."""
    if predictor is None or not links:
        return {}
    try:
        return dict(zip(links, predictor.link_probabilities(links), strict=True))
    except UnsupportedQuery:
        return {}


def _with(nodes: Nodes, places: Sequence[int], entities: Sequence[int]) -> Nodes:
    """The nodes with these entities at some of them."""
    filled = dict(zip(places, entities, strict=True))
    return tuple(filled.get(node, value) for node, value in enumerate(nodes))


def _groups(nodes: Sequence[int], edges: Sequence[Edge]) -> list[tuple[Edge, ...]]:
    """Patterns with hidden variables, those that share some together; in the order of the query."""
    groups: list[tuple[set[int], list[Edge]]] = []
    for edge in dict.fromkeys(edges):
        hidden = {node for node in (edge[0], edge[2]) if nodes[node] == HIDDEN}
        if not hidden:
            continue
        members = [edge]
        for group in [group for group in groups if not group[0].isdisjoint(hidden)]:
            groups.remove(group)
            hidden, members = hidden | group[0], group[1] + members
        groups.append((hidden, members))
    order = list(dict.fromkeys(edges))
    return sorted((tuple(sorted(own, key=order.index)) for _, own in groups), key=lambda own: order.index(own[0]))


# The largest subsets of patterns that are stored together


SEARCH = 256
"""Subsets that are tried; beyond these, a maximal subset that may not be a largest one is good enough."""
Patterns = tuple[Edge, ...]


def max_consistent_patterns(patterns: Sequence[Edge], hold: Callable[[Patterns], bool]) -> tuple[list[Patterns], bool]:
    """All subsets of maximal size for which ``hold`` is true (the empty set if no other), and whether the search ended.

    ``hold`` must be monotone: if it is false for a set, it is false for every larger set that contains it. After
    ``SEARCH`` subsets the search is cut short, and the subsets found so far are returned with False.
    """
    # A pattern that fails alone is in no subset. Usually this leaves nothing to search.
    possible = [edge for edge in patterns if hold((edge,))]
    if len(possible) < 2:
        return [tuple(possible)], True
    tried = 0
    for size in range(len(possible), 1, -1):
        chosen: list[Patterns] = []
        for subset in combinations(possible, size):
            tried += 1
            if tried > SEARCH:
                return chosen or [_grown(possible, hold)], False
            if hold(subset):
                chosen.append(subset)
        if chosen:
            return chosen, True
    return [(edge,) for edge in possible], True


def _grown(possible: Sequence[Edge], hold: Callable[[Patterns], bool]) -> Patterns:
    """A maximal subset, by adding one pattern after the other."""
    held: Patterns = ()
    for edge in possible:
        if hold((*held, edge)):
            held = (*held, edge)
    return held
