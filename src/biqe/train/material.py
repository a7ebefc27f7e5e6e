"""What a run learns from and is validated on: a mined set's folder, or a benchmark by its name."""

from __future__ import annotations

import hashlib
import os
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from biqe.benchmarks.shaped import ShapedQueries
from biqe.errors import UnknownName
from biqe.graph.knowledge_graph import Splits
from biqe.mine import folder as set_folder
from biqe.query.queryset import QuerySet


@dataclass(frozen=True)
class Material:
    """What a run learns from and is validated on."""

    train: QuerySet | ShapedQueries | None
    """The set's own training queries; None where only validation queries were given."""
    valid: QuerySet | ShapedQueries | None
    protocol: str
    record: dict[str, Any]
    """For run.json: enough to find it again."""
    candidates: NDArray[np.integer] | None = None
    """The entities that the benchmark ranks among; None for all."""

    @cached_property
    def fingerprint(self) -> str:
        """Sixteen hex digits that two sets share if their training and validation queries are the same."""
        digest = hashlib.sha256()
        for part in (self.train, self.valid):
            queries = part.rows if isinstance(part, ShapedQueries) else part
            for column in () if queries is None else (queries.nodes, queries.edges, queries.gold):
                digest.update(np.ascontiguousarray(column).data)
        return digest.hexdigest()[:16]


def open_material(
    query_set: str | os.PathLike[str], splits: Splits, data: str | os.PathLike[str] | None = None
) -> Material:
    """Training and validation queries of a benchmark by its name, or of a mined set's folder. A folder that is called
    like a benchmark is ``./NAME``."""
    from biqe import benchmarks

    folder, is_named = Path(query_set), isinstance(query_set, str) and query_set in benchmarks.names()
    if not is_named and folder.is_dir():
        mined = set_folder.load(folder, splits)
        record = {"path": str(folder.resolve()), "recipe": mined.config.recipe, "seed": mined.config.seed}
        return Material(mined.queries.get("train"), mined.queries.get("valid"), "cq", record)
    if not is_named:
        raise UnknownName(
            f"{query_set} is neither the folder of a query set nor a benchmark",
            hint="see the benchmarks with: biqe benchmarks; make a set with: biqe mine",
        )
    opened = benchmarks.open(str(query_set), data=None if data is None else Path(data), splits=splits)
    record = {
        "benchmark": opened.name,
        "data": None if data is None else str(Path(data).resolve()),
        "fingerprint": opened.fingerprint,
    }
    return Material(
        opened.train_queries(), opened.queries("valid"), opened.protocol, record, getattr(opened, "candidates", None)
    )
