"""Ranked rows for any pattern: what a model cannot read in one piece is asked in pieces.

apart     parts of a query that nothing joins are asked one by one; a row is one row of each, its probability the
          product. A part that the graph holds counts as 1.
cycle     a pattern is left out so that the model can read the rest; the rows found are then weighed with the
          probability of the left-out link between their own entities, 1 where the graph holds it.
separate  targets that a model cannot predict together are asked for one at a time, and their distributions are
          multiplied.
values    a query without constants, such as ``?c :located_on ?r VALUES ?r { :Rhine :Main }``, is asked once for each
          entity that the conditions leave a variable, with that entity as a constant.

A part of the question that must not hold, and may hold after all, counts against a row (``Asking.against``).

Only a query that none of these makes readable is refused, with the model's own reason.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import combinations

import numpy as np
from numpy.typing import NDArray

from biqe.errors import UnsupportedQuery
from biqe.exact.answers import holds, tuples
from biqe.exact.filters import Filters, columns_of
from biqe.graph.knowledge_graph import Graph
from biqe.predict.conditional import alone, filled_in, subquery
from biqe.predict.config import Joint
from biqe.predict.evidence import Evidence, EvidenceSearch, IdLink
from biqe.predict.joint import decode, product
from biqe.predict.predictor import Allowed, Predictor
from biqe.predict.rows import Against, Entities, Listed, Marginals, Rows, join_notes, stacked
from biqe.query.bound import HIDDEN, TARGET, BoundQuery, Edge, forward
from biqe.query.dag import components

STARTS = 48
"""Entities of one unknown that are asked about one by one, where a query names none."""
RECHECKED = 200
"""Rows at least that are weighed with the links of left-out patterns."""
EXCLUDED = 100_000
"""Known rows of one part that are left out at once; where there are more, ranked rows are looked up one by one."""
LEFT_OUT = 2
"""Patterns at most that are left out of a cyclic query."""
TRIED = 64
"""Choices of left-out patterns that are tried."""
FEW = 16
"""Entities at most that a query without constants is asked for one by one; and fewer than half of the graph's."""
WAYS = 50
"""Assignments of the variables of ASK that are compared."""

Passes = Callable[[BoundQuery, Entities], NDArray[np.bool_]]
"""Which rows of a query pass its conditions."""


