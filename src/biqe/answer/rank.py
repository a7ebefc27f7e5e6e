"""Ranked rows for any pattern: what a model cannot read in one piece is asked in pieces.

apart     parts of a query that nothing joins are asked one by one; a row is one row of each, its probability the
          product. A part that the graph holds counts as 1.
cycle     a pattern is left out so that the model can read the rest; the rows found are then weighed with the
          probability of the left-out link between their own entities, 1 where the graph holds it.
separate  a model that cannot tell targets apart is asked for one at a time, and their distributions are multiplied.

Only a query that none of these makes readable is refused, with the model's own reason.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import combinations

import numpy as np
from numpy.typing import NDArray

from biqe.answer.evidence import Evidence, EvidenceFinder, IdLink
from biqe.answer.joint import Joint, Tuples, decode
from biqe.answer.predicted import Predictor
from biqe.answer.ranked import Ranked, product
from biqe.errors import UnsupportedQuery
from biqe.exact.answers import holds, tuples
from biqe.graph.knowledge_graph import Graph
from biqe.query.bound import HIDDEN, TARGET, BoundQuery, Edge
from biqe.query.dag import components

RECHECKED = 200
"""Rows at least that are weighed with the links of left-out patterns."""
EXCLUDED = 100_000
"""Rows of one part that are left out as known at once; where there are more, ranked rows are looked up one by one."""
LEFT_OUT = 2
"""Patterns at most that are left out of a cyclic query."""
TRIED = 64
"""Choices of left-out patterns that are tried."""


Passes = Callable[[BoundQuery, Tuples], NDArray[np.bool_]]
"""Which rows of a query pass its conditions."""


@dataclass(frozen=True)
class Found:
    """Rows that a model proposes, most probable first."""

    tuples: Tuples
    """(n, T) in SELECT order."""
    probabilities: NDArray[np.float64]
    marginals: NDArray[np.float32]
    """(T, E) log-probabilities of each target alone."""
    log_shares: NDArray[np.float64] | None = None
    """(n,) the model's own figures before calibration; None where the query was asked in pieces."""
    remark: str = ""
    """What a user has to know about how the rows were found, if anything."""


def rank(graph: Graph, query: BoundQuery, predictor: Predictor, exclude: Tuples, count: int, joint: Joint) -> Found:
    """The ``count`` best rows without those in ``exclude``, the rows that the graph holds."""
    try:
        prepared = predictor.prepare(query)
    except UnsupportedQuery as refusal:
        return _in_pieces(graph, query, predictor, exclude, count, joint, refusal)
    marginals = predictor.log_probabilities([prepared])
    if not np.isfinite(marginals.max(axis=1)).all():  # a condition leaves no entity at all
        return _nothing(marginals)
    decoded = decode(predictor, query, marginals, exclude, count=count, joint=joint)
    found = _found(predictor, query, decoded, marginals, len(exclude))
    return replace(found, log_shares=decoded.log_probabilities[np.isfinite(decoded.log_probabilities)])


def _found(
    predictor: Predictor, query: BoundQuery, ranked: Ranked, marginals: NDArray[np.float32], known: int
) -> Found:
    finite = np.isfinite(ranked.log_probabilities)
    scores = ranked.log_probabilities[finite]
    chances = predictor.probabilities(scores, targets=len(query.targets), known=known)
    # Rounding in single precision may carry a share a little over 1.
    return Found(ranked.tuples[finite], np.minimum(chances, 1.0), marginals)


def _nothing(marginals: NDArray[np.float32]) -> Found:
    return Found(np.zeros((0, len(marginals)), np.int32), np.zeros(0), marginals)


def _in_pieces(
    graph: Graph,
    query: BoundQuery,
    predictor: Predictor,
    exclude: Tuples,
    count: int,
    joint: Joint,
    refusal: UnsupportedQuery,
) -> Found:
    parts = components(len(query.nodes), query.edges)
    if len(parts) > 1:
        return _apart(graph, query, parts, predictor, exclude, count, joint)
    reduced = _readable(query, predictor)
    if reduced is not None:
        return _rechecked(graph, query, *reduced, predictor, exclude, count, joint)
    if len(query.targets) < 2:
        raise refusal
    # The others hidden, each target can perhaps be asked for by itself.
    try:
        prepared = [predictor.prepare(_alone(query, target)) for target in query.targets]
    except UnsupportedQuery:
        raise refusal from None
    marginals = predictor.log_probabilities(prepared)
    if not np.isfinite(marginals.max(axis=1)).all():
        return _nothing(marginals)
    ranked = product(marginals, exclude, count=count, injective=joint.injective)
    found = _found(predictor, query, ranked, marginals, len(exclude))
    return replace(found, remark=_one_by_one(query, predictor))


def _one_by_one(query: BoundQuery, predictor: Predictor) -> str:
    *first, last = [f"?{query.names[node]}" if query.names else f"unknown {node}" for node in query.targets]
    return (
        f"{', '.join(first)} and {last} were asked for one by one and their probabilities multiplied, because "
        f"{predictor.name} cannot predict them together"
    )


