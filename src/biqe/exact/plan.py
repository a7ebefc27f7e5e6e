"""The order in which a query's variables are joined, computed per query inside the kernels.

Anchors are constants, so every edge that touches one is a condition on its other end alone, and an anchor shared
by two edges splits the query there. What is left is a graph over the variables: a spanning forest carries the
semi-joins; edges outside the forest make the query cyclic and are left to the search in ``join``.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from numba import njit
from numpy.typing import NDArray


def compiled(**options: Any) -> Callable[[Callable[..., Any]], Any]:
    """A decorator: ``numba.njit`` with these options and a cache.

    numba caches compiled code beside the source, in the user's cache folder, or in NUMBA_CACHE_DIR, and raises where it
    can write to none of them, as in a read-only container. There, each process compiles anew.
    """

    def decorate(function: Callable[..., Any]) -> Any:
        try:
            return njit(cache=True, **options)(function)
        except RuntimeError:
            return njit(**options)(function)

    return decorate


# The kernels of this room are compiled once, kept on disk, and run without the interpreter's lock.
kernel = compiled(nogil=True, error_model="numpy", _nrt=False)
"""For functions that allocate nothing. They do not count references to their array arguments, which makes them twice
as fast; the caller must keep the arrays alive."""

allocating_kernel = compiled(nogil=True, error_model="numpy")
"""For functions that make arrays."""

# Kinds of edges.
DUPLICATE = 0
"""Repeats an earlier edge."""
GROUND = 1
"""Both ends are constants: it holds or the query has no answer."""
ANCHORED = 2
"""One end is a constant."""
LOOP = 3
"""Both ends are the same variable."""
TREE = 4
"""Joins two variables, in the spanning forest."""
CYCLE = 5
"""Joins two variables that the forest has joined before."""

Int = NDArray[np.int64]


class Plan(NamedTuple):
    """Scratch for the plan of one query of at most K nodes and M edges; filled by ``make_plan``."""

    edge_kinds: Int
    """(M,)"""
    component: Int
    """(K,) the least node of the node's component; constants have their own."""
    order: Int
    """(K,) variables, each after its parent."""
    parent: Int
    """(K,) node nearer to the root, or -1."""
    up: Int
    """(K,) relation that leads from a node to its parent."""
    degree: Int
    """(K,) edges of the forest at a node."""
    conditions: Int
    """(K,) anchored edges and loops at a node."""
    wanted: Int
    """(K,) 1 where the node or a node below it is a target."""


def empty_plan(nodes: int, edges: int) -> Plan:
    """Scratch for queries of at most so many nodes and edges."""
    return Plan(np.zeros(edges, np.int64), *(np.zeros(nodes, np.int64) for _ in range(7)))


@kernel
def make_plan(nodes, edges, inverse, plan):
    """Fill ``plan``; returns the number of variables and the number of edges outside the forest."""
    for node in range(len(nodes)):
        plan.component[node] = node
        plan.degree[node] = 0
        plan.conditions[node] = 0
        plan.parent[node] = -1
        plan.wanted[node] = nodes[node] == -1
    cycles = 0
    for edge in range(len(edges)):
        kind = _kind(nodes, edges, inverse, edge)
        subject, object_ = edges[edge, 0], edges[edge, 2]
        if kind == TREE:
            a, b = plan.component[subject], plan.component[object_]
            if a == b:
                kind = CYCLE
                cycles += 1
            else:
                low, high = min(a, b), max(a, b)
                for node in range(len(nodes)):
                    if plan.component[node] == high:
                        plan.component[node] = low
                plan.degree[subject] += 1
                plan.degree[object_] += 1
        elif kind == ANCHORED:
            plan.conditions[subject if nodes[subject] < 0 else object_] += 1
        elif kind == LOOP:
            plan.conditions[subject] += 1
        plan.edge_kinds[edge] = kind
    variables = np.int64(0)
    for node in range(len(nodes)):
        if nodes[node] < 0 and plan.component[node] == node:
            variables = _grow(nodes, edges, inverse, plan, _root(nodes, plan, node), variables)
    for position in range(variables - 1, -1, -1):
        node = plan.order[position]
        if plan.wanted[node] and plan.parent[node] >= 0:
            plan.wanted[plan.parent[node]] = 1
    return variables, cycles


@kernel
def _kind(nodes, edges, inverse, edge):
    subject, relation, object_ = edges[edge, 0], edges[edge, 1], edges[edge, 2]
    for other in range(edge):
        s, r, o = edges[other, 0], edges[other, 1], edges[other, 2]
        if (s == subject and r == relation and o == object_) or (
            s == object_ and r == inverse[relation] and o == subject
        ):
            return DUPLICATE
    if nodes[subject] >= 0 and nodes[object_] >= 0:
        return GROUND
    if nodes[subject] >= 0 or nodes[object_] >= 0:
        return ANCHORED
    return LOOP if subject == object_ else TREE


@kernel
def _root(nodes, plan, component):
    """A leaf without condition if there is one: the join then runs from the anchors towards it.

    Failing that, the variable with fewest conditions, so that those with more restrict it.
    """
    best = component
    for node in range(component, len(nodes)):
        if nodes[node] < 0 and plan.component[node] == component:
            if plan.degree[node] + plan.conditions[node] <= 1 and plan.conditions[node] == 0:
                return node
            if plan.conditions[node] < plan.conditions[best]:
                best = node
    return best


@kernel
def _grow(nodes, edges, inverse, plan, root, variables):
    """Append the root's component to ``order``, each node after its parent."""
    plan.order[variables] = root
    head, tail = variables, variables + 1
    while head < tail:
        node = plan.order[head]
        head += 1
        for edge in range(len(edges)):
            if plan.edge_kinds[edge] != TREE:
                continue
            subject, relation, object_ = edges[edge, 0], edges[edge, 1], edges[edge, 2]
            if subject == node and plan.parent[node] != object_:
                child, up = object_, inverse[relation]
            elif object_ == node and plan.parent[node] != subject:
                child, up = subject, relation
            else:
                continue
            plan.parent[child] = node
            plan.up[child] = up
            plan.order[tail] = child
            tail += 1
    return tail
