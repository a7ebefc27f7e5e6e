"""Which of the ways to make a row is the most probable, by what a model says about the missing links.

1. Of all witnesses that ``search`` finds, the one is chosen whose missing links are most probable together (their
   probabilities multiplied);
2. hidden variables on missing patterns alone get the entities that the model finds most probable there.

The model is asked about the links of all rows together: about the objects of a subject and a relation, so that any
number of objects costs one question.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import product

import numpy as np
from numpy.typing import NDArray

from biqe.errors import UnsupportedQuery
from biqe.explain.search import SUBJECTS, Evidence, EvidenceFinder, IdLink, Way, first_of
from biqe.query.bound import TARGET, BoundQuery, Edge, link_queries

PROPOSALS = 8
"""Entities that are tried for a hidden variable which no stored triple fills, where one link does not decide it."""
COMBINATIONS = 4096
"""Ways to fill several such variables that are weighed against each other."""
SCORES_AT_ONCE = 4_000_000
"""Scores that one question about links may return (16 MB of float32)."""

Triple = tuple[int, int, int]


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
    filled = iter(_proposed(links, _begun(links, _picked(links, [way for ways in groups for way in ways]))))
    groups = [[next(filled) for _ in ways] for ways in groups]
    missing = {way: [finder.fill(edge, way.nodes) for edge in way.missing] for ways in groups for way in ways}
    links.ask(link for found in missing.values() for link in found if link.is_closed)

    def weight(way: Way) -> float:
        return math.prod(links.said.get(link) or 0.0 for link in missing[way])

    best = []
    for ways in groups:
        way = first_of(max(ways, key=weight))
        best.append(way if all(each.is_complete for each in ways) else way.incomplete())
    return best


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
        try:
            queries = link_queries(known, self.opinion.prepare)
        except UnsupportedQuery:
            self.opinion = None
            return
        step = max(1, SCORES_AT_ONCE // self.finder.graph.entity_count)
        for first in range(0, len(known), step):
            part = known[first : first + step]
            yield from zip(part, self.opinion.log_probabilities(queries[first : first + step]), strict=True)


def _picked(links: _Links, ways: list[Way]) -> list[Way]:
    """The ways, with the most probable object where one link alone decides on a variable."""
    finder = links.finder
    wanted: dict[tuple[int, int], list[tuple[int, int]]] = {}
    for number, way in enumerate(ways):
        for node in _open(way):
            key = finder.leaf(way.missing, node, way.nodes)
            if key is not None:
                wanted.setdefault(key, []).append((number, node))
    if not wanted:
        return ways
    # Links that have to be weighed anyway are asked about in the same call, by a model that remembers what it said.
    closed = (link for way in ways for edge in way.missing if (link := finder.fill(edge, way.nodes)).is_closed)
    begun = (link for candidates in _begin(finder, ways).values() for link in candidates)
    keys = list(dict.fromkeys([*wanted, *(link[:2] for link in (*closed, *begun))]))
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
    return [way.filled(nodes[number]) if number in nodes else way for number, way in enumerate(ways)]


def _begun(links: _Links, ways: list[Way]) -> list[Way]:
    """The ways, with the most probable subject where one link alone decides on a variable."""
    wanted = _begin(links.finder, ways)
    links.ask(link for candidates in wanted.values() for link in candidates)
    found = list(ways)
    for (number, node), candidates in wanted.items():
        nodes = list(found[number].nodes)
        nodes[node] = max(candidates, key=lambda link: links.said.get(link) or 0.0).subject
        found[number] = found[number].filled(nodes)
    return found


def _begin(finder: EvidenceFinder, ways: list[Way]) -> dict[tuple[int, int], list[IdLink]]:
    """The links, one for each candidate, that are to begin at a variable: by number of the way, and variable."""
    found = {}
    for number, way in enumerate(ways):
        for node, entities in way.candidates.items():
            if way.nodes[node] < 0 and 0 < len(entities) <= SUBJECTS:
                ahead = finder.root(way.missing, node, way.nodes)
                if ahead is not None:
                    found[number, node] = [IdLink(entity, *ahead) for entity in entities.tolist()]
    return found


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
            way = way.filled(nodes)
        found_ways[number] = way if is_complete else way.incomplete()
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
    scores = (
        row
        for first in range(0, len(queries), step)
        for row in opinion.log_probabilities(queries[first : first + step])
    )
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