@dataclass(frozen=True)
class Asking:
    """A question put to a model: on which graph, of which predictor, and how rows are found."""

    graph: Graph
    predictor: Predictor
    joint: Joint

    def rank_with_filters(self, query: BoundQuery, exclude: Entities, count: int, filters: Filters) -> Rows:
        """As ``rank``, among the entities that the conditions leave."""
        found = []
        for allowed, column in values_questions(query, filters):
            note = ""
            if column is None and self.predictor.links is not None and not any(value >= 0 for value in query.nodes):
                allowed, column = self._likely_starts(query, allowed)
                if column is not None:
                    name = query.names[query.targets[column]]
                    note = f"the question names no entity, so the {STARTS} likeliest ?{name} were tried"
            predictor = self.predictor.restricted(allowed) if allowed else self.predictor
            asking = replace(self, predictor=predictor)
            if column is None:
                found.append(asking.rank(query, exclude, count))
            else:
                rows = asking._with_values(query, exclude, count, allowed, column)
                found.append(replace(rows, note=join_notes([rows.note, note])))
        if len(found) == 1:
            return found[0]
        return stacked(found, _mean([part.marginals for part in found])).best(count)

    def _likely_starts(self, query: BoundQuery, allowed: Allowed) -> tuple[Allowed, int | None]:
        """Where a query names no entity: the entities of one of its unknowns that are asked about one by one, because
        they fit its patterns best and have few such links yet, and the column of that unknown; None where there is no
        second unknown."""
        links, relations = self.predictor.links, self.graph.relation_count
        assert links is not None
        if len(query.targets) < 2 or not query.names:
            return allowed, None
        first = query.targets[0]
        directions = [r for s, r, _ in query.edges if s == first] + [
            (r + relations) % (2 * relations) for _, r, o in query.edges if o == first
        ]
        fit = sum((links.openness(direction) for direction in directions), np.zeros(self.graph.entity_count))
        mask = allowed.get(query.names[first])
        if mask is not None:
            fit = np.where(mask, fit, -np.inf)
        likely = np.zeros(len(fit), bool)
        likely[np.argsort(-fit, kind="stable")[:STARTS]] = True
        return {**allowed, query.names[first]: likely if mask is None else likely & mask}, 0

    def rank(self, query: BoundQuery, exclude: Entities | None, count: int) -> Rows:
        """The ``count`` best rows without those in ``exclude``, the rows that the graph holds; None: these compete,
        too."""
        try:
            prepared = self.predictor.prepare(query)
        except UnsupportedQuery as refusal:
            return self._in_pieces(query, exclude, count, refusal)
        if self.predictor.links is not None:
            from biqe.predict.link_search import search_rows  # torch

            return search_rows(self.predictor, self.graph, query, exclude, count, self.joint.width)
        marginals = self.predictor.log_probabilities([prepared])
        if not np.isfinite(marginals.max(axis=1)).all():  # a condition leaves no entity at all
            return Rows.empty(len(marginals), marginals=lambda: marginals)
        found = decode(
            self.predictor, query, prepared, marginals, _listed(query, exclude), count=count, joint=self.joint
        )
        return replace(found.possible(), marginals=lambda: marginals)

    def _in_pieces(self, query: BoundQuery, exclude: Entities | None, count: int, refusal: UnsupportedQuery) -> Rows:
        parts = components(len(query.nodes), query.edges)
        if len(parts) > 1:
            return self._apart(query, parts, exclude, count)
        reduced = self._readable(query)
        if reduced is not None:
            return self._rechecked(query, *reduced, exclude, count)
        if len(query.targets) < 2:
            raise refusal
        try:
            prepared = [self.predictor.prepare(alone(query, target)) for target in query.targets]
        except UnsupportedQuery:
            raise refusal from None
        marginals = self.predictor.log_probabilities(prepared)
        if not np.isfinite(marginals.max(axis=1)).all():
            return Rows.empty(len(marginals), marginals=lambda: marginals)
        found = product(marginals, Listed(_listed(query, exclude)), count=count, injective=self.joint.injective)
        *first, last = [f"?{query.names[node]}" if query.names else f"unknown {node}" for node in query.targets]
        note = (
            f"{', '.join(first)} and {last} were asked for one by one and their probabilities multiplied, because "
            f"{self.predictor.name} cannot predict them together"
        )
        return replace(found.possible(), marginals=lambda: marginals, scores=None, note=note)

    # Parts that nothing joins

    def _apart(self, query: BoundQuery, parts: list[list[int]], exclude: Entities | None, count: int) -> Rows:
        marginals: list[tuple[list[int], Marginals]] = []
        lists: list[PartRows] = []
        factor, all_hold = 1.0, True
        notes: list[str] = []
        for part in parts:
            piece = subquery(query, part)
            columns = [column for column, node in enumerate(query.targets) if node in part]
            if not columns:
                if not holds(self.graph, piece):
                    all_hold = False
                    factor *= self.closed(piece)[0]
                continue
            known, found = self._known_and_ranked(piece, count)
            assert found.marginals is not None
            marginals.append((columns, found.marginals))
            notes.append(found.note)
            predicted = list(zip(found.probabilities.tolist(), map(tuple, found.entities.tolist()), strict=True))
            lists.append(PartRows(columns, [(1.0, tuple(row)) for row in known.tolist()], predicted))
        excluded = set(map(tuple, _listed(query, exclude).tolist()))
        rows: list[list[int]] = []
        chances: list[float] = []
        for chance, choice in _joined(lists, all_hold):
            if len(rows) == count:
                break
            row = [0] * len(query.targets)
            for part_rows, values in zip(lists, choice, strict=True):
                for column, value in zip(part_rows.columns, values, strict=True):
                    row[column] = value
            if tuple(row) not in excluded:
                rows.append(row)
                chances.append(chance * factor)
        entities = np.array(rows, np.int32).reshape(-1, len(query.targets))

        def together() -> NDArray[np.float32]:
            table = np.zeros((len(query.targets), self.graph.entity_count), np.float32)
            for columns, own in marginals:
                table[columns] = own()
            return table

        return Rows(entities, np.array(chances), marginals=together, note=join_notes(notes))

    def _known_and_ranked(self, piece: BoundQuery, count: int) -> tuple[Entities, Rows]:
        """The first ``count`` rows of one part that the graph holds and conditions allow, and as many that it does not
        hold."""
        known = tuples(self.graph, piece, limit=EXCLUDED + 1)
        some_more = count if len(known) > EXCLUDED else 0
        found = self.rank(piece, known, count + some_more)
        if some_more:
            # Not all known rows are at hand, so each ranked row is looked up.
            new = [n for n, row in enumerate(found.entities.tolist()) if not holds(self.graph, filled_in(piece, row))]
            found = found.take(new[:count])
        return known[self.predictor.permits(piece, known)][:count], found

    # Cycles

    def _readable(self, query: BoundQuery) -> tuple[BoundQuery, tuple[Edge, ...]] | None:
        """The query without as few patterns as make it readable, with the ends of these as further targets; and the
        patterns that were left out."""
        edges = tuple(dict.fromkeys(query.edges))

        def hidden_ends(edge: Edge) -> list[int]:
            return [node for node in (edge[0], edge[2]) if query.nodes[node] == HIDDEN]

        # Hidden ends have to be guessed before their link can be weighed, so patterns without them are left out first.
        order = sorted(edges, key=lambda edge: (edge[0] != edge[2], len(hidden_ends(edge)), -edges.index(edge)))
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
                ends = dict.fromkeys(node for edge in left_out for node in hidden_ends(edge))
                nodes = tuple(TARGET if node in ends else value for node, value in enumerate(query.nodes))
                reduced = replace(query, nodes=nodes, edges=kept, targets=(*query.targets, *ends))
                if self.predictor.reads(reduced):
                    return reduced, left_out
        return None

    def _rechecked(
        self, query: BoundQuery, reduced: BoundQuery, left_out: tuple[Edge, ...], exclude: Entities | None, count: int
    ) -> Rows:
        """Rows of the readable query, weighed with the links of the patterns that were left out."""
        excluded = _listed(query, exclude)
        # Known rows compete too: they are taken out at the end, so as many more are listed.
        found = self.rank(reduced, None, max(RECHECKED, 4 * count) + len(excluded))
        whole = found.marginals
        assert whole is not None
        nodes = [filled_in(reduced, row).nodes for row in found.entities.tolist()]
        chances = found.probabilities.copy()
        for edge in left_out:
            subject, relation, object_ = forward(edge, self.graph.relation_count)
            chances *= self._chances([IdLink(filled[subject], relation, filled[object_]) for filled in nodes])
        width = len(query.targets)
        rows = np.ascontiguousarray(found.entities[:, :width])
        weighed = Rows(rows, chances, marginals=lambda: whole()[:width], note=found.note)
        return weighed.take(np.flatnonzero((chances > 0) & ~Listed(excluded).holds(rows))).best(count)

    def _chances(self, links: Sequence[IdLink]) -> NDArray[np.float64]:
        """(n,) 1 for a link that the graph holds, the model's probability for any other."""
        missing = [link for link in dict.fromkeys(links) if not self.graph.holds(*link)]
        chances = dict(zip(missing, self.predictor.link_probabilities(missing), strict=True))
        return np.array([chances.get(link, 1.0) for link in links])

    # ASK

    def closed(self, query: BoundQuery, passes: Passes | None = None) -> tuple[float, Evidence | None]:
        """How probable it is that a query holds which the graph does not hold, and the assignment that this rests on;
        None where there is no way in which it could hold.

        Without variables it is the product of the probabilities of its missing links. With variables, it is that of
        the best assignment which the model finds for them and which ``passes``: one way in which it could hold, so
        that no probability is counted twice.
        """
        variables = tuple(node for node, value in enumerate(query.nodes) if value < 0)
        everything = replace(query, nodes=tuple(max(value, TARGET) for value in query.nodes), targets=variables)
        found = Rows.empty(0)
        if variables:
            found = self.rank(everything, np.zeros((0, len(variables)), np.int32), WAYS)
        rows = found.entities if variables else np.zeros((1, 0), np.int32)
        every = found.evidence or EvidenceSearch(self.graph, everything).find(rows.tolist())[0]
        if passes is not None:
            every = [each for each, passed in zip(every, passes(everything, rows), strict=True) if passed]
        ways = [each for each in every if each is not None]
        chances = dict(found.link_probabilities)
        new = list(dict.fromkeys(link for each in ways for link in each.missing if link not in chances))
        chances.update(zip(new, self.predictor.link_probabilities(new), strict=True))

        def chance(each: Evidence) -> float:
            return math.prod(chances[link] for link in each.missing)

        best = max(ways, key=chance, default=None)
        return (0.0, None) if best is None else (chance(best), best)

    # What must not hold

    def against(self, filters: Filters, query: BoundQuery, rows: Entities) -> list[tuple[Against, ...]]:
        """For each (n, targets) row of ``query``, what the negated parts of its conditions say against it."""
        columns, found = columns_of(query, rows), [list[Against]() for _ in range(len(rows))]
        for part in filters.negated_parts():
            shared = np.stack(
                [columns[part.names[node]] for node in part.targets] or [np.zeros(len(rows), np.int32)], 1
            )
            different, which = np.unique(shared, axis=0, return_inverse=True)
            said = self._holding([filled_in(part, row[: len(part.targets)]) for row in different.tolist()])
            for number, place in enumerate(which.ravel().tolist()):
                found[number].append(said[place])
        return [tuple(each) for each in found]

    def _holding(self, parts: Sequence[BoundQuery]) -> list[Against]:
        """How likely each of these queries holds, which are one query with different constants."""
        if any(value < 0 for value in parts[0].nodes):
            found = []
            for part in parts:
                chance, evidence = self.closed(part)
                found.append(Against(() if evidence is None else evidence.missing, chance))
            return found
        count = self.graph.relation_count
        every = [
            [IdLink(part.nodes[s], r, part.nodes[o]) for s, r, o in (forward(edge, count) for edge in part.edges)]
            for part in parts
        ]
        different = list(dict.fromkeys(link for links in every for link in links))
        chances = dict(zip(different, self.predictor.link_probabilities(different), strict=True))
        return [Against(tuple(links), math.prod(chances[link] for link in links)) for links in every]

    # Constants from conditions

    def _with_values(self, query: BoundQuery, exclude: Entities, count: int, allowed: Allowed, column: int) -> Rows:
        """Rows of a query without constants, asked once for each entity that conditions leave ``column``."""
        node = query.targets[column]
        others = np.arange(len(query.targets)) != column
        mask = allowed[query.names[node]]
        found = []
        for entity in np.flatnonzero(mask).tolist():
            nodes = (*query.nodes[:node], entity, *query.nodes[node + 1 :])
            names = (*query.names[:node], "", *query.names[node + 1 :])
            asked = replace(query, nodes=nodes, names=names, targets=tuple(t for t in query.targets if t != node))
            own = np.ascontiguousarray(exclude[exclude[:, column] == entity][:, others])
            rows = self.rank(asked, own, count)
            found.append(replace(rows, entities=np.insert(rows.entities, column, entity, axis=1)))

        def mixed() -> NDArray[np.float32]:
            with np.errstate(divide="ignore"):
                # All entities of the fixed variable are as probable.
                own_row = np.log(mask / mask.sum()).astype(np.float32)
            return np.insert(_mean([rows.marginals for rows in found])(), column, own_row, axis=0)

        return stacked(found, mixed).best(count)


