"""Root-to-leaf paths of a query.

Paper: section "The Bidirectional Query Encoder": the query DAG is decomposed into all paths from a root to a
leaf. Their number can be exponential in the number of nodes, so it is counted before any path is made.
"""

from __future__ import annotations

from dataclasses import dataclass

from biqe.errors import InvalidOption, TooManyPaths, UnsupportedQuery
from biqe.query.bound import BoundQuery
from biqe.query.dag import Dag, analyse

PATH_CAP = 64
"""Paths of one query beyond which it is refused, where the caller says nothing else."""


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
    outgoing: list[list[int]] = [[] for _ in dag.query.nodes]
    for subject, _, object_ in dag.query.edges:
        outgoing[subject].append(object_)
    for node in dag.order:
        for successor in outgoing[node]:
            ways[successor] += ways[node]
    return sum(ways[leaf] for leaf in dag.leaves)
