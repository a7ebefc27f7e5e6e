"""The best assignments of one large query, whatever its patterns form: cycles, many hidden variables, several targets.

A beam that goes through twenty variables one after the other loses its way: an entity that is best by the patterns
so far may have none of the links that come later. So every variable is told first what the rest of the query says
about its entities. Variables pass messages along the patterns, as in max-product: how likely the rest of the query
is beyond a pattern, for each entity at its end, where a link that the graph does not hold counts MISSING, whichever it
is. These messages read only stored links, so that a query of thirty patterns takes some hundredths of a second. On a
tree they are exact up to that estimate; on a cycle they are passed a few times round.

Then a beam fills the variables, the one with the fewest likely entities first, by the real truth of the links to what
is filled already and the messages of what is not. Every round looks at the links of at most ``width`` entities, so that
the time is bounded by the number of patterns. Parts of a query that only constants join are solved one by one.
"""

from __future__ import annotations

import heapq
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray

from biqe.exact.adjacency import Adjacency, adjacency
from biqe.exact.answers import checkpoint
from biqe.graph.knowledge_graph import Graph
from biqe.links.max_product import best
from biqe.links.truth import CERTAIN, Links
from biqe.query.bound import TARGET, BoundQuery, Edge
from biqe.query.dag import folded

MISSING = -3.0
"""What a message counts for a link that is not stored: one in twenty."""
SWEEPS = 3
"""Times that messages are passed inwards and outwards; the first is enough where there is no cycle."""
CLOSE = 1.5
"""Entities within this distance of the best are likely ones, when it is decided which variable is filled next."""
SPARE = 4
"""Where some of the best states may prove to be equal, this many times the width are looked at."""
IMPOSSIBLE = -1e4
"""In place of minus infinity, which has no difference to itself."""

Real = NDArray[np.float32]
Masks = Mapping[int, NDArray[np.bool_]]


@dataclass(frozen=True)
class Assignments:
    """Entities of all nodes of a query, best first, different in their targets."""

    nodes: NDArray[np.int32]
    """(k, nodes)"""
    truths: NDArray[np.float64]
    """(k,) natural logarithms."""


def best_assignments(
    query: BoundQuery, graph: Graph, links: Links, count: int, width: int, allowed: Masks | None = None
) -> Assignments:
    """The ``count`` best assignments of a query without loops, from a beam of ``width``. Patterns between two constants
    are not looked at. ``allowed`` are the entities that conditions leave a node."""
    edges, stands = folded(query, graph.relation_count)
    table = adjacency(graph)
    parts = [
        _Part(query, part, table, links, allowed or {}).solved(count, max(width, count))
        for part in _parts(query, [edge for edge in edges if edge[0] != edge[2]])
    ]
    found = np.tile(np.array(query.nodes, np.int32), (1, 1))
    truths = np.zeros(1)
    for variables, values, own in parts:
        chosen = _best_pairs(truths, own, count)
        found, truths = found[chosen[:, 0]], truths[chosen[:, 0]] + own[chosen[:, 1]]
        found[:, variables] = values[chosen[:, 1]]
    for node, other in stands.items():
        found[:, node] = found[:, other]
    return Assignments(found, truths)


def _parts(query: BoundQuery, edges: Sequence[Edge]) -> list[list[Edge]]:
    """Patterns with variables, those that share some together."""
    parts: list[tuple[set[int], list[Edge]]] = []
    for edge in edges:
        own = {node for node in (edge[0], edge[2]) if query.nodes[node] < 0}
        members = [edge]
        if not own:
            continue
        for part in [part for part in parts if not part[0].isdisjoint(own)]:
            parts.remove(part)
            own, members = own | part[0], part[1] + members
        parts.append((own, members))
    return [members for _, members in parts]


def _best_pairs(left: NDArray[np.float64], right: NDArray[np.float64], count: int) -> NDArray[np.int64]:
    """(k, 2) places of the ``count`` largest sums of two falling rows."""
    heap = [(-(left[0] + right[0]), 0, 0)] if len(left) and len(right) else []
    found: list[tuple[int, int]] = []
    while heap and len(found) < count:
        _, a, b = heapq.heappop(heap)
        found.append((a, b))
        if b + 1 < len(right):
            heapq.heappush(heap, (-(left[a] + right[b + 1]), a, b + 1))
        if b == 0 and a + 1 < len(left):
            heapq.heappush(heap, (-(left[a + 1] + right[0]), a + 1, 0))
    return np.array(found, np.int64).reshape(-1, 2)


