"""Names of query shapes: 1p 2p 3p 2i 3i ip pi, as Query2Box draws them, and coarser names for all others."""

from __future__ import annotations

from biqe.query.bound import HIDDEN, TARGET, BoundQuery
from biqe.query.dag import Dag, analyse, orient

# How the target hangs from the constants: e is a constant, (x) one edge from x, (x)(y) edges that meet.
_NAMED = {
    "(e)": "1p",
    "((e))": "2p",
    "(((e)))": "3p",
    "(e)(e)": "2i",
    "(e)(e)(e)": "3i",
    "((e)(e))": "ip",
    "((e))(e)": "pi",
}

SHAPES = (*_NAMED.values(), "path", "dag", "other")


def shape_of(query: BoundQuery) -> str:
    """The shape of a query, whichever way round its edges are written.

    1p ... pi have one target, at the end, constants at the beginning and hidden variables between. ``path`` is any
    other single chain, ``dag`` any other connected query that can be written without cycle, ``other`` the rest.

    >>> shape_of(BoundQuery((7, -2, -1), ((0, 0, 1), (1, 3, 2)), (2,)))
    '2p'
    >>> shape_of(BoundQuery((-1, 7, 8), ((0, 0, 1), (0, 3, 2)), (0,)))
    '2i'
    >>> shape_of(BoundQuery((7, -1, -1), ((0, 0, 1), (1, 3, 2)), (1, 2)))
    'path'
    """
    # Direction alone matters here, so any number of relations that covers the ids will do.
    relation_count = 1 + max((relation for _, relation, _ in query.edges), default=0)
    dag = analyse(orient(query, relation_count))
    if not dag.is_connected or not dag.is_acyclic:
        return "other"
    named = _NAMED.get(_signature(dag))
    if named is not None:
        return named
    is_chain = dag.is_tree and max(map(len, dag.successors)) <= 1 and max(map(len, dag.predecessors)) <= 1
    return "path" if is_chain else "dag"


def _signature(dag: Dag) -> str:
    """How the one target hangs from the constants; '' where the query is not built that way."""
    nodes = dag.query.nodes
    for value, outgoing, incoming in zip(nodes, dag.successors, dag.predecessors, strict=True):
        if value == TARGET and outgoing:
            return ""
        # A hidden variable that feeds two edges ties two branches together: not the same as two such variables.
        if value == HIDDEN and (len(outgoing) != 1 or not incoming):
            return ""
        if value >= 0 and incoming:
            return ""
    if len(dag.query.targets) != 1 or len(dag.query.edges) > 3:
        return ""
    written = ["e" if value >= 0 else "" for value in nodes]
    for node in dag.order:
        branches = [f"({written[subject]})" for subject in dag.predecessors[node]]
        if branches:
            written[node] = "".join(sorted(branches, key=lambda branch: (-len(branch), branch)))
    return written[dag.query.targets[0]]
