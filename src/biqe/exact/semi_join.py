"""Candidate sets of a query's variables, reduced by semi-joins.

Two passes over the forest of a plan (Yannakakis): towards the roots each variable is restricted by its children,
back from the roots by its parent. On a query without cycles every value that is left has a full match, and the
cost is that of the edges touched, never that of the matches.

A set is held twice: a list of members in any order, and one bit an entity. A set that nothing restricts yet is
not written out; its size is FREE.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from llvmlite import ir
from numba import types
from numba.extending import intrinsic
from numpy.typing import NDArray

from biqe.exact.adjacency import Adjacency
from biqe.exact.plan import ANCHORED, GROUND, LOOP, kernel

FREE = -1
"""Size of a set that holds every entity, not written out."""
SCAN_SHARE = 16
"""A relation's groups are scanned where the set has more than one member for so many groups; else looked up."""
_ONE = np.uint64(1)


class Sets(NamedTuple):
    """Scratch for the sets of one query; row K is a spare one. All bits are 0 between queries."""

    members: NDArray[np.int32]
    """(K+1, E+1)"""
    bits: NDArray[np.uint64]
    """(K+1, E/64)"""
    sizes: NDArray[np.int64]
    """(K+1,)"""


def empty_sets(nodes: int, adjacency: Adjacency) -> Sets:
    """Scratch for queries of at most so many nodes. Memory that no set reaches is never touched."""
    entities = adjacency.entity_count
    return Sets(
        # One place more than there are entities: a member is written before it is known to be new.
        np.empty((nodes + 1, entities + 1), np.int32),
        np.zeros((nodes + 1, (entities + 63) // 64), np.uint64),
        np.full(nodes + 1, FREE, np.int64),
    )


@intrinsic
def _trailing_zeros(_typing, word):
    def generate(_context, builder, _signature, arguments):
        return builder.cttz(arguments[0], ir.Constant(ir.IntType(1), 1))

    return types.uint64(types.uint64), generate


@kernel
def has(bits, entity):
    """The entity's bit."""
    return (bits[entity >> 6] >> np.uint64(entity & 63)) & _ONE


@kernel
def group_of(adjacency, relation, source):
    """The group of (relation, source), or -1."""
    low = adjacency.relation_offsets[relation]
    left = adjacency.relation_offsets[relation + 1] - low
    if left == 0:
        return -1
    sources = adjacency.group_sources
    while left > 1:
        half = left >> 1
        low = low + half if sources[low + half] <= source else low
        left -= half
    return low if sources[low] == source else -1


@kernel
def holds(adjacency, source, relation, neighbour):
    """Whether the graph has (source, relation, neighbour)."""
    group = group_of(adjacency, relation, source)
    if group < 0:
        return False
    low, high = adjacency.group_offsets[group], adjacency.group_offsets[group + 1]
    return _within(adjacency.neighbours, low, high, neighbour)


@kernel
def _within(values, low, high, value):
    """Whether the sorted slice holds the value."""
    left = high - low
    while left > 1:
        half = left >> 1
        low = low + half if values[low + half] <= value else low
        left -= half
    return left == 1 and values[low] == value


@kernel
def clear(sets, row):
    """Make the set FREE again and its bits 0."""
    bits, members, size = sets.bits[row], sets.members[row], sets.sizes[row]
    if size > len(bits):
        bits[:] = 0
    else:
        for position in range(size):
            bits[members[position] >> 6] = 0
    sets.sizes[row] = FREE


@kernel
def fill_slice(sets, row, values, low, high):
    """The set becomes values[low:high], which are distinct."""
    bits, members = sets.bits[row], sets.members[row]
    for position in range(low, high):
        value = values[position]
        members[position - low] = value
        bits[value >> 6] |= _ONE << np.uint64(value & 63)
    sets.sizes[row] = high - low


@kernel
def fill_all(sets, row, entity_count):
    """The set becomes all entities."""
    bits, members = sets.bits[row], sets.members[row]
    for entity in range(entity_count):
        members[entity] = entity
        bits[entity >> 6] |= _ONE << np.uint64(entity & 63)
    sets.sizes[row] = entity_count


@kernel
def _add_group(adjacency, group, bits, members, size):
    for position in range(adjacency.group_offsets[group], adjacency.group_offsets[group + 1]):
        value = adjacency.neighbours[position]
        word, bit = bits[value >> 6], _ONE << np.uint64(value & 63)
        # Written first and counted if new: no branch for the processor to guess.
        members[size] = value
        size += (word & bit) == 0
        bits[value >> 6] = word | bit
    return size


@kernel
def fill_image(adjacency, sets, row, source_row, relation):
    """The set becomes all neighbours by ``relation`` of the other set."""
    bits, members = sets.bits[row], sets.members[row]
    source_bits, source_members, source_size = sets.bits[source_row], sets.members[source_row], sets.sizes[source_row]
    low, high = adjacency.relation_offsets[relation], adjacency.relation_offsets[relation + 1]
    size = np.int64(0)
    if source_size * SCAN_SHARE > high - low:
        for group in range(low, high):
            if has(source_bits, adjacency.group_sources[group]):
                size = _add_group(adjacency, group, bits, members, size)
    else:
        for position in range(source_size):
            group = group_of(adjacency, relation, np.int64(source_members[position]))
            if group >= 0:
                size = _add_group(adjacency, group, bits, members, size)
    sets.sizes[row] = size


@kernel
def fill_loops(adjacency, sets, row, relation):
    """The set becomes all x with (x, relation, x)."""
    bits, members = sets.bits[row], sets.members[row]
    size = 0
    for group in range(adjacency.relation_offsets[relation], adjacency.relation_offsets[relation + 1]):
        source = adjacency.group_sources[group]
        low, high = adjacency.group_offsets[group], adjacency.group_offsets[group + 1]
        if _within(adjacency.neighbours, low, high, source):
            members[size] = source
            size += 1
            bits[source >> 6] |= _ONE << np.uint64(source & 63)
    sets.sizes[row] = size


@kernel
def _keep_or_drop(bits, members, size, member, stays):
    """The member goes to place ``size``, or out of the set; returns how many have stayed."""
    if stays:
        members[size] = member
        return size + 1
    bits[member >> 6] &= ~(_ONE << np.uint64(member & 63))
    return size


@kernel
def keep_marked(sets, row, marks):
    """Drop the members whose bit in ``marks`` is 0."""
    bits, members = sets.bits[row], sets.members[row]
    size = 0
    for position in range(sets.sizes[row]):
        member = members[position]
        size = _keep_or_drop(bits, members, size, member, has(marks, member))
    sets.sizes[row] = size


@kernel
def keep_slice(sets, row, values, low, high):
    """Drop the members that are not in the sorted slice."""
    bits, members = sets.bits[row], sets.members[row]
    size = 0
    for position in range(sets.sizes[row]):
        member = members[position]
        size = _keep_or_drop(bits, members, size, member, _within(values, low, high, member))
    sets.sizes[row] = size


@kernel
def _meets(adjacency, group, other_bits, other_members, other_size):
    """Whether the group has a neighbour in the other set; walks the smaller of the two."""
    low, high = adjacency.group_offsets[group], adjacency.group_offsets[group + 1]
    if other_size * 4 < high - low:
        for position in range(other_size):
            if _within(adjacency.neighbours, low, high, other_members[position]):
                return True
        return False
    for position in range(low, high):
        if has(other_bits, adjacency.neighbours[position]):
            return True
    return False


@kernel
def keep_joined(adjacency, sets, row, other, relation):
    """Drop the members without a neighbour by ``relation`` in the other set, or with none at all if it is FREE."""
    other_size, size = sets.sizes[other], sets.sizes[row]
    low, high = adjacency.relation_offsets[relation], adjacency.relation_offsets[relation + 1]
    spare = len(sets.sizes) - 1
    edges = adjacency.group_offsets[high] - adjacency.group_offsets[low]
    back = adjacency.inverse[relation]
    back_groups = adjacency.relation_offsets[back + 1] - adjacency.relation_offsets[back]
    if other_size != FREE and other_size * edges < size * back_groups:
        # Fewer edges lead into the other set than this set has members.
        fill_image(adjacency, sets, spare, other, back)
        keep_marked(sets, row, sets.bits[spare])
        clear(sets, spare)
        return
    bits, members = sets.bits[row], sets.members[row]
    other_bits, other_members = sets.bits[other], sets.members[other]
    kept, start = np.int64(0), np.int64(0)
    if size * SCAN_SHARE > high - low:
        found = sets.members[spare]
        for group in range(low, high):
            source = adjacency.group_sources[group]
            if has(bits, source) and (
                other_size == FREE or _meets(adjacency, group, other_bits, other_members, other_size)
            ):
                found[kept] = source
                kept += 1
        clear(sets, row)
        fill_slice(sets, row, found, start, kept)
        return
    for position in range(size):
        member = members[position]
        group = group_of(adjacency, relation, np.int64(member))
        stays = group >= 0 and (other_size == FREE or _meets(adjacency, group, other_bits, other_members, other_size))
        kept = _keep_or_drop(bits, members, kept, member, stays)
    sets.sizes[row] = kept


@kernel
def _generate(adjacency, sets, plan, nodes, edges, children, node):
    """Fill the node's set from whatever restricts it at least cost; returns the edge or child that was used.

    Edges are numbered from 0, children from -2 downwards (child c is -2 - c); -1 means that nothing restricts it.
    """
    best: Any = np.int64(-1)
    best_cost = np.int64(1) << 62
    for edge in range(len(edges)):
        kind = plan.edge_kinds[edge]
        if kind == ANCHORED:
            group = _anchor_group(adjacency, nodes, edges, edge, node)
            if group == -2:
                continue
            if group == -1:
                sets.sizes[node] = 0
                return edge
            cost = adjacency.group_offsets[group + 1] - adjacency.group_offsets[group]
        elif kind == LOOP and edges[edge, 0] == node:
            relation = edges[edge, 1]
            cost = adjacency.relation_offsets[relation + 1] - adjacency.relation_offsets[relation]
        else:
            continue
        if cost < best_cost:
            best, best_cost = edge, cost
    for position in range(len(children)):
        child = children[position]
        if plan.parent[child] != node:
            continue
        relation = plan.up[child]
        if sets.sizes[child] == FREE:
            back = adjacency.inverse[relation]
            cost = adjacency.relation_offsets[back + 1] - adjacency.relation_offsets[back]
        else:
            low, high = adjacency.relation_offsets[relation], adjacency.relation_offsets[relation + 1]
            cost = sets.sizes[child]
            if high > low:
                cost = cost * (adjacency.group_offsets[high] - adjacency.group_offsets[low]) // (high - low)
        if cost < best_cost:
            best, best_cost = -2 - child, cost
    if best >= 0 and plan.edge_kinds[best] == ANCHORED:
        group = _anchor_group(adjacency, nodes, edges, best, node)
        offsets = adjacency.group_offsets
        fill_slice(sets, node, adjacency.neighbours, offsets[group], offsets[group + 1])
    elif best >= 0:
        fill_loops(adjacency, sets, node, edges[best, 1])
    elif best < -1:
        child = -2 - best
        if sets.sizes[child] == FREE:
            back = adjacency.inverse[plan.up[child]]
            offsets = adjacency.relation_offsets
            fill_slice(sets, node, adjacency.group_sources, offsets[back], offsets[back + 1])
        else:
            fill_image(adjacency, sets, node, child, plan.up[child])
    return best


@kernel
def _anchor_group(adjacency, nodes, edges, edge, node):
    """Group from the constant of an anchored edge to ``node``; -1 if it is empty, -2 if the edge is elsewhere."""
    subject, relation, object_ = edges[edge, 0], edges[edge, 1], edges[edge, 2]
    if subject == node:
        return group_of(adjacency, adjacency.inverse[relation], nodes[object_])
    if object_ == node:
        return group_of(adjacency, relation, nodes[subject])
    return -2


@kernel
def _restrict(adjacency, sets, plan, nodes, edges, children, node):
    """The node's set from its own conditions and its children's sets."""
    used = _generate(adjacency, sets, plan, nodes, edges, children, node)
    if used == -1:
        return
    for edge in range(len(edges)):
        if edge == used or sets.sizes[node] == 0:
            continue
        if plan.edge_kinds[edge] == ANCHORED:
            group = _anchor_group(adjacency, nodes, edges, edge, node)
            if group >= 0:
                offsets = adjacency.group_offsets
                keep_slice(sets, node, adjacency.neighbours, offsets[group], offsets[group + 1])
        elif plan.edge_kinds[edge] == LOOP and edges[edge, 0] == node:
            spare = len(sets.sizes) - 1
            fill_loops(adjacency, sets, spare, edges[edge, 1])
            keep_marked(sets, node, sets.bits[spare])
            clear(sets, spare)
    for position in range(len(children)):
        child = children[position]
        if plan.parent[child] == node and -2 - child != used and sets.sizes[node] > 0:
            keep_joined(adjacency, sets, node, child, adjacency.inverse[plan.up[child]])


@kernel
def reduce_sets(adjacency, sets, plan, nodes, edges, variables, every):
    """Both passes; False if some variable has no value left, or a pattern between constants does not hold.

    With ``every`` the sets of all variables that have a pattern are reduced and written out; else those alone
    that a target needs.
    """
    for edge in range(len(edges)):
        if plan.edge_kinds[edge] == GROUND and not holds(
            adjacency, nodes[edges[edge, 0]], edges[edge, 1], nodes[edges[edge, 2]]
        ):
            return False
    for position in range(variables - 1, -1, -1):
        node = plan.order[position]
        _restrict(adjacency, sets, plan, nodes, edges, plan.order[position + 1 : variables], node)
        if sets.sizes[node] == 0:
            return False
    for position in range(variables):
        node, parent = plan.order[position], plan.parent[plan.order[position]]
        if not (every or plan.wanted[node]):
            continue
        if parent < 0:
            # A root that is still FREE has no pattern at all.
            if sets.sizes[node] == FREE and plan.wanted[node]:
                fill_all(sets, node, adjacency.entity_count)
        elif sets.sizes[node] == FREE:
            fill_image(adjacency, sets, node, parent, adjacency.inverse[plan.up[node]])
        else:
            keep_joined(adjacency, sets, node, parent, plan.up[node])
    return True


@kernel
def _sort(values, low, high):
    """Sort values[low:high] in place: Shell's way, which compiles in a tenth of the time that np.sort takes."""
    gap = 1
    while gap < (high - low) // 3:
        gap = 3 * gap + 1
    while gap > 0:
        for position in range(low + gap, high):
            value, hole = values[position], position
            while hole >= low + gap and values[hole - gap] > value:
                values[hole] = values[hole - gap]
                hole -= gap
            values[hole] = value
        gap //= 3


@kernel
def write_sorted(sets, row, out, start):
    """Write the members in order to ``out`` from ``start``; returns where they end."""
    bits, members, size = sets.bits[row], sets.members[row], sets.sizes[row]
    if size * 4 < len(bits):
        for position in range(size):
            out[start + position] = members[position]
        _sort(out, start, start + size)
        return start + size
    for position in range(len(bits)):
        word = bits[position]
        base = position << 6
        while word:
            out[start] = base + np.int64(_trailing_zeros(word))  # type: ignore[call-arg]
            start += 1
            word &= word - _ONE
    return start
