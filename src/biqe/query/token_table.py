"""Tokens of many queries at once, in columns.

Same order, same positions, same elements as the reference in ``tokens.py`` (a test compares them). Large sets go
through compiled kernels, where a hundred thousand queries take a fraction of a second. Token ids are one space, laid
out for a tied embedding: 0 is [MASK], then the entities, then the relations and their inverses.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from biqe.errors import TooManyPaths, UnsupportedQuery
from biqe.query.bound import TARGET, BoundQuery
from biqe.query.dag import PATH_CAP
from biqe.query.queryset import QuerySet
from biqe.query.tokens import tokens

MASK = 0
FIRST_ENTITY = 1

COMPILED_FROM = 256
"""Sets of this size and larger go through compiled kernels; below it, loading them costs more than they save."""


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


def token_table(
    queries: QuerySet, entities: int, *, path_cap: int = PATH_CAP, compiled: bool | None = None
) -> TokenTable:
    """Tokens of every query. Cyclic queries and those over ``path_cap`` paths are refused, by number.

    ``compiled`` says whether to use the compiled kernels; by default they are used for large sets, and where they are
    loaded already. The result is the same.
    """
    if compiled is None:
        # A first question does not wait for the kernels to load.
        compiled = len(queries) >= COMPILED_FROM or "biqe.query.token_kernels" in sys.modules
    return (_compiled if compiled else _plain)(queries, entities, path_cap)


def _plain(queries: QuerySet, entities: int, path_cap: int) -> TokenTable:
    parts, tokens_ = [_layout((), (), path_cap)], [np.zeros(0, np.int32)]
    for row in range(len(queries)):
        nodes = queries.nodes[queries.node_offsets[row] : queries.node_offsets[row + 1]]
        edges = queries.edges[queries.edge_offsets[row] : queries.edge_offsets[row + 1]]
        shape = tuple(np.minimum(nodes, 0).tolist()), tuple(map(tuple, edges[:, ::2].tolist()))
        try:
            part = _layout(*shape, path_cap)
        except UnsupportedQuery:
            raise _refused_cycle(_which(queries, row)) from None
        except TooManyPaths:
            raise _refused_paths(_which(queries, row), path_cap) from None
        parts.append(part)
        by_element = np.concatenate(
            [np.where(nodes >= 0, nodes + FIRST_ENTITY, MASK), edges[:, 1] + (FIRST_ENTITY + entities)]
        )
        tokens_.append(by_element[part.elements])
    offsets = np.zeros(len(queries) + 1, np.int64)
    np.cumsum([len(part.positions) for part in parts[1:]], out=offsets[1:])
    kinds = (np.int32, np.int16, np.int16, np.int16, np.int32)
    columns = [np.concatenate(column) for column in (tokens_, *zip(*parts, strict=True))]
    return TokenTable(offsets, *(column.astype(kind) for column, kind in zip(columns, kinds, strict=True)))


class _Layout(NamedTuple):
    """The columns of a table that depend on no entity and on no relation."""

    positions: NDArray[np.int64]
    paths: NDArray[np.int64]
    elements: NDArray[np.int64]
    targets: NDArray[np.int64]


@lru_cache(maxsize=1024)
def _layout(nodes: tuple[int, ...], edges: tuple[tuple[int, int], ...], path_cap: int) -> _Layout:
    """Where the tokens of a query stand. ``nodes`` are TARGET, HIDDEN, or 0 for a constant; ``edges`` join them."""
    targets = tuple(node for node, value in enumerate(nodes) if value == TARGET)
    query = BoundQuery(nodes, tuple((subject, 0, object_) for subject, object_ in edges), targets)
    found = tokens(query, cap=path_cap)
    number = {node: place for place, node in enumerate(targets)}
    numbers = [number.get(element, -1) for element in found.elements]
    return _Layout(*(np.array(column, np.int64) for column in (found.positions, found.paths, found.elements, numbers)))


def _compiled(queries: QuerySet, entities: int, path_cap: int) -> TokenTable:
    from biqe.query import token_kernels as kernels

    columns = (queries.node_offsets, queries.nodes, queries.edge_offsets, queries.edges)
    lengths = kernels.count_tokens(*columns, path_cap)
    bad = np.flatnonzero(lengths < 0)
    if len(bad):
        row = int(bad[0])
        which = _which(queries, row)
        raise _refused_cycle(which) if lengths[row] == kernels.CYCLIC else _refused_paths(which, path_cap)
    offsets = np.zeros(len(queries) + 1, np.int64)
    np.cumsum(lengths, out=offsets[1:])
    total = int(offsets[-1])
    table = TokenTable(
        offsets,
        np.empty(total, np.int32),
        np.empty(total, np.int16),
        np.empty(total, np.int16),
        np.empty(total, np.int16),
        np.empty(total, np.int32),
    )
    kernels.fill_tokens(
        *columns, entities, offsets, table.tokens, table.positions, table.paths, table.elements, table.targets
    )
    return table


def _which(queries: QuerySet, row: int) -> str:
    return "this query" if len(queries) == 1 else f"query {row:,}"


def _refused_cycle(which: str) -> UnsupportedQuery:
    return UnsupportedQuery(
        f"{which} has a cycle; only acyclic queries have root-to-leaf paths",
        hint="remove one pattern of the cycle, or ask in known mode",
    )


def _refused_paths(which: str, path_cap: int) -> TooManyPaths:
    return TooManyPaths(
        f"{which} has more than {path_cap} root-to-leaf paths",
        hint="ask for fewer branches at once; the number of paths is exponential in the worst case",
    )
