"""Where the nodes and the links of a query stand in a picture: left to right, nothing on top of anything else.

A layered layout (Sugiyama et al. 1981). Nodes stand in columns by depth, and every link has a slot of its own in each
column between its ends, the label in the middle one; so neither labels nor lines can cross a box. Within a column the
slots are ordered to avoid crossings (barycentres, both ways) and moved as near to their neighbours as the space between
them allows (isotonic regression).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from biqe.query.bound import BoundQuery
from biqe.query.dag import analyse, orient

COLUMN_GAP, ROW_GAP, PASSING = 30.0, 14.0, 12.0
"""Between columns, between slots of a column; height of a slot through which a line only passes."""
SWEEPS = 6

Size = tuple[float, float]
"""Width and height."""
Point = tuple[float, float]
Pair = tuple[int, int]
"""Subject and object node of a link."""
_Slot = tuple[str, int, int]
"""("node", node, 0) or ("link", link, column)."""


@dataclass(frozen=True)
class Layout:
    """Places in a picture whose upper left corner is (0, 0)."""

    width: float
    height: float
    nodes: tuple[Point, ...]
    """Middle of each node's box."""
    labels: tuple[Point, ...]
    """Middle of each link's label."""
    lines: tuple[tuple[tuple[Point, ...], ...], ...]
    """For each link, the lines from its subject to its label and from there to its object."""


def depths(query: BoundQuery, relation_count: int) -> tuple[int, ...]:
    """The column of each node: constants on the left, what they lead to further right; a constant stands next to the
    first node that it leads to. The ends of a link are in different columns, unless it joins a node to itself."""
    loops_aside = BoundQuery(query.nodes, tuple(edge for edge in query.edges if edge[0] != edge[2]), query.targets)
    dag = analyse(orient(loops_aside, relation_count))
    if not dag.is_acyclic:
        # Edges from smaller to larger numbers cannot close a cycle.
        edges = tuple((min(s, o), relation, max(s, o)) for s, relation, o in loops_aside.edges)
        dag = analyse(BoundQuery(query.nodes, edges, query.targets))
    found = list(dag.depths)
    for root in dag.roots:
        behind = [found[object_] for subject, _, object_ in dag.query.edges if subject == root]
        found[root] = min(behind, default=1) - 1
    return tuple(found)


