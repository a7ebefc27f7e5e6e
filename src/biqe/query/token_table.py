"""Tokens of many queries at once, in columns.

Same order, same positions, same elements as the reference in ``tokens.py`` (a test compares them). Queries that differ
in nothing but entities and relations have the same layout of tokens: it is made once by the reference, and filled in
for all of them with numpy. Token ids are one space, laid out for a tied embedding: 0 is [MASK], then the entities,
then the relations and their inverses.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from biqe.errors import BiqeError, TooManyPaths, UnsupportedQuery
from biqe.query.bound import TARGET, BoundQuery
from biqe.query.dag import PATH_CAP
from biqe.query.queryset import QuerySet
from biqe.query.tokens import tokens

MASK = 0
FIRST_ENTITY = 1


def token_count(entities: int, relations: int) -> int:
    """Number of token ids: the mask, every entity, every relation and its inverse."""
    return FIRST_ENTITY + entities + 2 * relations


@dataclass(frozen=True)
class TokenTable:
    """Tokens of Q queries in flat columns, T tokens in all."""

    offsets: NDArray[np.int64]
    """(Q+1,) slice of each query's tokens."""
    tokens: NDArray[np.int32]
    """(T,) MASK, FIRST_ENTITY + entity, or FIRST_ENTITY + E + relation."""
    positions: NDArray[np.int16]
    """(T,) distance from the path's end, counted in tokens; restarts at 0 on every path."""
    paths: NDArray[np.int16]
    """(T,) number of the path within its query."""
    elements: NDArray[np.int16]
    """(T,) node of the query, or number of nodes + edge: equal for two tokens that stand for the same thing."""
    targets: NDArray[np.int32]
    """(T,) for a mask, the number of its target within the query; -1 elsewhere."""

    def __len__(self) -> int:
        return len(self.offsets) - 1

    @property
    def lengths(self) -> NDArray[np.int64]:
        """(Q,) tokens of each query."""
        return np.diff(self.offsets)


def token_table(queries: QuerySet, entities: int, *, path_cap: int = PATH_CAP) -> TokenTable:
    """Tokens of every query. Cyclic queries and those over ``path_cap`` paths are refused, by number."""
    lengths = np.zeros(len(queries), np.int64)
    parts: list[tuple[NDArray[np.int64], _Layout, NDArray[np.int32]]] = []
    bad: dict[int, BiqeError] = {}
    for rows, nodes, edges in _by_size(queries):
        # (g, n + m) token of each element of each query
        tokens_ = np.concatenate(
            [np.where(nodes >= 0, nodes + FIRST_ENTITY, MASK), edges[:, :, 1] + (FIRST_ENTITY + entities)], axis=1
        )
        for shape, places in _by_shape(nodes, edges).items():
            try:
                layout = _layout(shape, nodes.shape[1], path_cap)
            except (UnsupportedQuery, TooManyPaths) as error:
                bad[int(rows[places[0]])] = error
                continue
            lengths[rows[places]] = len(layout.elements)
            parts.append((rows[places], layout, tokens_[np.array(places)[:, None], layout.elements]))
    if bad:
        row = min(bad)
        raise _refusal(bad[row], "this query" if len(queries) == 1 else f"query {row:,}", path_cap)
    offsets = np.zeros(len(queries) + 1, np.int64)
    np.cumsum(lengths, out=offsets[1:])
    kinds = (np.int32, np.int16, np.int16, np.int16, np.int32)
    columns = [np.empty(offsets[-1], kind) for kind in kinds]
    for rows, layout, own in parts:
        at = offsets[rows, None] + np.arange(len(layout.elements))  # (g, tokens of a query)
        for column, values in zip(columns, (own, *layout), strict=True):
            column[at] = values
    return TokenTable(offsets, *columns)


def _by_size(queries: QuerySet) -> Iterator[tuple[NDArray[np.int64], NDArray[np.int32], NDArray[np.int32]]]:
    """Queries with equal numbers of nodes and edges: their (g,) rows, (g, n) nodes and (g, m, 3) edges."""
    node_counts, edge_counts = np.diff(queries.node_offsets), np.diff(queries.edge_offsets)
    sizes = node_counts << 32 | edge_counts
    for size in set(sizes.tolist()):
        rows = np.flatnonzero(sizes == size)
        nodes = queries.nodes[queries.node_offsets[rows, None] + np.arange(size >> 32)]
        yield rows, nodes, queries.edges[queries.edge_offsets[rows, None] + np.arange(size & 0xFFFFFFFF)]


def _by_shape(nodes: NDArray[np.int32], edges: NDArray[np.int32]) -> dict[bytes, list[int]]:
    """Places of the queries that differ in nothing but entities and relations, by what they have in common.

    A shape is int16: TARGET, HIDDEN or 0 for each node, then subject and object node of each edge.
    """
    ends = edges[:, :, ::2].reshape(len(edges), -1)  # (g, 2 m)
    data = np.concatenate([np.minimum(nodes, 0), ends], axis=1).astype(np.int16).tobytes()
    width = len(data) // len(nodes)
    found: dict[bytes, list[int]] = {}
    for place in range(len(nodes)):
        found.setdefault(data[place * width : (place + 1) * width], []).append(place)
    return found


class _Layout(NamedTuple):
    """The columns of a table that depend on no entity and on no relation, each (tokens of a query,)."""

    positions: NDArray[np.int64]
    paths: NDArray[np.int64]
    elements: NDArray[np.int64]
    targets: NDArray[np.int64]


@lru_cache(maxsize=1024)
def _layout(shape: bytes, node_count: int, path_cap: int) -> _Layout:
    """The layout of a shape that ``_by_shape`` found; UnsupportedQuery or TooManyPaths where it has none."""
    values = np.frombuffer(shape, np.int16).tolist()
    nodes, ends = tuple(values[:node_count]), values[node_count:]
    targets = tuple(node for node, value in enumerate(nodes) if value == TARGET)
    edges = tuple((subject, 0, object_) for subject, object_ in zip(ends[::2], ends[1::2], strict=True))
    found = tokens(BoundQuery(nodes, edges, targets), cap=path_cap)
    number = {node: place for place, node in enumerate(targets)}
    numbers = [number.get(element, -1) for element in found.elements]
    return _Layout(*(np.array(column, np.int64) for column in (found.positions, found.paths, found.elements, numbers)))


def _refusal(error: BiqeError, which: str, path_cap: int) -> BiqeError:
    if isinstance(error, TooManyPaths):
        return TooManyPaths(
            f"{which} has more than {path_cap} root-to-leaf paths",
            hint="ask for fewer branches at once; the number of paths is exponential in the worst case",
        )
    return UnsupportedQuery(
        f"{which} has a cycle; only acyclic queries have root-to-leaf paths",
        hint="remove one pattern of the cycle, or ask in known mode",
    )
