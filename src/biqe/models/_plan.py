"""Queries as plans: which states to project by which relation, and where they meet, level by level.

Models that walk a query from its constants share this file. A constant has the state of its entity, an edge
projects the state of its source by its relation, and a node where several edges arrive intersects what they
bring. All nodes of a batch stand in one table of states, deeper ones later; each level of the plan appends its
nodes to the table. Within a level the nodes are grouped by the number of edges that arrive there, so that a group
is a dense (n, k, width) block: queries of any shape share a batch, and nothing is padded.

The walk begins at the constants, so edges into a constant are walked backwards, by the inverse relation. An edge
between two constants says nothing about any variable, and is left out.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
import torch
from numpy.typing import NDArray

from biqe.errors import UnsupportedQuery
from biqe.links.structures import Support, Targets, TargetTable
from biqe.query.bound import TARGET, BoundQuery, QuerySet, members
from biqe.query.dag import analyse


@dataclass(frozen=True)
class Level:
    """Nodes that can be computed at once: m edges that arrive there, those of one node side by side."""

    sources: torch.Tensor
    """(m,) the row of the state table that each edge starts from."""
    relations: torch.Tensor
    """(m,) relation ids of 2R."""
    groups: tuple[tuple[int, int], ...]
    """(n, k): the next n nodes are reached by k edges each; the edges follow in this order."""


@dataclass(frozen=True)
class PlanBatch:
    """B queries as one plan. The state table begins with the constants; each level appends its nodes."""

    anchors: torch.Tensor
    """(A,) entities of the constants."""
    levels: tuple[Level, ...]
    target_slots: torch.Tensor
    """(V,) rows of the full state table that are scored, in the order of the queries and their nodes."""
    targets: Targets


class EncodedPlans:
    """A query set with the depth of every node, cut into plans on demand."""

    def __init__(self, queries: QuerySet, relation_count: int) -> None:
        self._targets = TargetTable(queries)
        # Scoring the targets against all entities is what costs, so queries with as many targets share batches.
        self.sizes = np.maximum(1, np.diff(queries.target_offsets))
        self._node_offsets = queries.node_offsets
        self._nodes = queries.nodes
        is_anchor = queries.nodes >= 0

        owner = np.repeat(np.arange(len(queries)), np.diff(queries.edge_offsets))  # (M,)
        first_node = queries.node_offsets[owner]
        source, target = queries.edges[:, 0] + first_node, queries.edges[:, 2] + first_node
        turned = is_anchor[target] & ~is_anchor[source]
        source, target = np.where(turned, target, source), np.where(turned, source, target)
        relation = np.where(turned, (queries.edges[:, 1] + relation_count) % (2 * relation_count), queries.edges[:, 1])
        # Edges of one node side by side. Nodes count on from query to query, so edges of one query stay together.
        kept = np.flatnonzero(~is_anchor[target])
        kept = kept[np.argsort(target[kept], kind="stable")]
        owner, source, target = owner[kept], source[kept], target[kept]

        degrees = np.bincount(target, minlength=len(queries.nodes))
        lost = np.flatnonzero(~is_anchor & (degrees == 0))
        if len(lost):
            row = int(np.searchsorted(queries.node_offsets, lost[0], side="right")) - 1
            which = f"query {row:,}" if len(queries) > 1 else "the query"
            raise UnsupportedQuery(
                f"{which} has a variable that no constant leads to, so no state can be made",
                hint="turn its edges with query.dag, or ask supports() first",
            )
        depths = _depths(source, target, len(queries.nodes), int(np.diff(queries.node_offsets).max(initial=0)))

        self._groups = depths * (degrees.max(initial=0) + 1) + degrees  # nodes of equal depth and in-degree
        self._degrees = degrees
        self._edge_offsets = np.zeros(len(queries) + 1, np.int64)
        np.cumsum(np.bincount(owner, minlength=len(queries)), out=self._edge_offsets[1:])
        first_node = queries.node_offsets[owner]
        self._sources, self._ends = source - first_node, target - first_node
        self._relations = relation[kept].astype(np.int64)
        self._depths = depths

    def batch(self, rows: NDArray[np.integer]) -> PlanBatch:
        """The queries ``rows``, in this order, as one plan."""
        rows = np.asarray(rows, np.int64)
        _, nodes = members(self._node_offsets, rows)
        edge_owner, edges = members(self._edge_offsets, rows)
        counts = self._node_offsets[rows + 1] - self._node_offsets[rows]
        first_node = np.cumsum(counts) - counts
        groups = self._groups[nodes]
        order = np.argsort(groups, kind="stable")
        slots = np.empty(len(order), np.int64)
        slots[order] = np.arange(len(order))

        ends = slots[self._ends[edges] + first_node[edge_owner]]
        edge_order = np.argsort(ends, kind="stable")
        sources = torch.from_numpy(slots[self._sources[edges] + first_node[edge_owner]][edge_order])
        relations = torch.from_numpy(self._relations[edges][edge_order])

        starts = np.flatnonzero(np.diff(groups[order], prepend=-1))
        counts = np.diff(starts, append=len(order))
        heads = nodes[order[starts]] if len(order) else starts
        levels: list[Level] = []
        at = edge_at = 0
        for depth in range(1, int(self._depths[heads].max(initial=0)) + 1):
            of_level = np.flatnonzero(self._depths[heads] == depth)
            shape = tuple((int(counts[g]), int(self._degrees[heads[g]])) for g in of_level)
            edge_at, at = at, at + sum(n * k for n, k in shape)
            levels.append(Level(sources[edge_at:at], relations[edge_at:at], shape))

        values = self._nodes[nodes]
        return PlanBatch(
            torch.from_numpy(values[order[values[order] >= 0]].astype(np.int64)),
            tuple(levels),
            torch.from_numpy(slots[values == TARGET]),
            self._targets.batch(rows),
        )


def _depths(source: NDArray[np.integer], target: NDArray[np.integer], nodes: int, longest: int) -> NDArray[np.int64]:
    """(N,) edges on the longest way to each node; ``target`` does not fall. Cycles are refused."""
    depths = np.zeros(nodes, np.int64)
    starts = np.flatnonzero(np.diff(target, prepend=-1))
    for _ in range(longest + 1):
        if not len(starts):
            break
        found = np.maximum.reduceat(depths[source] + 1, starts)
        if (found == depths[target[starts]]).all():
            return depths
        depths[target[starts]] = found
    if len(starts):
        raise UnsupportedQuery(
            "a query has a cycle, so its variables cannot be computed one after the other", hint="ask supports() first"
        )
    return depths


def walk(
    batch: PlanBatch,
    anchors: torch.Tensor,
    project: Callable[[torch.Tensor, torch.Tensor], torch.Tensor],
    intersect: Callable[[torch.Tensor], torch.Tensor],
) -> torch.Tensor:
    """(V, W) states of the targets. ``anchors`` (A, W) are the states of the constants; ``project`` takes (m, W)
    states and (m,) relations to (m, W); ``intersect`` takes (n, k, W), k > 1, to (n, W)."""
    table = anchors
    for level in batch.levels:
        arrived = project(table.index_select(0, level.sources), level.relations)  # (m, W)
        parts = torch.split(arrived, [n * k for n, k in level.groups])
        reached = [
            part if k == 1 else intersect(part.view(n, k, -1)) for part, (n, k) in zip(parts, level.groups, strict=True)
        ]
        table = torch.cat([table, *reached])
    return table.index_select(0, batch.target_slots)


def by_matrix(states: torch.Tensor, relations: torch.Tensor, matrices: torch.Tensor) -> torch.Tensor:
    """(m, D) each state, (m, D), times the matrix of its relation, (m,): M q with M out of ``matrices`` (2R, D, D).

    A relation's matrix is multiplied once, with all of its states together."""
    if len(states) == 0:
        return states
    order = torch.argsort(relations, stable=True)
    used, counts = torch.unique_consecutive(relations[order], return_counts=True)
    # Unbound at once, so that the backward pass stacks one gradient instead of filling a whole one a relation.
    apart = matrices.unbind(0)
    parts = torch.split(states.index_select(0, order), counts.tolist())
    moved = [part @ apart[relation].t() for part, relation in zip(parts, used.tolist(), strict=True)]
    return torch.cat(moved).index_select(0, torch.argsort(order))


