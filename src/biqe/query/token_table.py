"""Tokens of many queries at once: the twin of ``tokens.py`` that numba runs over a query set's columns.

Same order, same positions, same elements as the reference in ``tokens.py`` (a test compares them); here a
hundred thousand queries take a fraction of a second. Token ids are one space, laid out for a tied embedding:
0 is [MASK], then the entities, then the relations and their inverses.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numba import njit
from numpy.typing import NDArray

from biqe.errors import TooManyPaths, UnsupportedQuery
from biqe.query.queryset import QuerySet

MASK = 0
FIRST_ENTITY = 1
PATH_CAP = 64
"""Root-to-leaf paths of one query; beyond it the number of tokens explodes."""

_CYCLIC, _TOO_MANY = -1, -2


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
    columns = (queries.node_offsets, queries.nodes, queries.edge_offsets, queries.edges)
    lengths = _count(*columns, path_cap)
    bad = np.flatnonzero(lengths < 0)
    if len(bad):
        row = int(bad[0])
        if lengths[row] == _CYCLIC:
            raise UnsupportedQuery(
                f"query {row:,} has a cycle; only acyclic queries have root-to-leaf paths",
                hint="remove one pattern of the cycle, or ask in known mode",
            )
        raise TooManyPaths(
            f"query {row:,} has more than {path_cap} root-to-leaf paths",
            hint="ask for fewer branches at once; the number of paths is exponential in the worst case",
        )
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
    _fill(*columns, entities, offsets, table.tokens, table.positions, table.paths, table.elements, table.targets)
    return table


@njit(cache=True, nogil=True)
def _is_acyclic(edges, first, last, nodes):  # type: ignore[no-untyped-def]
    incoming = np.zeros(nodes, np.int32)
    for edge in range(first, last):
        incoming[edges[edge, 2]] += 1
    ready = np.empty(nodes, np.int32)
    count = 0
    for node in range(nodes):
        if incoming[node] == 0:
            ready[count] = node
            count += 1
    done = 0
    while done < count:
        node = ready[done]
        done += 1
        for edge in range(first, last):
            if edges[edge, 0] == node:
                incoming[edges[edge, 2]] -= 1
                if incoming[edges[edge, 2]] == 0:
                    ready[count] = edges[edge, 2]
                    count += 1
    return done == nodes


@njit(cache=True, nogil=True)
def _next_edge(edges, node, start, last):  # type: ignore[no-untyped-def]
    """First edge from ``start`` on that leaves ``node``; ``last`` where there is none."""
    for edge in range(start, last):
        if edges[edge, 0] == node:
            return edge
    return last


@njit(cache=True, nogil=True)
def _count(node_offsets, nodes, edge_offsets, edges, path_cap):  # type: ignore[no-untyped-def]
    """Tokens of each query; _CYCLIC or _TOO_MANY where it has none."""
    lengths = np.zeros(len(node_offsets) - 1, np.int64)
    for row in range(len(lengths)):
        base, count = node_offsets[row], node_offsets[row + 1] - node_offsets[row]
        first, last = edge_offsets[row], edge_offsets[row + 1]
        if not _is_acyclic(edges, first, last, count):
            lengths[row] = _CYCLIC
            continue
        has_incoming = np.zeros(count, np.bool_)
        for edge in range(first, last):
            has_incoming[edges[edge, 2]] = True
        stack = np.empty(count + 1, np.int64)
        paths = 0
        total = 0
        for root in range(count):
            if has_incoming[root]:
                continue
            depth = 0
            node = root
            edge = _next_edge(edges, node, first, last)
            while True:
                if edge == last and _next_edge(edges, node, first, last) == last:
                    paths += 1
                    total += depth + (nodes[base + root] != -2)
                    for step in range(depth):
                        total += nodes[base + edges[stack[step], 2]] != -2
                    if paths > path_cap:
                        break
                if edge < last:
                    stack[depth] = edge
                    depth += 1
                    node = edges[edge, 2]
                    edge = _next_edge(edges, node, first, last)
                elif depth > 0:
                    depth -= 1
                    node = edges[stack[depth], 0]
                    edge = _next_edge(edges, node, stack[depth] + 1, last)
                else:
                    break
            if paths > path_cap:
                break
        lengths[row] = _TOO_MANY if paths > path_cap else total
    return lengths


@njit(cache=True, nogil=True)
def _fill(  # type: ignore[no-untyped-def]
    node_offsets, nodes, edge_offsets, edges, entities, offsets, tokens, positions, paths, elements, targets
):
    for row in range(len(node_offsets) - 1):
        base, count = node_offsets[row], node_offsets[row + 1] - node_offsets[row]
        first, last = edge_offsets[row], edge_offsets[row + 1]
        has_incoming = np.zeros(count, np.bool_)
        for edge in range(first, last):
            has_incoming[edges[edge, 2]] = True
        target_number = np.full(count, -1, np.int32)
        number = 0
        for node in range(count):
            if nodes[base + node] == -1:
                target_number[node] = number
                number += 1
        stack = np.empty(count + 1, np.int64)
        at = offsets[row]
        path = 0
        for root in range(count):
            if has_incoming[root]:
                continue
            depth = 0
            node = root
            edge = _next_edge(edges, node, first, last)
            while True:
                if edge == last and _next_edge(edges, node, first, last) == last:
                    # A leaf: write the path from here back to the root.
                    position = 0
                    for step in range(depth, -1, -1):
                        here = edges[stack[step - 1], 2] if step > 0 else root
                        value = nodes[base + here]
                        if value != -2:
                            tokens[at] = MASK if value == -1 else FIRST_ENTITY + value
                            positions[at] = position
                            paths[at] = path
                            elements[at] = here
                            targets[at] = target_number[here]
                            at += 1
                            position += 1
                        if step > 0:
                            tokens[at] = FIRST_ENTITY + entities + edges[stack[step - 1], 1]
                            positions[at] = position
                            paths[at] = path
                            elements[at] = count + stack[step - 1] - first
                            targets[at] = -1
                            at += 1
                            position += 1
                    path += 1
                if edge < last:
                    stack[depth] = edge
                    depth += 1
                    node = edges[edge, 2]
                    edge = _next_edge(edges, node, first, last)
                elif depth > 0:
                    depth -= 1
                    node = edges[stack[depth], 0]
                    edge = _next_edge(edges, node, stack[depth] + 1, last)
                else:
                    break