def values_questions(query: BoundQuery, filters: Filters) -> Iterator[tuple[Allowed, int | None]]:
    """What is asked instead of ``query``: for each alternative of its conditions, the entities that it leaves, and the
    column that is fixed to one of these after the other; None where the query is asked as it stands."""
    has_constants = any(value >= 0 for value in query.nodes)
    for part in [filters] if has_constants else filters.alternatives(FEW):
        names = [query.names[node] for node in query.targets] if part.conditions else []
        allowed = {name: passed for name in names if (passed := part.allowed(name)) is not None}
        yield allowed, None if has_constants else _fixable(query, allowed)


def _fixable(query: BoundQuery, allowed: Allowed) -> int | None:
    """The column whose conditions leave the fewest entities; None where no column has few."""
    if len(query.targets) < 2:
        return None
    masks = {column: allowed.get(query.names[node]) for column, node in enumerate(query.targets)}
    sizes = {column: int(mask.sum()) for column, mask in masks.items() if mask is not None}
    few = [column for column, size in sizes.items() if 0 < size <= FEW and 2 * size < len(masks[column])]  # type: ignore[arg-type]
    return min(few, key=sizes.__getitem__, default=None)


def _mean(parts: Sequence[Marginals | None]) -> Marginals:
    """Of each target alone, where all questions are as probable."""

    def mean() -> NDArray[np.float32]:
        shares = np.exp(np.stack([part() for part in parts if part is not None])).mean(axis=0)
        with np.errstate(divide="ignore"):
            return np.log(shares).astype(np.float32)  # type: ignore[no-any-return]

    return mean


