"""Rows of a query whose only constants are in its conditions: ``?c :located_on ?r VALUES ?r { :Rhine :Main }``.

To a model such a query says nothing: it has no constant to start from. Where a condition leaves a variable few
entities, the query is asked once for each of them, with that entity as a constant; each is a question by itself, as the
sides of a UNION are.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from biqe.answer.joint import Joint, Tuples
from biqe.answer.predicted import Predictor, Restricted
from biqe.answer.rank import Found, rank, together
from biqe.exact.filters import Filters
from biqe.graph.knowledge_graph import Graph
from biqe.query.bound import BoundQuery

FEW = 16
"""Entities at most that a query is asked for one by one; and fewer than half of the graph's."""

Allowed = Mapping[str, NDArray[np.bool_]]
"""(E,) entities that conditions leave each restricted variable, by its name."""


def rank_pinned(
    graph: Graph, query: BoundQuery, predictor: Predictor, exclude: Tuples, count: int, joint: Joint, filters: Filters
) -> Found:
    """As ``rank``, of entities that the conditions leave; a query without constants is asked with those that they
    name, once for each row of VALUES."""
    found = []
    for allowed, column in questions(query, filters):
        asked = Restricted(predictor, allowed) if allowed else predictor
        found.append(_rank_allowed(graph, query, asked, exclude, count, joint, allowed, column))
    return found[0] if len(found) == 1 else _either(found, count)


def questions(query: BoundQuery, filters: Filters) -> Iterator[tuple[Allowed, int | None]]:
    """What is asked instead of ``query``: for each part of its conditions, the entities that it leaves, and the column
    that is fixed to one of these after the other; None where the query is asked as it stands."""
    for part in [filters] if any(value >= 0 for value in query.nodes) else filters.alternatives(FEW):
        names = [query.names[node] for node in query.targets] if part.conditions else []
        allowed = {name: passed for name in names if (passed := part.allowed(name)) is not None}
        yield allowed, _pinnable(query, allowed)


def _either(found: list[Found], count: int) -> Found:
    """The rows of several questions, each once, with its best probability."""
    rows, chances = np.concatenate([part.tuples for part in found]), np.concatenate([f.probabilities for f in found])
    best = np.lexsort((*rows.T[::-1], -chances))
    _, first = np.unique(rows[best], axis=0, return_index=True)
    best = best[np.sort(first)[:count]]
    with np.errstate(divide="ignore"):
        mixed = np.log(np.exp([part.marginals for part in found]).mean(axis=0)).astype(np.float32)
    return Found(rows[best], chances[best], mixed, remark=together([part.remark for part in found]))


def _rank_allowed(
    graph: Graph,
    query: BoundQuery,
    predictor: Predictor,
    exclude: Tuples,
    count: int,
    joint: Joint,
    allowed: Allowed,
    column: int | None,
) -> Found:
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
    mixed = _mixed(found, column, allowed[query.names[node]])
    return Found(tuples[best], chances[best], mixed, remark=together([part.remark for part in found]))


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
