"""A query in ids: nodes and edges, ready for the exact engine, the models and the miners.

A node holds an entity id, or TARGET (projected variable, becomes [MASK]), or HIDDEN (existential variable).
"""

from __future__ import annotations

from dataclasses import dataclass

TARGET = -1
"""Node value of a projected variable."""
HIDDEN = -2
"""Node value of an existential variable."""

Edge = tuple[int, int, int]
"""(subject node, relation id, object node); nodes are positions in ``BoundQuery.nodes``."""


@dataclass(frozen=True)
class BoundQuery:
    """A conjunctive query over ids."""

    nodes: tuple[int, ...]
    """Entity id, TARGET or HIDDEN for each node. Each variable has one node. A constant may have
    several: a bound query gives it one, a mined one gives each branch its own."""
    edges: tuple[Edge, ...]
    targets: tuple[int, ...]
    """Nodes of the projected variables, in SELECT order."""
    names: tuple[str, ...] = ()
    """Variable name of each node ('' for constants); empty where queries were mined."""
    limit: int | None = None

    @property
    def anchors(self) -> tuple[int, ...]:
        """Nodes that are constants."""
        return tuple(node for node, value in enumerate(self.nodes) if value >= 0)