def _listed(query: BoundQuery, exclude: Entities | None) -> Entities:
    """The excluded rows; none where all compete."""
    return np.zeros((0, len(query.targets)), np.int32) if exclude is None else exclude


# Products of rows of several parts

Listing = tuple[float, tuple[int, ...]]
"""A row of one part and its probability."""


@dataclass(frozen=True)
class PartRows:
    """Rows of one part of a query."""

    columns: list[int]
    """Where they stand in the rows of the whole query."""
    known: list[Listing]
    predicted: list[Listing]


def _joined(parts: Sequence[PartRows], all_hold: bool) -> Iterator[tuple[float, tuple[tuple[int, ...], ...]]]:
    """One row of each part, the largest product first; without those whose every part is known, if ``all_hold``."""
    everything = [part.known + part.predicted for part in parts]
    if not all_hold:
        yield from _products(everything)
        return
    # The first part that is predicted is the first, or the second, ...: so no row of known parts alone comes up.
    ways = [
        _products([*(part.known for part in parts[:first]), parts[first].predicted, *everything[first + 1 :]])
        for first in range(len(parts))
    ]
    yield from heapq.merge(*ways, key=lambda pair: -pair[0])


def _products(lists: Sequence[Sequence[Listing]]) -> Iterator[tuple[float, tuple[tuple[int, ...], ...]]]:
    """One entry of each list, the largest product first; the lists are sorted so."""
    if not all(lists):
        return

    def chance(ranks: tuple[int, ...]) -> float:
        return math.prod(entries[place][0] for entries, place in zip(lists, ranks, strict=True))

    start = (0,) * len(lists)
    heap = [(-chance(start), start)]
    seen = {start}
    while heap:
        cost, ranks = heapq.heappop(heap)
        yield -cost, tuple(entries[place][1] for entries, place in zip(lists, ranks, strict=True))
        for number, entries in enumerate(lists):
            following = (*ranks[:number], ranks[number] + 1, *ranks[number + 1 :])
            if following[number] < len(entries) and following not in seen:
                seen.add(following)
                heapq.heappush(heap, (-chance(following), following))
