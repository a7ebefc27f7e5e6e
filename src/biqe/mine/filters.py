"""True values of every target, to be left out of a ranking: the filters of mined queries.

Three kinds, because the literature has three (see docs/concepts/mining.md):

- ``split``: values under which the whole query holds in the split's own triples; how the authors' DAG filters
  were made.
- ``complete``: the same in train, valid and test together; what the paper says.
- ``reach``: for paths, what the relations up to the target lead to from the source, in the complete graph, the
  rest of the path unheeded; how the authors' filters of the Paths sets were made.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from biqe.errors import InvalidOption
from biqe.exact.answers import answer_sets
from biqe.graph.knowledge_graph import Graph, Splits
from biqe.mine.walks import offsets
from biqe.query.bound import HIDDEN, KINDS, TARGET, AnswerSets, QuerySet

_PATH = KINDS.index("path")


def with_filters(splits: Splits, split: str, queries: QuerySet, *, reach: bool = False, threads: int = 2) -> QuerySet:
    """``queries`` of ``split`` with filters ``split`` and ``complete``, and ``reach`` where asked for."""
    complete = splits["complete"]
    filters = {
        "split": answer_sets(splits[split], queries, threads=threads),
        "complete": answer_sets(complete, queries, threads=threads),
    }
    if reach:
        filters["reach"] = reach_sets(complete, queries, threads=threads)
    for answers in filters.values():
        check_gold(queries, answers)
    return queries.with_filters(**filters)


def reach_sets(graph: Graph, paths: QuerySet, *, threads: int = 2) -> AnswerSets:
    """For each target of each path, the entities that its relations, source to target, lead to in ``graph``."""
    if (paths.kinds != _PATH).any():
        raise InvalidOption(f"reach is defined for path queries only. Got {int((paths.kinds != _PATH).sum()):,} others")
    return answer_sets(graph, _prefixes(paths), threads=threads)


def check_gold(queries: QuerySet, answers: AnswerSets) -> None:
    """Raise if the entity that the miner saw at a target is not among the target's true values."""
    found = holds(answers, queries.gold[queries.target_nodes])
    if not found.all():
        raise InvalidOption(
            f"{int((~found).sum()):,} of {len(found):,} filters lack the entity that was mined at their target",
            hint="the graph is not the one that the queries were mined from",
        )


def holds(answers: AnswerSets, entities: NDArray[np.integer]) -> NDArray[np.bool_]:
    """(V,) whether the i-th set holds the i-th entity; by binary search in all sets at once."""
    low, high = answers.offsets[:-1].copy(), answers.offsets[1:].copy()
    if len(answers.values) == 0:
        return np.zeros(len(low), bool)
    last = len(answers.values) - 1
    stop = answers.offsets[1:]
    while (open_ := low < high).any():
        middle = (low + high) // 2
        below = answers.values[np.minimum(middle, last)] < entities
        low = np.where(open_ & below, middle + 1, low)
        high = np.where(open_ & ~below, middle, high)
    return (low < stop) & (answers.values[np.minimum(low, last)] == entities)


def _prefixes(paths: QuerySet) -> QuerySet:
    """One query a target: the path up to it, everything between source and target hidden."""
    length = np.diff(paths.edge_offsets)
    path = np.repeat(np.arange(len(paths)), length)
    depth = np.arange(len(path)) - np.repeat(paths.edge_offsets[:-1], length) + 1  # edges of each prefix
    edge_offsets, node_offsets = offsets(depth), offsets(depth + 1)
    edge = np.arange(edge_offsets[-1]) - np.repeat(edge_offsets[:-1], depth)
    edges = paths.edges[np.repeat(paths.edge_offsets[path], depth) + edge]
    place = np.arange(node_offsets[-1]) - np.repeat(node_offsets[:-1], depth + 1)
    gold = paths.gold[np.repeat(paths.node_offsets[path], depth + 1) + place]
    is_last = place == np.repeat(depth, depth + 1)
    nodes = np.where(place == 0, gold, np.where(is_last, TARGET, HIDDEN)).astype(np.int32)
    roles = is_last.astype(np.int8)
    return QuerySet(node_offsets, nodes, gold, roles, edge_offsets, edges, np.full(len(path), _PATH, np.int8))
