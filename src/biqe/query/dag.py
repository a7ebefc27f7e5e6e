"""The query graph as a DAG: depths, where each target stands, root-to-leaf paths, and edges turned away from constants.

Paper: section "Conjunctive queries" (depth of a vertex: maximal length of a path from a root to it), the table of
positions (tail, intersection, branch), and section "The Bidirectional Query Encoder" (a query is decomposed into all
paths from a root to a leaf). Any query can be analysed; cyclic ones have no order, no depths and no paths.

A SPARQL text may say a fact from either end: ``?river :flows_through :Germany`` points at the constant. Miners walk
away from a known entity, and write an edge walked backwards as the inverse relation. ``orient`` turns the edges of a
query the same way: its answers stay the same, and a shape that no model was trained on becomes one that they were.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache

from biqe.errors import InvalidOption, TooManyPaths, UnsupportedQuery
from biqe.query.bound import HIDDEN, BoundQuery, Edge, Outline, forward

TAIL, INTERSECTION, BRANCH = "tail", "intersection", "branch"
PATH_CAP = 64
"""Root-to-leaf paths of one query; their number can be exponential in the number of nodes."""


@dataclass(frozen=True)
class Dag:
    """What the direction of the edges says about a query."""

    query: BoundQuery
    successors: tuple[tuple[int, ...], ...]
    """For each node, the objects of its outgoing edges, in order of edges."""
    predecessors: tuple[tuple[int, ...], ...]
    """For each node, the subjects of its incoming edges, in order of edges."""
    roots: tuple[int, ...]
    """Nodes without incoming edge, ascending."""
    leaves: tuple[int, ...]
    """Nodes without outgoing edge, ascending."""
    order: tuple[int, ...]
    """All nodes, each after its predecessors; empty where the query has a cycle."""
    depths: tuple[int, ...]
    """Length of the longest path from a root to each node; empty where the query has a cycle."""
    roles: tuple[str, ...]
    """For each target, in the order of ``query.targets``: TAIL (a leaf), INTERSECTION (two edges or more meet
    there), else BRANCH."""
    is_acyclic: bool
    """No node can be reached from itself along the edges."""
    is_connected: bool
    """All nodes hang together, the direction of the edges aside."""
    is_tree: bool
    """Connected, and without cycle even when the direction of the edges is put aside."""

    @cached_property
    def ancestors(self) -> tuple[frozenset[int], ...]:
        """For each node, the nodes from which it can be reached along the edges."""
        return tuple(_reachable(node, self.predecessors) for node in range(len(self.predecessors)))

    @cached_property
    def descendants(self) -> tuple[frozenset[int], ...]:
        """For each node, the nodes that can be reached from it along the edges."""
        return tuple(_reachable(node, self.successors) for node in range(len(self.successors)))


def analyse(query: BoundQuery) -> Dag:
    """The structure of a query; nothing is refused.

    >>> germany, france, river, city = 7, 8, -1, -1
    >>> dag = analyse(BoundQuery((germany, france, river, city), ((0, 1, 2), (1, 1, 2), (2, 3, 3)), (2, 3)))
    >>> dag.roots, dag.leaves, dag.depths, dag.roles
    ((0, 1), (3,), (0, 0, 1, 2), ('intersection', 'tail'))
    """
    count = len(query.nodes)
    successors: list[list[int]] = [[] for _ in range(count)]
    predecessors: list[list[int]] = [[] for _ in range(count)]
    for subject, _, object_ in query.edges:
        successors[subject].append(object_)
        predecessors[object_].append(subject)

    order = _topological_order(successors, predecessors)
    is_acyclic = len(order) == count
    depths: list[int] = [0] * count
    for node in order:
        for successor in successors[node]:
            depths[successor] = max(depths[successor], depths[node] + 1)

    is_connected = count > 0 and len(components(count, query.edges)) == 1
    return Dag(
        query=query,
        successors=tuple(map(tuple, successors)),
        predecessors=tuple(map(tuple, predecessors)),
        roots=tuple(node for node in range(count) if not predecessors[node]),
        leaves=tuple(node for node in range(count) if not successors[node]),
        order=tuple(order) if is_acyclic else (),
        depths=tuple(depths) if is_acyclic else (),
        roles=tuple(_role(target, successors, predecessors) for target in query.targets),
        is_acyclic=is_acyclic,
        is_connected=is_connected,
        # A connected graph has no cycle exactly if it has one edge less than nodes; parallel edges count as two.
        is_tree=is_connected and len(query.edges) == count - 1,
    )


def components(count: int, edges: Sequence[Edge]) -> list[list[int]]:
    """Nodes that hang together, the direction of the edges aside; each part ascending, by its smallest node."""
    neighbours: list[list[int]] = [[] for _ in range(count)]
    for subject, _, object_ in edges:
        neighbours[subject].append(object_)
        neighbours[object_].append(subject)
    parts: list[list[int]] = []
    seen: set[int] = set()
    for node in range(count):
        if node not in seen:
            part = _reachable(node, neighbours) | {node}
            seen |= part
            parts.append(sorted(part))
    return parts


def _topological_order(successors: list[list[int]], predecessors: list[list[int]]) -> list[int]:
    """Nodes after their predecessors, as far as that goes; nodes on or behind a cycle are left out."""
    waiting = [len(nodes) for nodes in predecessors]
    order = [node for node, number in enumerate(waiting) if number == 0]
    for node in order:  # grows while it is read
        for successor in successors[node]:
            waiting[successor] -= 1
            if waiting[successor] == 0:
                order.append(successor)
    return order


def _reachable(start: int, steps: Sequence[Sequence[int]]) -> frozenset[int]:
    """Nodes one step or more away; ``start`` itself only if a cycle leads back to it."""
    seen: set[int] = set()
    todo = list(steps[start])
    while todo:
        node = todo.pop()
        if node not in seen:
            seen.add(node)
            todo += steps[node]
    return frozenset(seen)


def _role(target: int, successors: list[list[int]], predecessors: list[list[int]]) -> str:
    if not successors[target]:
        return TAIL
    return INTERSECTION if len(predecessors[target]) >= 2 else BRANCH


@dataclass(frozen=True)
class Path:
    """One way from a root to a leaf: ``nodes[i]`` and ``nodes[i + 1]`` are joined by ``edges[i]``."""

    nodes: tuple[int, ...]
    """Positions in ``BoundQuery.nodes``, root first."""
    edges: tuple[int, ...]
    """Positions in ``BoundQuery.edges``; one less than nodes."""


def paths(query: BoundQuery, *, cap: int = PATH_CAP) -> list[Path]:
    """All root-to-leaf paths: from each root in order of nodes, depth first, along edges in order of edges.

    A query with a cycle has none and is refused; so is one with more than ``cap`` paths.

    >>> diamond = BoundQuery((5, -1, -1, -1), ((0, 0, 1), (0, 1, 2), (1, 2, 3), (2, 3, 3)), (1, 2, 3))
    >>> [path.nodes for path in paths(diamond)]
    [(0, 1, 3), (0, 2, 3)]
    """
    if cap < 1:
        raise InvalidOption(f"cap on the number of paths must be at least 1. Got {cap}")
    dag = analyse(query)
    number = count_paths(dag)
    if number > cap:
        raise TooManyPaths(
            f"this query has {number:,} root-to-leaf paths; at most {cap:,} are allowed",
            hint="ask for fewer branches at once: every way from a constant to an end of the query is one path",
        )
    outgoing: list[list[int]] = [[] for _ in query.nodes]
    for edge, (subject, _, _) in enumerate(query.edges):
        outgoing[subject].append(edge)

    found: list[Path] = []
    for root in dag.roots:
        nodes, edges = [root], list[int]()
        todo = [iter(outgoing[root])]
        if not outgoing[root]:
            found.append(Path((root,), ()))
        while todo:
            step = next(todo[-1], None)
            if step is None:
                todo.pop()
                nodes.pop()
                if edges:
                    edges.pop()
                continue
            node = query.edges[step][2]
            nodes.append(node)
            edges.append(step)
            if not outgoing[node]:
                found.append(Path(tuple(nodes), tuple(edges)))
            todo.append(iter(outgoing[node]))
    return found


def count_paths(dag: Dag) -> int:
    """Number of root-to-leaf paths, in time linear in the edges, however many they are."""
    if not dag.is_acyclic:
        raise UnsupportedQuery(
            "this query has a cycle; only acyclic queries have root-to-leaf paths",
            hint="drop one pattern of the cycle, or ask in known mode, which answers any pattern",
        )
    ways = [0] * len(dag.query.nodes)
    for root in dag.roots:
        ways[root] = 1
    for node in dag.order:
        for successor in dag.successors[node]:
            ways[successor] += ways[node]
    return sum(ways[leaf] for leaf in dag.leaves)


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
    within: list[list[int]] = [[] for _ in nodes]
    turned: list[bool] = []
    for subject, _, object_ in query.edges:
        first, second = rounds[subject], rounds[object_]
        if first is None or second is None or subject == object_:
            turned.append(False)
        elif first != second:
            turned.append(second < first)
        else:
            # With a way from object to subject, the edge object -> subject cannot close a cycle: there is none yet.
            turned.append(subject in _reachable(object_, within))
            start, end = (object_, subject) if turned[-1] else (subject, object_)
            within[start].append(end)
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


# Hidden variables that say nothing of their own

# Where every pattern of a hidden variable is also a pattern of another node, that node can stand in its place: any
# assignment of the others is completed by giving it that node's entity, and no further link is needed. { ?x :on ?a .
# ?x :on :Rhine } asks for no more than { ?x :on :Rhine }. Large queries have many such variables.


def folded(query: BoundQuery, relation_count: int) -> tuple[tuple[Edge, ...], dict[int, int]]:
    """The patterns that are left, in their order, and the node that stands for each variable that is gone.

    >>> folded(BoundQuery((-1, -2, 7), ((0, 3, 1), (0, 3, 2)), (0,)), 10)
    (((0, 3, 2),), {1: 2})
    """
    # A pattern and the same one read from its object are one.
    edges = dict.fromkeys(forward(edge, relation_count) for edge in query.edges)
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
