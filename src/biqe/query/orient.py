"""Edges turned so that they point away from the constants, as in the queries that a model was trained on.

A SPARQL text may say a fact from either end: ``?river :flows_through :Germany`` points at the constant. Miners
walk away from a known entity, and write an edge walked backwards as the inverse relation. Turning the edges of a
query the same way changes nothing in its answers, and makes an unseen shape a seen one.
"""

from __future__ import annotations

from collections import deque
from dataclasses import replace
from functools import lru_cache

from biqe.errors import InvalidOption
from biqe.query.bound import HIDDEN, BoundQuery, Edge, Outline


def orient(query: BoundQuery, relation_count: int) -> BoundQuery:
    """The same query with edges that point away from the constants; edge i stays edge i.

    The nodes are reached from the constants in rounds, nearer ones first, and each edge runs from the end reached
    first to the other. A hidden variable is reached as soon as one of its neighbours is, so that edges lead from it to
    the targets: no mined query ends in a hidden variable. Where both ends are reached at once, the edge
    keeps its direction unless that would close a cycle. So the result is acyclic wherever a constant can be
    reached, except for patterns that join a node to itself. Parts without any constant are left as they are.

    >>> river, germany, france, city = -1, 7, 8, -1
    >>> query = BoundQuery((river, germany, france, city), ((0, 1, 1), (0, 1, 2), (3, 2, 0)), (0, 3))
    >>> orient(query, relation_count=10).edges
    ((1, 11, 0), (2, 11, 0), (0, 12, 3))
    """
    for _, relation, _ in query.edges:
        if not 0 <= relation < 2 * relation_count:
            raise InvalidOption(f"relation id must be in [0, {2 * relation_count}). Got {relation}")
    edges = tuple(
        _turned(edge, relation_count) if flipped else edge
        for edge, flipped in zip(query.edges, flips(query), strict=True)
    )
    return query if edges == query.edges else replace(query, edges=edges)


def flips(query: BoundQuery) -> tuple[bool, ...]:
    """For each edge, whether ``orient`` turns it round."""
    return _flips(query.outline)


@lru_cache(maxsize=1024)
def _flips(outline: Outline) -> tuple[bool, ...]:
    nodes, ends, targets = outline
    query = BoundQuery(nodes, tuple((subject, 0, object_) for subject, object_ in ends), targets)
    rounds = _rounds(query)
    # Only edges between nodes of one round can close a cycle: all others lead to a later round.
    within: dict[int, list[int]] = {}
    turned: list[bool] = []
    for subject, _, object_ in query.edges:
        first, second = rounds[subject], rounds[object_]
        if first is None or second is None or subject == object_:
            turned.append(False)
        elif first != second:
            turned.append(second < first)
        else:
            # With a way from object to subject, the edge object -> subject cannot close a cycle: there is none yet.
            turned.append(_leads_to(object_, subject, within))
            start, end = (object_, subject) if turned[-1] else (subject, object_)
            within.setdefault(start, []).append(end)
    return tuple(turned)


def _turned(edge: Edge, relation_count: int) -> Edge:
    subject, relation, object_ = edge
    return object_, (relation + relation_count) % (2 * relation_count), subject


def _rounds(query: BoundQuery) -> list[int | None]:
    """The round in which each node is reached; None where no constant leads to it.

    It depends on what is joined to what and on the numbers of the nodes, never on the direction of an edge, so
    turning a query twice is turning it once.
    """
    neighbours: list[set[int]] = [set() for _ in query.nodes]
    for subject, _, object_ in query.edges:
        neighbours[subject].add(object_)
        neighbours[object_].add(subject)
    distances = _distances(query, neighbours)
    rounds: list[int | None] = [0 if value >= 0 else None for value in query.nodes]
    number = 0
    while True:
        reached = [
            node
            for node, ends in enumerate(neighbours)
            if rounds[node] is None and any(rounds[end] is not None for end in ends)
        ]
        if not reached:
            return rounds
        chosen = [node for node in reached if query.nodes[node] == HIDDEN]
        if not chosen:
            least = min(distances[node] for node in reached)
            nearest = [node for node in reached if distances[node] == least]
            chosen = _one_of_each_group(nearest, query, neighbours, rounds)
        number += 1
        for node in chosen:
            rounds[node] = number


def _distances(query: BoundQuery, neighbours: list[set[int]]) -> dict[int, int]:
    """Edges between each node and the nearest constant, where there is one."""
    distances = dict.fromkeys(query.anchors, 0)
    todo = deque(query.anchors)
    while todo:
        node = todo.popleft()
        for neighbour in neighbours[node]:
            if neighbour not in distances:
                distances[neighbour] = distances[node] + 1
                todo.append(neighbour)
    return distances


def _one_of_each_group(
    targets: list[int], query: BoundQuery, neighbours: list[set[int]], rounds: list[int | None]
) -> list[int]:
    """``targets`` without those that hidden variables join to an earlier one.

    Taken together, both would point at the hidden variables between them, which then lead nowhere.
    """
    chosen: list[int] = []
    joined: set[int] = set()
    for target in targets:
        if target in joined:
            continue
        chosen.append(target)
        todo, seen = [target], {target}
        while todo:
            for neighbour in neighbours[todo.pop()]:
                if query.nodes[neighbour] == HIDDEN and rounds[neighbour] is None and neighbour not in seen:
                    seen.add(neighbour)
                    todo.append(neighbour)
                    joined |= neighbours[neighbour]
    return chosen


def _leads_to(start: int, end: int, successors: dict[int, list[int]]) -> bool:
    seen = {start}
    todo = [start]
    while todo:
        node = todo.pop()
        if node == end:
            return True
        for successor in successors.get(node, ()):
            if successor not in seen:
                seen.add(successor)
                todo.append(successor)
    return False
