"""How sampled intersections compare with Query2Box's published ones: the table of docs/concepts/benchmarks.md.

    python tools/compare_resampled.py [--data FOLDER]

Every row of the table is about training queries of one kind: those published, or as many sampled with seed 0.
"""

from __future__ import annotations

import argparse
import os
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from biqe import benchmarks
from biqe.benchmarks.query2box import benchmark_graph, bind, intersections
from biqe.exact.answers import answer_sets
from biqe.graph.knowledge_graph import Graph
from biqe.query.bound import KINDS, ROLES, TARGET, QuerySet

ROWS = (("FB15k-237", "fb15k237-q2b", "2i"), ("NELL-995", "nell995-q2b", "2i"), ("NELL-995", "nell995-q2b", "3i"))
HEADINGS = (
    "mean answers",
    "one answer",
    "inverse relations",
    "two branches of one relation",
    "one constant twice",
    "other order also there",
)


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, help="folder of benchmark files; else BIQE_DATA")
    data = parser.parse_args().data or Path(os.environ.get("BIQE_DATA") or "../shared/data")
    print(f"| | {' | '.join(HEADINGS)} |\n|{'---|' * (len(HEADINGS) + 1)}")
    for label, name, shape in ROWS:
        opened = benchmarks.open(name, data=data)
        binding = bind(data / "q2b" / label, opened.splits.vocabulary)
        graph = benchmark_graph(opened.splits, ("train",), binding)
        rows, branches = opened.train_queries().of_shape(shape).rows, int(shape[0])  # type: ignore[union-attr]
        edges = rows.edges.reshape(-1, branches, 3)
        sources = rows.nodes[rows.node_offsets[:-1, None] + edges[:, :, 0]]
        sampled = intersections(graph, branches, len(rows), seed=0)
        for how, (entities, relations) in (("published", (sources, edges[:, :, 1])), ("sampled", sampled)):
            facts = describe(graph, entities, relations)
            print(
                f"| {label} {shape}, {how} | {facts[0]:.2f} | {' | '.join(f'{fact:.3f}'[1:] for fact in facts[1:])} |"
            )


def describe(graph: Graph, entities: NDArray[np.int32], relations: NDArray[np.int32]) -> list[float]:
    """The figures of one row, for (n, k) entities and relations of n intersections."""
    lengths = np.diff(answer_sets(graph, _queries(entities, relations)).offsets)
    branches = np.stack([entities, relations], 2).astype(np.int64)  # (n, k, 2)
    code = branches[:, :, 0] * (2 * graph.relation_count) + branches[:, :, 1]
    ordered = np.sort(code, 1)
    _, kind, counts = np.unique(ordered, axis=0, return_inverse=True, return_counts=True)
    return [
        float(lengths.mean()),
        float((lengths == 1).mean()),
        float((relations >= graph.relation_count).mean()),
        float((np.diff(np.sort(relations, 1), axis=1) == 0).any(1).mean()),
        float((np.diff(np.sort(entities, 1), axis=1) == 0).any(1).mean()),
        float((counts[kind.ravel()] > 1).mean()),
    ]


def _queries(entities: NDArray[np.int32], relations: NDArray[np.int32]) -> QuerySet:
    """The intersections as queries for their one target."""
    count, branches = entities.shape
    nodes = np.concatenate([entities, np.full((count, 1), TARGET)], 1).astype(np.int32)
    edges = np.stack([np.tile(np.arange(branches), (count, 1)), relations, np.full_like(relations, branches)], 2)
    roles = np.full((count, branches + 1), ROLES.index("none"), np.int8)
    roles[:, -1] = ROLES.index("tail")
    return QuerySet(
        np.arange(0, count * (branches + 1) + 1, branches + 1),
        nodes.ravel(),
        np.where(nodes < 0, -1, nodes).ravel().astype(np.int32),
        roles.ravel(),
        np.arange(0, count * branches + 1, branches),
        edges.reshape(-1, 3).astype(np.int32),
        np.full(count, KINDS.index("dag"), np.int8),
    )


if __name__ == "__main__":
    main()
