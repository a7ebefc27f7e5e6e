"""The order of rows: alphabetical where nobody says how, and by the keys of ORDER BY.

Without ORDER BY, rows are for people: by what is shown for them, whatever its capitals. ORDER BY has SPARQL's own order
of terms, blank nodes before IRIs and these by their characters, so that it orders rows as any SPARQL store does.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from biqe.exact.store import node_of
from biqe.graph.knowledge_graph import Graph
from biqe.query.question import PROBABILITY, Order

Rows = NDArray[np.int32]


def by_label(graph: Graph, rows: Rows) -> NDArray[np.integer]:
    """Places of the rows in the alphabetical order of what is shown for them."""
    return _sorted(rows, [*_labels(graph, rows).T])


def by_keys(
    graph: Graph, rows: Rows, chances: NDArray[np.float64], columns: Sequence[str], order: Sequence[Order]
) -> NDArray[np.integer]:
    """Places of the rows by the keys of ORDER BY, then by what is shown. ``chances`` are what ``?probability`` is."""
    terms = _terms(graph, rows)
    keys: list[NDArray[Any]] = []
    for key in order:
        if key.variable == PROBABILITY and PROBABILITY.name not in columns:
            values: NDArray[Any] = chances
        else:
            values = terms[:, columns.index(key.variable.name)]
        keys.append(-values if key.descending else values)
    # Two entities never have one place, so labels matter only where some column is no key.
    is_all = {key.variable.name for key in order}.issuperset(columns)
    return _sorted(rows, keys if is_all else [*keys, *_labels(graph, rows).T])


def _sorted(rows: Rows, keys: Sequence[NDArray[Any]]) -> NDArray[np.integer]:
    if len(rows) == 0 or len(keys) == 0:
        return np.arange(len(rows))
    return np.lexsort(list(keys)[::-1])  # which takes the last key first


def _labels(graph: Graph, rows: Rows) -> Rows:
    return _ranks(graph, rows, lambda entity: graph.vocabulary.label(entity).casefold())


def _terms(graph: Graph, rows: Rows) -> Rows:
    from pyoxigraph import BlankNode

    def term(entity: int) -> tuple[bool, str]:
        node = node_of(graph.vocabulary.entities[entity])
        return not isinstance(node, BlankNode), node.value

    return _ranks(graph, rows, term)


def _ranks(graph: Graph, rows: Rows, key: Callable[[int], Any]) -> Rows:
    """For each entity of the rows, its place among all of them by ``key``; by number where two have the same."""
    is_there = np.zeros(len(graph.vocabulary.entities), bool)
    is_there[rows] = True
    ids = np.flatnonzero(is_there).tolist()
    ranks = np.zeros(len(is_there), np.int32)
    ranks[sorted(ids, key=key)] = np.arange(len(ids))
    return ranks[rows]