def _alone(query: BoundQuery, target: int) -> BoundQuery:
    nodes = tuple(HIDDEN if value == TARGET and node != target else value for node, value in enumerate(query.nodes))
    return replace(query, nodes=nodes, targets=(target,))


# Parts that nothing joins


def _apart(
    graph: Graph,
    query: BoundQuery,
    parts: list[list[int]],
    predictor: Predictor,
    exclude: Tuples,
    count: int,
    joint: Joint,
) -> Found:
    marginals = np.zeros((len(query.targets), graph.entity_count), np.float32)
    lists: list[tuple[list[int], list[Listed], list[Listed]]] = []
    factor, all_hold = 1.0, True
    remarks: list[str] = []
    for part in parts:
        piece = _piece(query, part)
        columns = [column for column, node in enumerate(query.targets) if node in part]
        if not columns:
            if not holds(graph, piece):
                all_hold = False
                factor *= closed(graph, piece, predictor, joint)[0]
            continue
        known, found = _known_and_ranked(graph, piece, predictor, count, joint)
        marginals[columns] = found.marginals
        remarks.append(found.remark)
        predicted = list(zip(found.probabilities.tolist(), map(tuple, found.tuples.tolist()), strict=True))
        lists.append((columns, [(1.0, tuple(row)) for row in known.tolist()], predicted))
    excluded = set(map(tuple, exclude.tolist()))
    rows: list[list[int]] = []
    chances: list[float] = []
    for chance, choice in _joined(lists, all_hold):
        if len(rows) == count:
            break
        row = [0] * len(query.targets)
        for (columns, _, _), values in zip(lists, choice, strict=True):
            for column, value in zip(columns, values, strict=True):
                row[column] = value
        if tuple(row) not in excluded:
            rows.append(row)
            chances.append(chance * factor)
    tuples_ = np.array(rows, np.int32).reshape(-1, len(query.targets))
    return Found(tuples_, np.array(chances), marginals, remark=together(remarks))


def _known_and_ranked(
    graph: Graph, piece: BoundQuery, predictor: Predictor, count: int, joint: Joint
) -> tuple[Tuples, Found]:
    """The first ``count`` rows of one part that the graph holds and conditions allow, and as many that it does not
    hold."""
    known = tuples(graph, piece, limit=EXCLUDED + 1)
    some_more = count if len(known) > EXCLUDED else 0
    found = rank(graph, piece, predictor, known, count + some_more, joint)
    if some_more:
        # Not all known rows are at hand, so each ranked row is looked up.
        new = [place for place, row in enumerate(found.tuples.tolist()) if not holds(graph, _with(piece, row))][:count]
        found = replace(found, tuples=found.tuples[new], probabilities=found.probabilities[new])
    return known[predictor.permits(piece, known)][:count], found


def _with(query: BoundQuery, row: Sequence[int]) -> BoundQuery:
    """The query with its targets filled."""
    nodes = list(query.nodes)
    for node, entity in zip(query.targets, row, strict=True):
        nodes[node] = entity
    return replace(query, nodes=tuple(nodes), targets=())


Listed = tuple[float, tuple[int, ...]]
"""A row of one part and its probability."""


def _joined(
    lists: Sequence[tuple[list[int], list[Listed], list[Listed]]], all_hold: bool
) -> Iterator[tuple[float, tuple[tuple[int, ...], ...]]]:
    """One row of each part, the largest product first; without those whose every part is known, if ``all_hold``."""
    everything = [known + predicted for _, known, predicted in lists]
    if not all_hold:
        yield from _products(everything)
        return
    # The first part that is predicted is the first, or the second, ...: so no row of known parts alone comes up.
    ways = [
        _products([*(known for _, known, _ in lists[:first]), lists[first][2], *everything[first + 1 :]])
        for first in range(len(lists))
    ]
    yield from heapq.merge(*ways, key=lambda pair: -pair[0])


def _products(lists: Sequence[Sequence[Listed]]) -> Iterator[tuple[float, tuple[tuple[int, ...], ...]]]:
    """One entry of each list, the largest product first; the lists are sorted so."""
    if not all(lists):
        return
    start = (0,) * len(lists)
    heap = [(-float(np.prod([entries[0][0] for entries in lists])), start)]
    seen = {start}
    while heap:
        cost, ranks = heapq.heappop(heap)
        yield -cost, tuple(entries[place][1] for entries, place in zip(lists, ranks, strict=True))
        for number, entries in enumerate(lists):
            following = (*ranks[:number], ranks[number] + 1, *ranks[number + 1 :])
            if following[number] < len(entries) and following not in seen:
                seen.add(following)
                chance = float(np.prod([entries[p][0] for entries, p in zip(lists, following, strict=True)]))
                heapq.heappush(heap, (-chance, following))


def _piece(query: BoundQuery, part: Sequence[int]) -> BoundQuery:
    """The query of some nodes alone."""
    number = {node: place for place, node in enumerate(part)}
    return BoundQuery(
        tuple(query.nodes[node] for node in part),
        tuple((number[s], relation, number[o]) for s, relation, o in query.edges if s in number),
        tuple(number[node] for node in query.targets if node in number),
        tuple(query.names[node] for node in part) if query.names else (),
    )


