"""Intersection queries sampled as Query2Box's own were, for training files that are not distributed.

Published are the queries, not the program that made them. What the published 2i and 3i training queries look like
is met by this: an answer is drawn from all entities alike; for each branch one of the relations that lead to it, all
alike, in either direction, then one of the entities that the relation comes from. The branches of a query differ; a
query is kept once, but the same branches in another order are another query. docs/concepts/benchmarks.md compares
the two.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from biqe.errors import EmptyResult, InvalidOption
from biqe.graph.knowledge_graph import Graph
from biqe.mine.signatures import signatures, unseen

_ROUNDS = 400
"""Rounds after which a graph is taken to have no more queries to give."""


def intersections(
    graph: Graph, branches: int, count: int, *, seed: int = 0
) -> tuple[NDArray[np.int32], NDArray[np.int32]]:
    """``count`` different intersections of ``branches`` edges: (n, k) entities and (n, k) relations, ids of 2R.

    Each has an answer in ``graph``. The same seed gives the same queries; EmptyResult if the graph has too few.
    """
    if branches < 2 or count < 0:
        raise InvalidOption(f"branches must be 2 or more and count 0 or more. Got {branches} and {count}")
    ways = _Ways(graph)
    rng = np.random.default_rng([seed, branches])
    answers = np.flatnonzero(ways.group_offsets[1:] > ways.group_offsets[:-1])
    found: list[NDArray[np.int64]] = []
    seen = np.zeros(0, np.uint64)
    missing = count
    for _ in range(_ROUNDS if len(answers) else 0):
        if missing == 0:
            break
        drawn = ways.draw(rng.choice(answers, min(2 * missing + 256, 1 << 18)), branches, rng)
        fresh, seen = unseen(signatures(ways.sources[drawn], ways.relations[drawn]), seen)
        found.append(drawn[fresh[:missing]])
        missing -= len(found[-1])
    if missing:
        raise EmptyResult(f"this graph gives only {count - missing:,} of {count:,} intersections of {branches} edges")
    places = np.concatenate(found) if found else np.zeros((0, branches), np.int64)
    return ways.sources[places], ways.relations[places]


class _Ways:
    """Edges into each entity, both directions, sorted by entity and relation; a group is the run of one relation."""

    def __init__(self, graph: Graph) -> None:
        triples, count = graph.triples, graph.relation_count
        sources = np.concatenate([triples[:, 0], triples[:, 2]])
        relations = np.concatenate([triples[:, 1], triples[:, 1] + np.int32(count)])
        ends = np.concatenate([triples[:, 2], triples[:, 0]])
        order = np.lexsort((sources, relations, ends))
        self.sources, self.relations, ends = sources[order], relations[order], ends[order]
        first = np.ones(len(ends), bool)
        first[1:] = (ends[1:] != ends[:-1]) | (self.relations[1:] != self.relations[:-1])
        self.edge_offsets = np.append(np.flatnonzero(first), len(ends))
        """(G+1,) slice of each group in ``sources`` and ``relations``."""
        self.group_offsets = np.zeros(graph.entity_count + 1, np.int64)
        """(E+1,) slice of each entity's groups."""
        np.cumsum(np.bincount(ends[first], minlength=graph.entity_count), out=self.group_offsets[1:])

    def draw(self, answers: NDArray[np.integer], branches: int, rng: np.random.Generator) -> NDArray[np.int64]:
        """(n, k) places of edges into each answer; answers whose edges came out alike are left out."""
        shape = (len(answers), branches)
        groups = np.diff(self.group_offsets)[answers][:, None]
        group = self.group_offsets[answers][:, None] + (rng.random(shape) * groups).astype(np.int64)
        start = self.edge_offsets[group]
        edge = start + (rng.random(shape) * (self.edge_offsets[group + 1] - start)).astype(np.int64)
        in_order = np.sort(edge, axis=1)
        return edge[(in_order[:, 1:] != in_order[:, :-1]).all(axis=1)]
