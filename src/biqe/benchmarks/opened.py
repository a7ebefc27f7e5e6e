"""An opened benchmark: its graph, and its questions, which are read when they are first asked for."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from biqe.benchmarks.anycq import TupleQuestions
from biqe.benchmarks.shaped import ShapedQueries, from_columns, to_columns
from biqe.benchmarks.storage import cached_columns
from biqe.errors import InvalidOption
from biqe.graph.knowledge_graph import SPLITS, Splits
from biqe.query.bound import QuerySet

Queries = ShapedQueries | QuerySet | TupleQuestions


@dataclass
class OpenBenchmark:
    """A benchmark whose files were found."""

    name: str
    protocol: str
    splits: Splits
    fingerprint: str
    """Sixteen hex digits over graph and questions."""
    read: Callable[[str], Queries] = field(repr=False)
    read_train: Callable[[], Queries | None] = field(repr=False)
    candidates: NDArray[np.int32] | None = None
    """Entities that the benchmark ranks among, sorted; None for all."""
    types: NDArray[np.int8] | None = None
    """(E,) type of each entity; None where entities have none."""
    type_names: tuple[str, ...] = ()
    _kept: dict[str, Queries | None] = field(default_factory=dict, repr=False)

    def queries(self, split: str) -> Queries:
        """The questions of ``valid`` or ``test``: ShapedQueries under q2b, betae and bio, a QuerySet with filters under
        cq, TupleQuestions under qar."""
        if split not in SPLITS[1:]:
            raise InvalidOption(f"split must be one of {', '.join(SPLITS[1:])}. Got {split!r}")
        if split not in self._kept:
            self._kept[split] = self.read(split)
        found = self._kept[split]
        assert found is not None
        return found

    def train_queries(self) -> Queries | None:
        """What the benchmark gives to learn from, beside the triples of its graph; None if nothing."""
        if "train" not in self._kept:
            self._kept["train"] = self.read_train()
        return self._kept["train"]


def cached_questions(name: str, key: str, splits: Splits, make: Callable[[], ShapedQueries]) -> ShapedQueries:
    """Questions from the cache, memory-mapped; made by ``make`` where they are not there."""
    columns = cached_columns(name, key, lambda: to_columns(make()))
    return from_columns(
        columns, entity_count=len(splits.vocabulary.entities), relation_count=len(splits.vocabulary.relations)
    )
