"""Random queries: ``st.from_type(BoundQuery)`` draws one."""

from __future__ import annotations

from hypothesis import strategies as st

from biqe.query.bound import HIDDEN, TARGET, BoundQuery

RELATIONS = 3
ENTITIES = 4


@st.composite
def queries(draw: st.DrawFn, max_nodes: int = 6, max_edges: int = 8) -> BoundQuery:
    """Any query over 3 relations and their inverses, and 4 entities: cycles, loops, parts and parallel edges too."""
    values = draw(st.lists(st.sampled_from([TARGET, HIDDEN, *range(ENTITIES)]), min_size=1, max_size=max_nodes))
    # A constant has one node.
    nodes = tuple(value for at, value in enumerate(values) if value < 0 or value not in values[:at])
    ends = st.integers(0, len(nodes) - 1)
    edge = st.tuples(ends, st.integers(0, 2 * RELATIONS - 1), ends)
    edges = draw(st.lists(edge, max_size=max_edges, unique=True))
    targets = draw(st.permutations([node for node, value in enumerate(nodes) if value == TARGET]))
    return BoundQuery(nodes, tuple(edges), tuple(targets))


st.register_type_strategy(BoundQuery, queries())