# Cycles


def _readable(query: BoundQuery, predictor: Predictor) -> tuple[BoundQuery, tuple[Edge, ...]] | None:
    """The query without as few patterns as make it readable, its ends of left-out patterns targets; and those."""
    edges = tuple(dict.fromkeys(query.edges))
    # Hidden ends have to be guessed before their link can be weighed, so patterns without them are left out first.
    order = sorted(edges, key=lambda edge: (edge[0] != edge[2], _hidden_ends(query, edge), -edges.index(edge)))
    tried = 0
    for size in range(1, LEFT_OUT + 1):
        for left_out in combinations(order, size):
            kept = tuple(edge for edge in edges if edge not in left_out)
            touched = {node for edge in kept for node in (edge[0], edge[2])}
            if not kept or touched != set(range(len(query.nodes))):
                continue
            tried += 1
            if tried > TRIED:
                return None
            ends = [node for edge in left_out for node in (edge[0], edge[2]) if query.nodes[node] == HIDDEN]
            nodes = tuple(TARGET if node in ends else value for node, value in enumerate(query.nodes))
            reduced = replace(query, nodes=nodes, edges=kept, targets=(*query.targets, *dict.fromkeys(ends)))
            try:
                predictor.prepare(reduced)
            except UnsupportedQuery:
                continue
            return reduced, left_out
    return None


def _hidden_ends(query: BoundQuery, edge: Edge) -> int:
    return sum(query.nodes[node] == HIDDEN for node in (edge[0], edge[2]))


def _rechecked(
    graph: Graph,
    query: BoundQuery,
    reduced: BoundQuery,
    left_out: tuple[Edge, ...],
    predictor: Predictor,
    exclude: Tuples,
    count: int,
    joint: Joint,
) -> Found:
    """Rows of the readable query, weighed with the links of the patterns that were left out."""
    none = np.zeros((0, len(reduced.targets)), np.int32)
    # Known rows compete too: they are taken out at the end, so as many more are listed.
    found = rank(graph, reduced, predictor, none, max(RECHECKED, 4 * count) + len(exclude), joint)
    finder = EvidenceFinder(graph, query)
    chances = found.probabilities.copy()
    for edge in left_out:
        links = [finder.fill(edge, _with(reduced, row).nodes) for row in found.tuples.tolist()]
        chances *= weights(graph, links, predictor)
    known = set(map(tuple, exclude.tolist()))
    best: dict[tuple[int, ...], float] = {}
    for row, chance in zip(found.tuples[:, : len(query.targets)].tolist(), chances.tolist(), strict=True):
        key = tuple(row)
        if key not in known and chance > best.get(key, 0.0):
            best[key] = chance
    ordered = sorted(best.items(), key=lambda item: (-item[1], item[0]))[:count]
    return Found(
        np.array([row for row, _ in ordered], np.int32).reshape(-1, len(query.targets)),
        np.array([chance for _, chance in ordered]),
        found.marginals[: len(query.targets)],
        remark=found.remark,
    )


def together(remarks: Sequence[str]) -> str:
    """Several remarks as one, each said once."""
    return "; ".join(dict.fromkeys(filter(None, remarks)))


def weights(graph: Graph, links: Sequence[IdLink], predictor: Predictor) -> NDArray[np.float64]:
    """(n,) 1 for a link that the graph holds, the model's probability for any other."""
    finder = EvidenceFinder(graph, BoundQuery((), (), ()))
    missing = [link for link in dict.fromkeys(links) if not finder.holds(link)]
    chances = dict(zip(missing, predictor.link_probabilities(missing, graph), strict=True))
    return np.array([chances.get(link, 1.0) for link in links])


# ASK


def closed(
    graph: Graph,
    query: BoundQuery,
    predictor: Predictor,
    joint: Joint,
    *,
    passes: Passes | None = None,
    count: int = 50,
) -> tuple[float, Evidence]:
    """How probable it is that a query which the graph does not hold holds after all, and what that rests on.

    Without variables it is the product of the probabilities of its links, 1 for those that the graph holds. With
    variables, it is that of the best row which the model finds for them and which ``passes``: one way in which it
    could hold, so that no probability is counted twice.
    """
    variables = tuple(node for node, value in enumerate(query.nodes) if value < 0)
    everything = replace(query, nodes=tuple(max(value, TARGET) for value in query.nodes), targets=variables)
    rows = np.zeros((1, 0), np.int32)
    if variables:
        none = np.zeros((0, len(variables)), np.int32)
        rows = rank(graph, everything, predictor, none, count, joint).tuples
    if passes is not None:
        rows = rows[passes(everything, rows)]
    finder = EvidenceFinder(graph, everything)
    found = [finder.evidence(row) for row in rows.tolist()]
    links = list(dict.fromkeys(link for evidence in found for link in evidence.missing))
    chances = dict(zip(links, predictor.link_probabilities(links, graph), strict=True))
    best = max(found, key=lambda evidence: np.prod([chances[link] for link in evidence.missing]), default=None)
    if best is None:
        return 0.0, Evidence()
    return float(np.prod([chances[link] for link in best.missing])), best
