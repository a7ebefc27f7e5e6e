"""The query graph as a DAG: roots, leaves, depths, and where each target stands.

Paper: section "Conjunctive queries" (depth of a vertex: maximal length of a path from a root to it) and the table
of positions (tail, intersection, branch). Any query can be analysed; cyclic ones have no order and no depths.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

from biqe.query.bound import BoundQuery, Edge

TAIL, INTERSECTION, BRANCH = "tail", "intersection", "branch"


@dataclass(frozen=True)
class Dag:
    """What the direction of the edges says about a query."""

    query: BoundQuery
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
        steps: list[list[int]] = [[] for _ in self.query.nodes]
        for subject, _, object_ in self.query.edges:
            steps[object_].append(subject)
        return tuple(_reachable(node, steps) for node in range(len(steps)))

    @cached_property
    def descendants(self) -> tuple[frozenset[int], ...]:
        """For each node, the nodes that can be reached from it along the edges."""
        steps: list[list[int]] = [[] for _ in self.query.nodes]
        for subject, _, object_ in self.query.edges:
            steps[subject].append(object_)
        return tuple(_reachable(node, steps) for node in range(len(steps)))

    @property
    def equal_depth_targets(self) -> tuple[tuple[int, ...], ...]:
        """Groups of two targets or more at one depth: what the paper's depth rule forbids. Shallow ones first."""
        groups: dict[int, list[int]] = defaultdict(list)
        if self.is_acyclic:
            for target in self.query.targets:
                groups[self.depths[target]].append(target)
        return tuple(tuple(groups[depth]) for depth in sorted(groups) if len(groups[depth]) > 1)


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


def _reachable(start: int, steps: list[list[int]]) -> frozenset[int]:
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