def place(depth: Sequence[int], pairs: Sequence[Pair], nodes: Sequence[Size], labels: Sequence[Size]) -> Layout:
    """The layout of a query graph: column of each node, ends of each link, sizes of boxes and labels."""
    chains = [_chain(depth, pair, link) for link, pair in enumerate(pairs)]
    columns: dict[int, list[_Slot]] = {2 * d: [] for d in depth}
    for node, d in enumerate(depth):
        columns[2 * d].append(("node", node, 0))
    for chain in chains:
        for slot in chain[1:-1]:
            columns.setdefault(slot[2], []).append(slot)
    neighbours: dict[_Slot, list[_Slot]] = {slot: [] for column in columns.values() for slot in column}
    for chain in chains:
        for one, other in zip(chain[:-1], chain[1:], strict=True):
            neighbours[one].append(other)
            neighbours[other].append(one)
    middle = {chain[len(chain) // 2]: link for link, chain in enumerate(chains)}

    def size(slot: _Slot) -> Size:
        if slot[0] == "node":
            return nodes[slot[1]]
        return labels[middle[slot]] if slot in middle else (0.0, PASSING)

    numbers = sorted(columns)
    order = _order([columns[number] for number in numbers], neighbours)
    heights = _heights(order, neighbours, {slot: size(slot)[1] for slot in neighbours})
    widths = [max(size(slot)[0] for slot in column) for column in order]
    lefts = np.concatenate([[0.0], np.cumsum(np.array(widths) + COLUMN_GAP)])
    spans = {slot: (lefts[c], lefts[c] + widths[c]) for c, column in enumerate(order) for slot in column}
    centre = {slot: ((left + right) / 2, heights[slot]) for slot, (left, right) in spans.items()}
    ports = _ports(neighbours, centre, size)
    lines = []
    for (subject, object_), chain in zip(pairs, chains, strict=True):
        segments = [
            _segment((one, other), spans, centre, size, ports, is_back=subject == object_ and number == 1)
            for number, (one, other) in enumerate(zip(chain[:-1], chain[1:], strict=True))
        ]
        half = len(chain) // 2
        first, second = _joined(segments[:half]), _joined(segments[half:])
        if depth[subject] > depth[object_]:
            first, second = second[::-1], first[::-1]
        lines.append((first, second))
    by_link = {link: slot for slot, link in middle.items()}
    return Layout(
        float(lefts[-1] - COLUMN_GAP),
        max(heights[slot] + size(slot)[1] / 2 for slot in heights),
        tuple(centre["node", node, 0] for node in range(len(depth))),
        tuple(centre[by_link[link]] for link in range(len(pairs))),
        tuple(lines),
    )


def _chain(depth: Sequence[int], pair: Pair, link: int) -> list[_Slot]:
    """The slots of a link from its left end to its right end; of a loop, from its node to its label and back."""
    left, right = sorted(pair, key=lambda node: depth[node])
    first, last = 2 * depth[left], 2 * depth[right]
    if left == right:
        last = first + 2
    inner: list[_Slot] = [("link", link, column) for column in range(first + 1, last)]
    return [("node", left, 0), *inner, ("node", right, 0)]


def _order(columns: list[list[_Slot]], neighbours: dict[_Slot, list[_Slot]]) -> list[list[_Slot]]:
    """The slots of each column from the top down, with few crossings."""
    best = columns = [list(column) for column in columns]
    fewest = _crossings(columns, neighbours)
    for sweep in range(SWEEPS):
        columns = [list(column) for column in columns]
        numbers = range(1, len(columns)) if sweep % 2 == 0 else range(len(columns) - 2, -1, -1)
        for number in numbers:
            before = columns[number - 1 if sweep % 2 == 0 else number + 1]
            rank = {slot: place for place, slot in enumerate(before)}
            own = {slot: place for place, slot in enumerate(columns[number])}

            def barycentre(slot: _Slot, rank: dict[_Slot, int] = rank, own: dict[_Slot, int] = own) -> float:
                ranks = [rank[other] for other in neighbours[slot] if other in rank]
                return sum(ranks) / len(ranks) if ranks else own[slot]

            columns[number].sort(key=barycentre)
        crossings = _crossings(columns, neighbours)
        if crossings < fewest:
            best, fewest = columns, crossings
    return best


def _crossings(columns: list[list[_Slot]], neighbours: dict[_Slot, list[_Slot]]) -> int:
    """Pairs of lines between two columns that cross."""
    total = 0
    for left, right in zip(columns[:-1], columns[1:], strict=True):
        rank = {slot: place for place, slot in enumerate(right)}
        ends = [(place, rank[other]) for place, slot in enumerate(left) for other in neighbours[slot] if other in rank]
        total += sum((a - c) * (b - d) < 0 for number, (a, b) in enumerate(ends) for c, d in ends[:number])
    return total


def _heights(
    columns: list[list[_Slot]], neighbours: dict[_Slot, list[_Slot]], tall: dict[_Slot, float]
) -> dict[_Slot, float]:
    """Middle of each slot, from the top of the picture."""
    middle: dict[_Slot, float] = {}
    for column in columns:
        tops = np.concatenate([[0.0], np.cumsum([tall[slot] + ROW_GAP for slot in column])])
        for slot, top in zip(column, tops[:-1], strict=True):
            middle[slot] = float(top + tall[slot] / 2 - (tops[-1] - ROW_GAP) / 2)
    for sweep in range(2 * SWEEPS):
        for column in columns if sweep % 2 == 0 else columns[::-1]:
            wanted = [np.mean([middle[n] for n in neighbours[slot]] or [middle[slot]]) for slot in column]
            apart = [(tall[one] + tall[two]) / 2 + ROW_GAP for one, two in zip(column[:-1], column[1:], strict=True)]
            offsets = np.concatenate([[0.0], np.cumsum(apart)])
            for slot, height in zip(column, _ascending(np.array(wanted) - offsets) + offsets, strict=True):
                middle[slot] = float(height)
    top = min(middle[slot] - tall[slot] / 2 for slot in middle)
    return {slot: height - top for slot, height in middle.items()}


def _ascending(wanted: np.ndarray) -> np.ndarray:
    """The ascending numbers nearest to ``wanted`` in squares: neighbours out of order share their mean."""
    blocks: list[tuple[float, int]] = []
    for value in wanted.tolist():
        mean, count = value, 1
        while blocks and blocks[-1][0] > mean:
            other, size = blocks.pop()
            mean, count = (mean * count + other * size) / (count + size), count + size
        blocks.append((mean, count))
    return np.repeat([mean for mean, _ in blocks], [count for _, count in blocks])


_Ports = dict[tuple[_Slot, _Slot, bool], float]
"""From a node, the slot at the other end of a line, and whether it is the way back of a loop, to the distance above or
below the node's middle at which the line meets the box."""


def _ports(neighbours: dict[_Slot, list[_Slot]], centre: dict[_Slot, Point], size: Callable[[_Slot], Size]) -> _Ports:
    """How far from the middle of a node each of its lines begins, so that they do not run into one point."""
    found: _Ports = {}
    for slot, others in neighbours.items():
        if slot[0] != "node":
            continue
        for is_right in (False, True):
            side = [other for other in dict.fromkeys(others) if (centre[other][0] > centre[slot][0]) == is_right]
            # A loop leaves a node and comes back to it.
            ends = [(centre[other][1], other, back) for other in side for back in range(others.count(other))]
            ends.sort()
            room = min(12.0, (size(slot)[1] - 12.0) / max(1, len(ends) - 1))
            for place, (_, other, back) in enumerate(ends):
                found[slot, other, bool(back)] = (place - (len(ends) - 1) / 2) * room
    return found


def _segment(
    ends: tuple[_Slot, _Slot],
    spans: dict[_Slot, tuple[float, float]],
    centre: dict[_Slot, Point],
    size: Callable[[_Slot], Size],
    ports: _Ports,
    *,
    is_back: bool,
) -> list[Point]:
    """Points from one slot to the other, in the next column or, on the way back of a loop, the one before."""
    points = []
    leftmost = min(ends, key=lambda slot: centre[slot][0])
    for slot, other in (ends, ends[::-1]):
        x, y = centre[slot]
        y += ports.get((slot, other, is_back), 6.0 if is_back else 0.0)
        half = size(slot)[0] / 2
        edge, border = (x + half, spans[slot][1]) if slot == leftmost else (x - half, spans[slot][0])
        points.append(((edge, y), (border, y)))
    (start, out), (end, into) = points
    share = np.linspace(0.0, 1.0, 17)
    smooth = share * share * (3 - 2 * share)
    curve = [
        (out[0] + a * (into[0] - out[0]), out[1] + b * (into[1] - out[1]))
        for a, b in zip(share.tolist(), smooth.tolist(), strict=True)
    ]
    if out[1] == into[1]:
        curve = [out, into]
    return [start, *curve, end]


def _joined(segments: Sequence[Sequence[Point]]) -> tuple[Point, ...]:
    """Segments one after the other; a point that repeats is one point."""
    points = [point for segment in segments for point in segment]
    return tuple(point for number, point in enumerate(points) if number == 0 or point != points[number - 1])
