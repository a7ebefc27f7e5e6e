"""Edges turned so that a query grows out of its constants, as the queries a model was trained on do.

A SPARQL text may say a fact from either end: ``?river :flows_through :Germany`` points at the constant. Miners
walk away from a known entity, and write an edge walked backwards as the inverse relation. Turning the edges of a
query the same way changes nothing in its answers, and makes an unseen shape a seen one.
"""

from __future__ import annotations

from collections import deque
from dataclasses import replace

from biqe.errors import InvalidOption
from biqe.query.bound import BoundQuery, Edge


def orient(query: BoundQuery, relation_count: int) -> BoundQuery:
    """The same query with edges that point away from the constants; edge i stays edge i.

    Each edge runs from the end nearer to a constant to the farther one. Where both ends are equally near, it keeps
    its direction unless that would close a cycle. So the result is acyclic wherever a constant can be reached,
    except for patterns that join a node to itself. Parts of the query without any constant are left as they are.

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
    distances = _distances(query)
    # Only edges between equally near nodes can close a cycle: all others lead strictly away from the constants.
    level: dict[int, list[int]] = {}
    turned: list[bool] = []
    for subject, _, object_ in query.edges:
        near, far = distances[subject], distances[object_]
        if near is None or far is None or subject == object_:
            turned.append(False)
        elif near != far:
            turned.append(far < near)
        else:
            # With a way from object to subject, the edge object -> subject cannot close a cycle: there is none yet.
            turned.append(_leads_to(object_, subject, level))
            start, end = (object_, subject) if turned[-1] else (subject, object_)
            level.setdefault(start, []).append(end)
    return tuple(turned)


def _turned(edge: Edge, relation_count: int) -> Edge:
    subject, relation, object_ = edge
    return object_, (relation + relation_count) % (2 * relation_count), subject


def _distances(query: BoundQuery) -> list[int | None]:
    """Edges between each node and the nearest constant; None where no constant can be reached."""
    neighbours: list[list[int]] = [[] for _ in query.nodes]
    for subject, _, object_ in query.edges:
        neighbours[subject].append(object_)
        neighbours[object_].append(subject)
    distances: list[int | None] = [0 if value >= 0 else None for value in query.nodes]
    todo = deque((node, 0) for node in query.anchors)
    while todo:
        node, distance = todo.popleft()
        for neighbour in neighbours[node]:
            if distances[neighbour] is None:
                distances[neighbour] = distance + 1
                todo.append((neighbour, distance + 1))
    return distances


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