class _Part:
    """Variables that patterns join, directly or through others."""

    def __init__(
        self, query: BoundQuery, edges: Sequence[Edge], table: Adjacency, links: Links, allowed: Masks
    ) -> None:
        self._query, self._table, self._links = query, table, links
        self._variables = sorted({node for s, _, o in edges for node in (s, o) if query.nodes[node] < 0})
        own = set(self._variables)
        self._between = [edge for edge in edges if edge[0] in own and edge[2] in own]
        self._at: dict[int, list[int]] = {node: [] for node in self._variables}
        for number, (subject, _, object_) in enumerate(self._between):
            self._at[subject].append(number)
            self._at[object_].append(number)
        self._unary = self._constants([edge for edge in edges if edge[0] not in own or edge[2] not in own], allowed)
        self._inbox: dict[tuple[int, int], Real] = {}
        """What a pattern says about the entities of one of its ends."""

    def _constants(self, edges: Sequence[Edge], allowed: Masks) -> dict[int, Real]:
        """(E,) for each variable: truth of its links to constants."""
        entities = self._links.entity_count
        unary = {node: np.zeros(entities, np.float32) for node in self._variables}
        if edges:
            asked = [self._from(edge, edge[0] if edge[0] not in unary else edge[2]) for edge in edges]
            heads = torch.tensor([self._query.nodes[start] for start, _, _ in asked])
            truth = self._links.to_all(heads, torch.tensor([direction for _, direction, _ in asked])).numpy()
            for (_, _, node), own in zip(asked, truth, strict=True):
                unary[node] += own
        for node, mask in allowed.items():
            if node in unary:
                unary[node][~mask] = IMPOSSIBLE
        return {node: np.maximum(own, IMPOSSIBLE) for node, own in unary.items()}

    def _from(self, edge: Edge, start: int) -> Edge:
        """The pattern as it is walked from one of its ends."""
        subject, relation, object_ = edge
        return edge if start == subject else (object_, int(self._table.inverse[relation]), subject)

    # Messages

    def _pass_messages(self) -> None:
        order = self._inwards()
        beliefs = {node: own.copy() for node, own in self._unary.items()}
        sweeps = 1 if len(self._between) < len(self._variables) else SWEEPS
        for _ in range(sweeps):
            for nodes in (order, order[::-1]):
                place = {node: number for number, node in enumerate(nodes)}
                for node in nodes:
                    for number in self._at[node]:
                        _, direction, goal = self._from(self._between[number], node)
                        if place[goal] > place[node]:
                            self._send(number, direction, node, goal, beliefs)

    def _send(self, number: int, direction: int, node: int, goal: int, beliefs: dict[int, Real]) -> None:
        said = beliefs[node] - self._inbox[number, node] if (number, node) in self._inbox else beliefs[node]
        table, inverse = self._table, int(self._table.inverse[direction])
        message = np.full(len(said), said.max() + MISSING, np.float32)
        first, last = table.relation_offsets[inverse], table.relation_offsets[inverse + 1]
        if last > first:
            start, stop = table.group_offsets[first], table.group_offsets[last]
            held = np.maximum.reduceat(said[table.neighbours[start:stop]], table.group_offsets[first:last] - start)
            sources = table.group_sources[first:last]
            message[sources] = np.maximum(message[sources], held)
        message -= message.max()
        if (number, goal) in self._inbox:
            beliefs[goal] -= self._inbox[number, goal]
        beliefs[goal] += message
        self._inbox[number, goal] = message

    def _inwards(self) -> list[int]:
        """The variables, those with few neighbours first, so that leaves speak before what they hang on."""
        left = {node: {n for number in self._at[node] for n in self._ends(number)} - {node} for node in self._variables}
        order: list[int] = []
        while left:
            node = min(left, key=lambda node: (len(left[node]), node))
            order.append(node)
            del left[node]
            for others in left.values():
                others.discard(node)
        return order

    def _ends(self, number: int) -> tuple[int, int]:
        return self._between[number][0], self._between[number][2]

    # The beam

    def solved(self, count: int, width: int) -> tuple[list[int], NDArray[np.int32], NDArray[np.float64]]:
        """The variables; (k, variables) entities of the best assignments; and their (k,) truths."""
        if len(self._variables) > 1:
            self._pass_messages()
        filled: list[int] = []
        states, truths = torch.zeros(1, 0, dtype=torch.int64), torch.zeros(1)
        likely = {node: self._likely(node) for node in self._variables}
        while len(filled) < len(self._variables):
            checkpoint()
            node = min(
                (node for node in self._variables if node not in filled),
                key=lambda node: (
                    -sum(other in filled for n in self._at[node] for other in self._ends(n) if other != node),
                    likely[node],
                    node,
                ),
            )
            states, truths = self._filled(node, filled, states, truths, width)
            filled.append(node)
        places = [filled.index(node) for node in self._variables]
        has_target = any(self._query.nodes[node] == TARGET for node in self._variables)
        order = truths.argsort(descending=True, stable=True)[: count if has_target else 1]
        order = order[truths[order] > IMPOSSIBLE / 2]
        values = states[order][:, places].numpy().astype(np.int32)
        return self._variables, values, truths[order].numpy().astype(np.float64)

    def _likely(self, node: int) -> int:
        """How many entities are nearly as likely as the best."""
        belief = self._unary[node] + sum(self._inbox[n, node] for n in self._at[node] if (n, node) in self._inbox)
        return int((belief >= belief.max() - CLOSE).sum())

    def _filled(
        self, node: int, filled: list[int], states: torch.Tensor, truths: torch.Tensor, width: int
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """The states with an entity at one more variable."""
        earlier, hopes = [], torch.zeros(self._links.entity_count)
        for number in self._at[node]:
            subject, _, object_ = self._between[number]
            other = object_ if subject == node else subject
            if other in filled:
                earlier.append(self._from(self._between[number], other))
            else:
                hopes += torch.from_numpy(self._inbox[number, node])
        own = torch.from_numpy(self._unary[node])
        decides = self._query.nodes[node] == TARGET or len(earlier) < len(self._at[node])
        if not decides:
            return self._completed(node, earlier, filled, states, truths, own)
        total = self._linked(earlier, filled, states) + own  # (s or 1, E)
        total = total + truths.unsqueeze(1)
        ranked = (total + hopes).flatten().unsqueeze(0)
        where = best(ranked, SPARE * width)[1][0]
        rows, entities = where.div(total.shape[1], rounding_mode="floor"), where % total.shape[1]
        states, truths = torch.cat([states[rows], entities.unsqueeze(1)], 1), total.flatten()[where]
        kept = self._different(states, [*filled, node])[:width]
        return states[kept], truths[kept]

    def _linked(self, earlier: Sequence[Edge], filled: list[int], states: torch.Tensor) -> torch.Tensor:
        """(s, E) truth of the links from the states to every entity; (1, E) of zeros where there are none."""
        total = torch.zeros(1, self._links.entity_count)
        for start, direction, _ in earlier:
            different, which = states[:, filled.index(start)].unique(return_inverse=True)
            total = total + self._links.to_all(different, torch.full_like(different, direction))[which]
        return total

    def _completed(
        self,
        node: int,
        earlier: Sequence[Edge],
        filled: list[int],
        states: torch.Tensor,
        truths: torch.Tensor,
        own: torch.Tensor,
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """The states with the best entity at a hidden variable that leads no further. Where stored links are certain,
        an entity that they all lead to is that, and no link has to be judged."""
        entities, gained = torch.full((len(states),), -1), torch.zeros(len(states))
        if self._links.certain:
            for number, state in enumerate(states.tolist()):
                held = None
                for start, direction, _ in earlier:
                    tails = self._tails(state[filled.index(start)], direction)
                    held = tails if held is None else np.intersect1d(held, tails, assume_unique=True)
                if held is not None:
                    held = held[self._unary[node][held] == CERTAIN]
                    if len(held):
                        entities[number] = int(held[0])
        left = torch.nonzero(entities < 0).squeeze(1)
        if len(left):
            total = self._linked(earlier, filled, states[left]) + own
            gained[left], entities[left] = total.max(1)
        states, truths = torch.cat([states, entities.unsqueeze(1)], 1), truths + gained
        order = truths.argsort(descending=True, stable=True)
        kept = order[self._different(states[order], [*filled, node])]
        return states[kept], truths[kept]

    def _tails(self, head: int, direction: int) -> NDArray[np.int32]:
        """Stored tails of a head and a direction, sorted."""
        table = self._table
        first, last = table.relation_offsets[direction], table.relation_offsets[direction + 1]
        group = first + int(np.searchsorted(table.group_sources[first:last], head))
        if group == last or table.group_sources[group] != head:
            return table.neighbours[:0]
        return table.neighbours[table.group_offsets[group] : table.group_offsets[group + 1]]

    def _different(self, states: torch.Tensor, filled: list[int]) -> torch.Tensor:
        """Places of the states, which stand best first, that differ from all before them in their targets and in what
        leads on."""
        matters = [
            place
            for place, node in enumerate(filled)
            if self._query.nodes[node] == TARGET
            or any(other not in filled for number in self._at[node] for other in self._ends(number))
        ]
        if not matters:
            return torch.zeros(1, dtype=torch.int64)
        _, first = np.unique(states[:, matters].numpy(), axis=0, return_index=True)
        return torch.from_numpy(np.sort(first))
