"""Compiled kernels of ``token_table``: count the tokens of every query, then fill the columns."""

from __future__ import annotations

import numpy as np

from biqe.graph.compiled import compiled

MASK = 0
FIRST_ENTITY = 1
CYCLIC, TOO_MANY = -1, -2
"""What ``count`` gives for a query that has no tokens."""


@compiled(nogil=True)
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


@compiled(nogil=True)
def _next_edge(edges, node, start, last):  # type: ignore[no-untyped-def]
    """First edge from ``start`` on that leaves ``node``; ``last`` where there is none."""
    for edge in range(start, last):
        if edges[edge, 0] == node:
            return edge
    return last


@compiled(nogil=True)
def _has_incoming(edges, first, last, nodes):  # type: ignore[no-untyped-def]
    """(nodes,) whether an edge leads to each node: it is no root then."""
    found = np.zeros(nodes, np.bool_)
    for edge in range(first, last):
        found[edges[edge, 2]] = True
    return found


@compiled(nogil=True)
def _start(edges, first, last, root):  # type: ignore[no-untyped-def]
    """Depth, node and next edge at the start of a walk; see ``_go_on``."""
    return 0, root, _next_edge(edges, root, first, last)


@compiled(nogil=True)
def _go_on(edges, first, last, stack, depth, edge):  # type: ignore[no-untyped-def]
    """One step of the walk over all paths from a root, depth first: down ``edge``, or back up where it is ``last``.

    ``stack`` holds the edges from the root. Returns the new depth, node and next edge; depth -1 when all is walked.
    """
    if edge < last:
        stack[depth] = edge
        node = edges[edge, 2]
        return depth + 1, node, _next_edge(edges, node, first, last)
    if depth == 0:
        return -1, -1, last
    taken = stack[depth - 1]
    node = edges[taken, 0]
    return depth - 1, node, _next_edge(edges, node, taken + 1, last)


@compiled(nogil=True)
def _is_leaf(edges, first, last, node, edge):  # type: ignore[no-untyped-def]
    """Whether no edge leaves ``node``: not even one that was walked before ``edge``."""
    return edge == last and _next_edge(edges, node, first, last) == last


@compiled(nogil=True)
def count_tokens(node_offsets, nodes, edge_offsets, edges, path_cap):  # type: ignore[no-untyped-def]
    """Tokens of each query; CYCLIC or TOO_MANY where it has none."""
    lengths = np.zeros(len(node_offsets) - 1, np.int64)
    for row in range(len(lengths)):
        base, count = node_offsets[row], node_offsets[row + 1] - node_offsets[row]
        first, last = edge_offsets[row], edge_offsets[row + 1]
        if not _is_acyclic(edges, first, last, count):
            lengths[row] = CYCLIC
            continue
        has_incoming = _has_incoming(edges, first, last, count)
        stack = np.empty(count + 1, np.int64)
        paths = 0
        total = 0
        for root in range(count):
            if has_incoming[root]:
                continue
            depth, node, edge = _start(edges, first, last, root)
            while True:
                if _is_leaf(edges, first, last, node, edge):
                    paths += 1
                    total += depth + (nodes[base + root] != -2)
                    for step in range(depth):
                        total += nodes[base + edges[stack[step], 2]] != -2
                    if paths > path_cap:
                        break
                depth, node, edge = _go_on(edges, first, last, stack, depth, edge)
                if depth < 0:
                    break
            if paths > path_cap:
                break
        lengths[row] = TOO_MANY if paths > path_cap else total
    return lengths


@compiled(nogil=True)
def fill_tokens(  # type: ignore[no-untyped-def]
    node_offsets, nodes, edge_offsets, edges, entities, offsets, tokens, positions, paths, elements, targets
):
    """Write the tokens of every query into the columns; ``offsets`` come from what ``count_tokens`` gave."""
    for row in range(len(node_offsets) - 1):
        base, count = node_offsets[row], node_offsets[row + 1] - node_offsets[row]
        first, last = edge_offsets[row], edge_offsets[row + 1]
        has_incoming = _has_incoming(edges, first, last, count)
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
            depth, node, edge = _start(edges, first, last, root)
            while True:
                if _is_leaf(edges, first, last, node, edge):
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
                depth, node, edge = _go_on(edges, first, last, stack, depth, edge)
                if depth < 0:
                    break
