"""Which elements of a query are neither ancestors nor descendants of a mask, and which tokens stand for them.

A token stands for an element of the query: a node, or an edge (its relation token). For a mask of node v

    itself        the node v, on whichever path its mask stands
    ancestor      a node from which v can be reached; an edge that ends in v or in an ancestor of v
    descendant    a node that can be reached from v; an edge that starts in v or in a descendant of v
    outside       everything else
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from biqe.errors import UnsupportedQuery
from biqe.query.bound import BoundQuery
from biqe.query.dag import analyse
from biqe.query.token_table import TokenTable

if TYPE_CHECKING:
    from biqe.models._contract import Trace


def outside_elements(query: BoundQuery) -> NDArray[np.bool_]:
    """(nodes, nodes + edges) whether an element is neither a node itself nor its ancestor nor its descendant.

    >>> # e0 -> ?1 -> ?3 <- ?2 <- e4: seen from node 1, the other branch is outside, the meeting point is not.
    >>> query = BoundQuery((0, -1, -1, -1, 1), ((0, 0, 1), (1, 0, 3), (2, 0, 3), (4, 0, 2)), (1, 2, 3))
    >>> outside_elements(query)[1].astype(int).tolist()
    [0, 0, 1, 0, 1, 0, 0, 1, 1]
    """
    dag = analyse(query)
    count = len(query.nodes)
    outside = np.ones((count, count + len(query.edges)), bool)
    for node in range(count):
        before, after = dag.ancestors[node] | {node}, dag.descendants[node] | {node}
        outside[node, sorted(before | after)] = False
        for edge, (subject, _, object_) in enumerate(query.edges):
            if object_ in before or subject in after:
                outside[node, count + edge] = False
    return outside


def outside_of_masks(query: BoundQuery, columns: dict[str, NDArray[np.integer]]) -> tuple[NDArray[np.bool_], list[str]]:
    """(masks, tokens) what is outside of each mask token, and the position of each mask's node."""
    elements, is_mask = columns["elements"], columns["targets"] >= 0
    nodes = elements[is_mask]
    role = dict(zip(query.targets, analyse(query).roles, strict=True))
    return outside_elements(query)[nodes][:, elements], [role[node] for node in nodes.tolist()]


def token_columns(trace: Trace, place: int) -> dict[str, NDArray[np.integer]]:
    """Tokens of one query of a batch: which element each stands for, and which target, if it is a mask."""
    table, rows = getattr(trace.batch, "table", None), getattr(trace.batch, "rows", None)
    if not isinstance(table, TokenTable) or rows is None:
        raise UnsupportedQuery(
            "this model's attention is not over the tokens of a query, so nothing can be said about their share",
            hint="ask a biqe model",
        )
    own = slice(table.offsets[rows[place]], table.offsets[rows[place] + 1])
    return {name: getattr(table, name)[own] for name in ("elements", "targets", "paths", "positions", "tokens")}
