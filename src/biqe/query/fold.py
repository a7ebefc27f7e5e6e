"""Hidden variables that say nothing of their own.

Where every pattern of a hidden variable is also a pattern of another node, that node can stand in its place: any
assignment of the others is completed by giving it that node's entity, and no further link is needed. ``{ ?x :on ?a .
?x :on :Rhine }`` asks for no more than ``{ ?x :on :Rhine }``. Large queries have many such variables.
"""

from __future__ import annotations

from biqe.query.bound import HIDDEN, BoundQuery, Edge


def folded(query: BoundQuery, relation_count: int) -> tuple[tuple[Edge, ...], dict[int, int]]:
    """The patterns that are left, in their order, and the node that stands for each variable that is gone.

    >>> folded(BoundQuery((-1, -2, 7), ((0, 3, 1), (0, 3, 2)), (0,)), 10)
    (((0, 3, 2),), {1: 2})
    """
    # A pattern and the same one read from its object are one.
    edges = dict.fromkeys(_forward(edge, relation_count) for edge in query.edges)
    stands: dict[int, int] = {}
    around: dict[int, set[tuple[int, int, int]]] = {node: set() for node in range(len(query.nodes))}
    for subject, relation, object_ in edges:
        around[subject].add((relation, 0, object_))
        around[object_].add((relation, 1, subject))
    todo = [node for node, value in enumerate(query.nodes) if value == HIDDEN and around[node]]
    while todo:
        node = todo.pop(0)
        own = around[node]
        stand_in = next((other for other in _neighbours_of_all(around, own) if other != node), None)
        if node in stands or stand_in is None or any(other == node for _, _, other in own):
            continue
        stands[node] = stand_in
        changed = set()
        for relation, end, other in own:
            around[other].discard((relation, 1 - end, node))
            edges.pop((node, relation, other) if end == 0 else (other, relation, node), None)
            changed.add(other)
        around[node] = set()
        # What has lost a pattern may have become foldable itself.
        todo += [other for other in sorted(changed) if query.nodes[other] == HIDDEN and other not in stands]
    return tuple(edges), {node: _last(stands, node) for node in stands}


def reduced(query: BoundQuery, relation_count: int) -> BoundQuery:
    """The query without such variables; its rows are the same."""
    edges, stands = folded(query, relation_count)
    if not stands:
        return query
    kept = [node for node in range(len(query.nodes)) if node not in stands]
    number = {node: place for place, node in enumerate(kept)}
    return BoundQuery(
        tuple(query.nodes[node] for node in kept),
        tuple((number[subject], relation, number[object_]) for subject, relation, object_ in edges),
        tuple(number[target] for target in query.targets),
    )


def _neighbours_of_all(around: dict[int, set[tuple[int, int, int]]], own: set[tuple[int, int, int]]) -> list[int]:
    """Nodes that have all of these patterns, ascending."""
    found: set[int] | None = None
    for relation, end, other in own:
        nodes = {node for r, side, node in around[other] if (r, side) == (relation, 1 - end)}
        found = nodes if found is None else found & nodes
    return sorted(found or ())


def _last(stands: dict[int, int], node: int) -> int:
    while node in stands:
        node = stands[node]
    return node


def _forward(edge: Edge, relation_count: int) -> Edge:
    subject, relation, object_ = edge
    return edge if relation < relation_count else (object_, relation - relation_count, subject)
