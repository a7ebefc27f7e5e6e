"""The paper's dataset table for a mined set, with every count defined.

Paper: table "Dataset Statistics". There, averages of the training split run over triples, paths and DAGs, and
masks are counted as [MASK] tokens of the sequence fed to the model: a target shared by three paths counts three
times. Both are done so here. The paper's "Avg. Len" (152 for training, 460 for validation) is no number of tokens:
it agrees with the characters of a query written as text, as the authors' files write it. Both are counted here.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass

import numpy as np
from numpy.typing import NDArray

from biqe.graph.triples import Triples
from biqe.graph.vocabulary import Vocabulary
from biqe.query.bound import KINDS, QuerySet
from biqe.query.tokens import token_table

WRITTEN_MASK, SEPARATOR = "[MASK]", "-#-"
"""How a path is written as text: its tokens, the tail first, with this between them."""
DEFINITIONS = {
    "triples": "training triples, each a query for its tail",
    "paths": "path queries: source given, every other entity asked for",
    "dags": "DAG queries: branches that meet, and a tail",
    "average_masks": "[MASK] tokens a query; a target counts once on every path that it is on",
    "average_targets": "entities asked for a query; each counts once, however many paths it is on",
    "average_length": "tokens a query: entities, relations and masks of all its paths, shared ones repeated",
    "average_characters": "characters of all paths of a query, written with names, [MASK] and -#- between them",
}
"""How each row is counted. Averages run over triples, paths and DAGs of the split together."""
ROWS = (
    ("Triples", "triples"),
    ("Paths", "paths"),
    ("DAGs", "dags"),
    ("Avg. masks", "average_masks"),
    ("Avg. targets", "average_targets"),
    ("Avg. tokens", "average_length"),
    ("Avg. characters", "average_characters"),
)
"""Rows of the table: their titles, and what they are called here. The paper's "Avg. Len" is the last."""
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
    average_characters: float
    branches: Mapping[str, int]
    """DAGs by number of branches."""
    branch_lengths: Mapping[str, int]
    """Branches of DAGs by number of edges up to the intersection."""
    path_lengths: Mapping[str, int]
    """Paths by number of edges."""

    def to_dict(self) -> dict[str, object]:
        """Plain values, for the manifest."""
        return asdict(self)


def split_statistics(queries: QuerySet, vocabulary: Vocabulary, triples: Triples | None = None) -> SplitStatistics:
    """The column of ``queries``, which are paths and DAGs as mined, and of the training ``triples``, if any."""
    edges = np.diff(queries.edge_offsets)
    sources = np.bincount(_owners(queries, source_nodes(queries)), minlength=len(queries))
    is_dag = queries.kinds == _DAG
    targets = np.diff(queries.target_offsets)
    # A DAG has a path for each source, and its intersection and tail are on all of them.
    paths = np.where(is_dag, sources, 1)
    masks = np.where(is_dag, targets + 2 * (sources - 1), targets)
    # A path with L edges has 2L+1 tokens. A branch with p edges makes a path of p+1 edges.
    length = np.where(is_dag, 2 * (edges - 1) + 3 * sources, 2 * edges + 1)
    single = 0 if triples is None else len(triples)
    count = single + len(queries)

    def average(of_queries: int, of_triples: int) -> float:
        return float(of_queries + of_triples) / count if count else 0.0

    return SplitStatistics(
        single,
        int((queries.kinds == _PATH).sum()),
        int(is_dag.sum()),
        average(masks.sum(), single),
        average(targets.sum(), single),
        average(length.sum(), 3 * single),
        average(*_characters(queries, vocabulary, triples, int(length.sum() - paths.sum()))),
        _histogram(sources[is_dag]),
        _histogram(branch_lengths(queries)),
        _histogram(edges[queries.kinds == _PATH]),
    )


def source_nodes(queries: QuerySet) -> NDArray[np.int64]:
    """Nodes that are given and that no edge leads to, counted over all queries: each begins a path or a branch."""
    begins = queries.nodes >= 0
    begins[np.repeat(queries.node_offsets[:-1], np.diff(queries.edge_offsets)) + queries.edges[:, 2]] = False
    return np.flatnonzero(begins)


def branch_lengths(queries: QuerySet) -> NDArray[np.int64]:
    """Edges from source to intersection of every branch of every DAG: sources begin branches, in node order."""
    dags = queries.take(np.flatnonzero(queries.kinds == _DAG))
    begin = source_nodes(dags)
    owner = _owners(dags, begin)
    is_last = np.diff(owner, append=len(dags)) > 0
    # The last branch of a query ends where the intersection stands: one before the tail, which is last.
    return np.where(is_last, dags.node_offsets[owner + 1] - 2, np.roll(begin, -1)) - begin


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


def _owners(queries: QuerySet, nodes: NDArray[np.int64]) -> NDArray[np.int64]:
    return np.searchsorted(queries.node_offsets, nodes, side="right") - 1


def _characters(queries: QuerySet, vocabulary: Vocabulary, triples: Triples | None, separators: int) -> tuple[int, int]:
    """Characters of all queries, which have so many ``separators``, and of all triples, written as text."""
    entities, relations = (
        np.array([len(name) for name in names], np.int64) for names in (vocabulary.entities, vocabulary.relations)
    )
    written = np.concatenate([[len(WRITTEN_MASK)], entities, relations, relations])  # by token id
    tokens = token_table(queries, len(entities)).tokens
    of_queries = int(written[tokens].sum()) + len(SEPARATOR) * separators
    if triples is None:
        return of_queries, 0
    of_triples = entities[triples[:, 0]].sum() + relations[triples[:, 1]].sum()
    return of_queries, int(of_triples) + (len(WRITTEN_MASK) + 2 * len(SEPARATOR)) * len(triples)


def _histogram(values: NDArray[np.integer]) -> dict[str, int]:
    which, counts = np.unique(values, return_counts=True)
    return {str(value): int(count) for value, count in zip(which, counts, strict=True)}
