"""The paper's dataset table for a mined set, with every count defined.

Paper: table "Dataset Statistics". There, averages of the training split run over triples, paths and DAGs, and
masks are counted as [MASK] tokens of the sequence fed to the model: a target shared by three paths counts three
times. Both are done so here. The paper's average length (152 for training) cannot be a number of tokens as its
own encoding makes them; here it is exactly that.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass

import numpy as np
from numpy.typing import NDArray

from biqe.query.queryset import KINDS, QuerySet

DEFINITIONS = {
    "triples": "training triples, each a query for its tail",
    "paths": "path queries: source given, every other entity asked for",
    "dags": "DAG queries: branches that meet, and a tail",
    "average_masks": "[MASK] tokens a query; a target counts once on every path that it is on",
    "average_targets": "entities asked for a query; each counts once, however many paths it is on",
    "average_length": "tokens a query: entities, relations and masks of all its paths, shared ones repeated",
}
"""How each row is counted. Averages run over triples, paths and DAGs of the split together."""
ROWS = (
    ("Triples", "triples"),
    ("Paths", "paths"),
    ("DAGs", "dags"),
    ("Avg. masks", "average_masks"),
    ("Avg. targets", "average_targets"),
    ("Avg. length", "average_length"),
)
"""Rows of the table: how the paper calls them, and what they are called here."""
_PATH, _DAG = KINDS.index("path"), KINDS.index("dag")


@dataclass(frozen=True)
class SplitStatistics:
    """One column of the table."""

    triples: int
    paths: int
    dags: int
    average_masks: float
    average_targets: float
    average_length: float
    branches: Mapping[str, int]
    """DAGs by number of branches."""
    branch_lengths: Mapping[str, int]
    """Branches of DAGs by number of edges up to the intersection."""
    path_lengths: Mapping[str, int]
    """Paths by number of edges."""

    def to_dict(self) -> dict[str, object]:
        """Plain values, for the manifest."""
        return asdict(self)


def split_statistics(queries: QuerySet, *, triples: int = 0) -> SplitStatistics:
    """The column of ``queries``, which are paths and DAGs as mined, and ``triples`` training triples."""
    edges = np.diff(queries.edge_offsets)
    sources = _sources(queries)
    is_dag = queries.kinds == _DAG
    # A path with L edges has L masks among 2L+1 tokens. A branch with p edges makes a path of p+1 edges.
    masks = np.where(is_dag, edges - 1 + sources, edges)
    length = np.where(is_dag, 2 * (edges - 1) + 3 * sources, 2 * edges + 1)
    targets = np.diff(queries.target_offsets)
    count = triples + len(queries)

    def average(values: NDArray[np.integer], per_triple: int) -> float:
        return float(values.sum() + per_triple * triples) / count if count else 0.0

    return SplitStatistics(
        triples,
        int((queries.kinds == _PATH).sum()),
        int(is_dag.sum()),
        average(masks, 1),
        average(targets, 1),
        average(length, 3),
        _histogram(sources[is_dag]),
        _histogram(branch_lengths(queries)),
        _histogram(edges[queries.kinds == _PATH]),
    )


def branch_lengths(queries: QuerySet) -> NDArray[np.int64]:
    """Edges from source to intersection of every branch of every DAG: sources begin branches, in node order."""
    dags = queries.take(np.flatnonzero(queries.kinds == _DAG))
    begin = np.flatnonzero(dags.nodes >= 0)
    owner = np.searchsorted(dags.node_offsets, begin, side="right") - 1
    ends = np.append(begin[1:], 0)
    last = np.append(owner[1:] != owner[:-1], True) if len(owner) else np.zeros(0, bool)
    # The last branch of a query ends where the intersection stands: one before the tail, which is last.
    return np.where(last, dags.node_offsets[owner + 1] - 2, ends[: len(begin)]) - begin


def statistics_rows(columns: Mapping[str, SplitStatistics]) -> list[tuple[str, list[object]]]:
    """Name and cells of each row of the paper's table, a cell a split; None where the paper writes a dash.

    An average over nothing is a dash, too.
    """
    rows: list[tuple[str, list[object]]] = []
    for title, name in ROWS:
        values = [getattr(column, name) for column in columns.values()]
        rows.append(
            (title, [(f"{value:.2f}" if isinstance(value, float) else value) if value else None for value in values])
        )
    return rows


def _sources(queries: QuerySet) -> NDArray[np.int64]:
    running = np.zeros(len(queries.nodes) + 1, np.int64)
    np.cumsum(queries.nodes >= 0, out=running[1:])
    return running[queries.node_offsets[1:]] - running[queries.node_offsets[:-1]]


def _histogram(values: NDArray[np.integer]) -> dict[str, int]:
    which, counts = np.unique(values, return_counts=True)
    return {str(value): int(count) for value, count in zip(which, counts, strict=True)}
