"""What splits must not share: checks on mined queries, by the triples that their edges stand for.

A query's gold edges are its edges with the entities that the miner saw at their ends. All of them must be
triples of the query's own split; none of a training query's may be a triple of valid or test.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from biqe.errors import InvalidOption
from biqe.graph.knowledge_graph import Splits
from biqe.graph.triples import Triples, contains
from biqe.mine.statistics import branch_lengths
from biqe.mine.walks import Keys, signatures
from biqe.query.bound import KINDS, QuerySet


@dataclass(frozen=True)
class Leakage:
    """Counts of queries, by split. Only the first two are faults; the others are facts to report."""

    foreign: Mapping[str, int] = field(default_factory=dict)
    """Queries with an edge that is not a triple of their split. Always 0 for queries mined here."""
    held_out_in_train: Mapping[str, int] = field(default_factory=dict)
    """Training queries with an edge that is a triple of valid or of test."""
    answerable_from_train: Mapping[str, int] = field(default_factory=dict)
    """Queries of valid and test of which every edge is a training triple, so that nothing is to be predicted."""
    same_as_train: Mapping[str, int] = field(default_factory=dict)
    """Queries of valid and test that are also training queries: same anchors, relations, structure and gold."""
    same_as_valid: Mapping[str, int] = field(default_factory=dict)
    """Queries of test that are also valid queries."""


def leakage(splits: Splits, queries: Mapping[str, QuerySet]) -> Leakage:
    """Everything that the query sets of one mining share across the splits ``train``, ``valid`` and ``test``."""
    relations = len(splits.vocabulary.relations)
    edges = {split: gold_edges(some, relations) for split, some in queries.items()}
    keys = {split: query_signatures(some) for split, some in queries.items()}
    held_out = [split for split in ("valid", "test") if split in queries]

    def with_edge(split: str, flags: NDArray[np.bool_]) -> int:
        return int(_any_edge(queries[split], flags).sum())

    return Leakage(
        {split: with_edge(split, ~contains(splits[split].triples, edges[split])) for split in queries},
        {
            split: with_edge("train", contains(splits[split].triples, edges["train"]))
            for split in ("valid", "test")
            if "train" in queries
        },
        {split: int((~_any_edge(queries[split], ~contains(splits.train, edges[split]))).sum()) for split in held_out},
        {split: int(np.isin(keys[split], keys["train"]).sum()) for split in held_out if "train" in keys},
        {"test": int(np.isin(keys["test"], keys["valid"]).sum())} if {"valid", "test"} <= set(keys) else {},
    )


def refuse_leakage(found: Leakage) -> None:
    """Raise if a training query shows a held-out triple, or if a query is made of other triples than its split's."""
    for split, count in found.held_out_in_train.items():
        if count:
            raise InvalidOption(
                f"{count:,} training queries contain triples of {split}: the splits of this graph overlap",
                hint="take the triples that train shares with valid and test out of train, and import the graph again",
            )
    for split, count in found.foreign.items():
        if count:
            raise InvalidOption(f"{count:,} queries of {split} contain edges that are not triples of {split}")


def gold_edges(queries: QuerySet, relation_count: int) -> Triples:
    """(M, 3) the triple that each edge of each query stands for, edges walked backwards turned round."""
    base = np.repeat(queries.node_offsets[:-1], np.diff(queries.edge_offsets))
    start, end = queries.gold[base + queries.edges[:, 0]], queries.gold[base + queries.edges[:, 2]]
    relation = queries.edges[:, 1]
    backward = relation >= relation_count
    return np.stack(
        [np.where(backward, end, start), relation - relation_count * backward, np.where(backward, start, end)], axis=1
    ).astype(np.int32)


def query_signatures(queries: QuerySet) -> Keys:
    """(Q,) a number that two mined queries share if nodes, gold and edges agree, whatever the order of branches.

    Each node's number takes in, step by step along the edges, what leads to it; node positions do not enter.
    After one step more than the longest path has edges, the tail's number holds the whole query, and further
    steps leave it as it is: so numbers of different sets can be compared.
    """
    base = np.repeat(queries.node_offsets[:-1], np.diff(queries.edge_offsets))
    start, end = base + queries.edges[:, 0], base + queries.edges[:, 2]
    own = signatures(queries.nodes, queries.gold, queries.roles)
    key = own
    is_path = queries.kinds == KINDS.index("path")
    depth = max(
        int(np.diff(queries.edge_offsets)[is_path].max(initial=0)), int(branch_lengths(queries).max(initial=0)) + 1
    )
    for _ in range(depth + 1):
        incoming = np.zeros(len(own), np.uint64)
        # A sum of mixed numbers does not depend on their order.
        np.add.at(incoming, end, signatures(key[start], queries.edges[:, 1]))
        key = signatures(own, incoming)
    return signatures(key[queries.node_offsets[1:] - 1], queries.kinds)


def _any_edge(queries: QuerySet, flags: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """(Q,) whether a flag is set on any edge of the query."""
    running = np.zeros(len(flags) + 1, np.int64)
    np.cumsum(flags, out=running[1:])
    return running[queries.edge_offsets[1:]] > running[queries.edge_offsets[:-1]]
