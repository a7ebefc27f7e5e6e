"""Rows of a query whose only constants are in its conditions: ``?c :located_on ?r VALUES ?r { :Rhine :Main }``.

To a model such a query says nothing: it has no constant to start from. Where a condition leaves a variable few
entities, the query is asked once for each of them, with that entity as a constant; each is a question by itself, as the
sides of a UNION are.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from biqe.answer.joint import Joint, Tuples
from biqe.answer.predicted import Predictor
from biqe.answer.rank import Found, rank
from biqe.graph.knowledge_graph import Graph
from biqe.query.bound import BoundQuery

FEW = 16
"""Entities at most that a query is asked for one by one; and fewer than half of the graph's."""

Allowed = Mapping[str, NDArray[np.bool_]]
"""(E,) entities that conditions leave each restricted variable, by its name."""


def rank_pinned(
    graph: Graph, query: BoundQuery, predictor: Predictor, exclude: Tuples, count: int, joint: Joint, allowed: Allowed
) -> Found:
    """As ``rank``; a query without constants is asked with those that its conditions name."""
    column = _pinnable(query, allowed)
    if column is None:
        return rank(graph, query, predictor, exclude, count, joint)
    node = query.targets[column]
    others = np.arange(len(query.targets)) != column
    entities = np.flatnonzero(allowed[query.names[node]]).tolist()
    found = []
    for entity in entities:
        nodes = (*query.nodes[:node], entity, *query.nodes[node + 1 :])
        names = (*query.names[:node], "", *query.names[node + 1 :])
        asked = replace(query, nodes=nodes, names=names, targets=tuple(t for t in query.targets if t != node))
        own = np.ascontiguousarray(exclude[exclude[:, column] == entity][:, others])
        found.append(rank(graph, asked, predictor, own, count, joint))
    tuples = np.concatenate(
        [np.insert(part.tuples, column, entity, axis=1) for entity, part in zip(entities, found, strict=True)]
    )
    chances = np.concatenate([part.probabilities for part in found])
    best = np.lexsort((*tuples.T[::-1], -chances))[:count]
    return Found(tuples[best], chances[best], _mixed(found, column, allowed[query.names[node]]))


def _pinnable(query: BoundQuery, allowed: Allowed) -> int | None:
    """The column whose conditions leave the fewest entities; None where there is no need to ask for them one by one."""
    if any(value >= 0 for value in query.nodes) or len(query.targets) < 2:
        return None
    sizes = {
        column: int(allowed[query.names[node]].sum())
        for column, node in enumerate(query.targets)
        if query.names[node] in allowed
    }
    few = [
        column
        for column, size in sizes.items()
        if 0 < size <= FEW and 2 * size < len(allowed[query.names[query.targets[column]]])
    ]
    return min(few, key=sizes.__getitem__, default=None)


def _mixed(found: list[Found], column: int, allowed: NDArray[np.bool_]) -> NDArray[np.float32]:
    """(T, E) log-probabilities of each target alone, where all entities of the pinned one are as probable."""
    each = np.stack([part.marginals for part in found])  # (n, T - 1, E)
    with np.errstate(divide="ignore"):
        mixed = np.log(np.exp(each).mean(axis=0)).astype(np.float32)
        own = np.log(allowed / allowed.sum()).astype(np.float32)
    return np.insert(mixed, column, own, axis=0)