def walkable(query: BoundQuery, model: str, *, inverses: bool) -> Support:
    """Whether the states of all variables can be computed from the constants."""
    anchors = set(query.anchors)
    if not analyse(query).is_connected:
        return Support(
            False, f"{model} walks one connected query, and this one has separate parts", "ask the parts one at a time"
        )
    backwards = [edge for edge in query.edges if edge[2] in anchors and edge[0] not in anchors]
    if backwards and not inverses:
        return Support(
            False,
            f"{model} was built without inverse relations and cannot walk edges that end in a constant",
            "train with inverses",
        )
    # Directions alone matter from here on.
    edges = tuple(
        (o, r, s) if o in anchors else (s, r, o) for s, r, o in query.edges if not (s in anchors and o in anchors)
    )
    dag = analyse(replace(query, edges=edges))
    if not dag.is_acyclic:
        return Support(
            False,
            f"{model} computes one variable after the other, and this query has a cycle",
            "drop one pattern of the cycle, or ask in known mode",
        )
    lost = [node for node in dag.roots if node not in anchors]
    if lost:
        variable = f"?{query.names[lost[0]]}" if query.names else f"variable {lost[0]}"
        return Support(
            False,
            f"{model} starts at constants, and none of them leads to {variable}",
            "name an entity that the variable is joined to",
        )
    return Support(True)
