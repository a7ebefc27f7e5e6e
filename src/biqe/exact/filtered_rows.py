"""Rows of a query that pass its conditions, without listing all the matches that do not.

Entities that conditions on their variable alone exclude never enter the table of matches. Where matches are few, they
are listed and judged. Where they are many, one variable is taken value by value, and each value is a smaller query.
Once the selected variables of a row are fixed, the first match that passes vouches for it.
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
"""Matches that are listed at once, and rows of the tables on the way to them."""
JUDGED = 20_000_000
"""Matches that are judged for one query."""
FIRST = 1_000
"""Matches among which the one that vouches for a row is looked for first."""
FEW = 16
"""Values of a variable that come before those of the selected ones."""

Rows = NDArray[np.int32]


def filtered_rows(
    graph: Graph, query: BoundQuery, filters: Filters, width: int, *, limit: int, judged: int = JUDGED
) -> tuple[Rows, bool]:
    """(n, targets) matches that pass, sorted, one for each different row of the first ``width`` targets; and whether
    these are all such rows. No more than ``limit`` are returned, and about ``judged`` matches looked at."""
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
    """Matches that may still be judged."""
    complete: bool = True
    _found: list[Rows] = field(default_factory=list)
    _count: int = 0
    """Rows in ``_found``, some of them perhaps several times."""

    @cached_property
    def allowed(self) -> dict[int, NDArray[np.bool_]]:
        """(E,) the entities that conditions leave each node, by what they say about it alone."""
        found = {node: self.filters.allowed(self.query.names[node]) for node in self.query.targets}
        return {node: passed for node, passed in found.items() if passed is not None}

    def look(self, pinned: dict[int, int]) -> None:
        """Find what passes where the columns in ``pinned`` have these entities."""
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
        # Selected variables first: what is left of the others then has to pass only once.
        few = [column for column in free if len(values[column]) <= FEW]
        selected = few or [column for column in free if column < self.width] or free
        column = min(selected, key=lambda column: len(values[column]))
        for entity in values[column].tolist():
            self.look({**pinned, column: entity})

    def _left(self, node: int, values: NDArray[np.int32]) -> NDArray[np.int32]:
        """Those values of a node that its own conditions leave."""
        return values[self.allowed[node][values]] if node in self.allowed else values

    def _judge(self, rows: Rows, pinned: dict[int, int], free: list[int], most: int | None = None) -> bool:
        """Keep the rows that pass, or the first ``most`` of them; whether there were any."""
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
            if self._count > self.limit:  # some may be the same
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
        """The query with entities in the place of these columns."""
        nodes = list(self.query.nodes)
        for column, entity in pinned.items():
            nodes[self.query.targets[column]] = entity
        free = [node for column, node in enumerate(self.query.targets) if column not in pinned]
        return replace(self.query, nodes=tuple(nodes), targets=tuple(free))
