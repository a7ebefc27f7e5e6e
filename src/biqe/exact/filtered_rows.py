"""Rows of a query that pass its conditions, without listing all the matches that do not.

Conditions on a single variable restrict its entities before anything is joined. Where there are few matches, they are
listed and filtered. Where there are many, the search branches on the values of one variable, so that each value gives a
smaller query. Once all selected variables of a row have values, one match that passes is enough.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from biqe.exact.adjacency import adjacency
from biqe.exact.answers import answers, tuples
from biqe.exact.filters import Filters, columns_of
from biqe.exact.numpy_join import numpy_join
from biqe.graph.knowledge_graph import Graph
from biqe.query.bound import BoundQuery

LISTED = 1_000_000
"""Largest table of matches that is made at once."""
JUDGED = 20_000_000
"""Largest number of matches that are tested for one query."""
FIRST = 1_000
"""Matches of a row that are tested before its whole table is made."""
FEW = 16
"""A variable with at most so many values is branched on before the selected variables."""

Rows = NDArray[np.int32]


def filtered_rows(
    graph: Graph, query: BoundQuery, filters: Filters, width: int, *, limit: int, judged: int = JUDGED
) -> tuple[Rows, bool]:
    """(n, targets) matches that pass all filters, sorted, one for each distinct row of the first ``width`` targets; and
    whether these are all such rows. At most ``limit`` are returned, and about ``judged`` matches are tested."""
    search = _Search(graph, query, filters, width, limit, judged)
    search.look({})
    rows = search.rows()
    return rows[:limit], search.complete and len(rows) <= limit


@dataclass
class _Search:
    graph: Graph
    query: BoundQuery
    filters: Filters
    width: int
    limit: int
    left: int
    """Matches that may still be tested."""
    complete: bool = True
    _found: list[Rows] = field(default_factory=list)
    _count: int = 0
    """Rows in ``_found``, duplicates included."""

    @cached_property
    def allowed(self) -> dict[int, NDArray[np.bool_]]:
        """For each node that conditions restrict by themselves, (E,) whether an entity is allowed."""
        found = {node: self.filters.allowed(self.query.names[node]) for node in self.query.targets}
        return {node: passed for node, passed in found.items() if passed is not None}

    def look(self, pinned: dict[int, int]) -> None:
        """Collect the matches that pass, with the columns in ``pinned`` fixed to these entities."""
        if self._is_over():
            return
        free = [column for column in range(len(self.query.targets)) if column not in pinned]
        query = self._with(pinned)
        if not free or free[0] >= self.width:  # every selected variable is fixed: one match is enough
            if self._judge(tuples(self.graph, query, limit=FIRST), pinned, free, most=1) or not free:
                return
        rows = numpy_join(adjacency(self.graph), query, query.targets, LISTED, self.allowed)
        if rows is not None:
            self._judge(rows, pinned, free)
            return
        values = dict(zip(free, map(self._left, query.targets, answers(self.graph, query)), strict=True))
        # Selected variables first: then one match is enough for all values of the others.
        few = [column for column in free if len(values[column]) <= FEW]
        selected = few or [column for column in free if column < self.width] or free
        column = min(selected, key=lambda column: len(values[column]))
        for entity in values[column].tolist():
            self.look({**pinned, column: entity})

    def _left(self, node: int, values: NDArray[np.int32]) -> NDArray[np.int32]:
        """The values of a node that its own conditions allow."""
        return values[self.allowed[node][values]] if node in self.allowed else values

    def _judge(self, rows: Rows, pinned: dict[int, int], free: list[int], most: int | None = None) -> bool:
        """Keep the rows that pass, at most ``most`` of them; return whether there were any."""
        self.left -= len(rows)
        whole = np.empty((len(rows), len(self.query.targets)), np.int32)
        whole[:, free] = rows
        for column, entity in pinned.items():
            whole[:, column] = entity
        passed = whole[self.filters.passes(columns_of(self.query, whole), len(whole))][:most]
        if len(passed):
            passed = self._distinct(passed)
            self._found.append(passed)
            self._count += len(passed)
            if self._count > self.limit:  # duplicates may be among them
                self._found = [self.rows()]
                self._count = len(self._found[0])
        return len(passed) > 0

    def rows(self) -> Rows:
        """What was found so far."""
        none = np.empty((0, len(self.query.targets)), np.int32)
        return self._distinct(np.concatenate([none, *self._found]))

    def _distinct(self, rows: Rows) -> Rows:
        if self.width == 0:
            return rows[:1]
        _, first = np.unique(rows[:, : self.width], axis=0, return_index=True)
        return rows[first]

    def _is_over(self) -> bool:
        if self._count > self.limit:
            return True
        self.complete = self.complete and self.left > 0
        return not self.complete

    def _with(self, pinned: dict[int, int]) -> BoundQuery:
        """The query with constants in place of the pinned columns."""
        nodes = list(self.query.nodes)
        for column, entity in pinned.items():
            nodes[self.query.targets[column]] = entity
        free = [node for column, node in enumerate(self.query.targets) if column not in pinned]
        return replace(self.query, nodes=tuple(nodes), targets=tuple(free))
