"""What a model says about one row of a query, as the user wrote the query.

A model spreads a share of 1 over all rows of a query. A row's share is p(row) = p(first) p(second | first) ...: the
surest unknown is asked for first, the row's own entity is put in its place, and the others are asked again, with what
still depends on them and nothing else. That is what the beam of asking does, along one row; with three unknowns or more
it may fill them in another order.

Parts of a query that do not hang together are asked one by one, and their shares multiplied; for a predicted row, a
part that the graph holds counts as 1, as it does when rows are listed.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence, Set
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from biqe.errors import TooManyPaths, UnsupportedQuery
from biqe.explain.search import Allowed
from biqe.explain.weigh import Opinion, Triple
from biqe.query.bound import HIDDEN, TARGET, BoundQuery, Edge, link_queries, selected_rows
from biqe.query.dag import analyse, components
from biqe.query.orient import orient
from biqe.query.queryset import QuerySet

if TYPE_CHECKING:
    from biqe.models._contract import QueryModel

SCORES_AT_ONCE = 8_000_000
"""Scores that one model call may return (32 MB of float32)."""

Scores = NDArray[np.floating]
LinkProbabilities = Callable[[Sequence[Triple]], list[float]]
"""How probable each link is by itself."""


@dataclass(frozen=True)
class _Part:
    """A connected piece of a query with open targets."""

    query: BoundQuery
    places: tuple[int, ...]
    """For each node of ``query``, its node in the whole query."""


class Asker:
    """A model, asked in queries as the user wrote them."""

    def __init__(self, model: QueryModel, links: LinkProbabilities | None = None) -> None:
        self.model = model
        self.links = links
        """Who knows better than the model's shares how probable single links are, if anybody."""
        self.inverses = bool(getattr(model.config, "inverses", False))
        """Whether the model reads edges turned away from the constants; any other gets them as they are written."""

    def prepare(self, query: BoundQuery, muted: frozenset[int] = frozenset()) -> BoundQuery:
        """``query`` as the model reads it, nodes and edges in the same order; UnsupportedQuery where it cannot.

        ``muted`` are constants that it is not told: they become hidden variables after the edges were turned, so
        that nothing else changes in what it reads.
        """
        oriented = orient(query, self.model.relation_count) if self.inverses else query
        if muted:
            nodes = tuple(HIDDEN if node in muted else value for node, value in enumerate(oriented.nodes))
            oriented = replace(oriented, nodes=nodes)
        try:
            support = self.model.supports(oriented)
        except TooManyPaths as error:
            raise UnsupportedQuery(error.message, hint=error.hint) from error
        if not support.yes:
            raise UnsupportedQuery(support.reason, hint=support.hint)
        return oriented

    def log_probabilities(self, prepared: Sequence[BoundQuery]) -> Scores:
        """(V, E) one row for each target: query by query, and in a query in the order of its ``targets``."""
        from biqe.evaluate.scoring import as_array, at_rest  # torch: not before a model is asked

        with at_rest(self.model):
            scores = as_array(self.model.scores(self.model.encoder(QuerySet.of(prepared))))
        return scores[selected_rows(prepared)]

    @property
    def opinion(self) -> Opinion:
        """The model, as a search for witnesses asks it."""
        seen: tuple[int, int] | None = getattr(self.model, "seen", None)
        return Opinion(
            self.prepare,
            self.log_probabilities,
            self.link_probabilities,
            lambda entity, relation: seen is None or (entity < seen[0] and relation < seen[1]),
        )

    def link_probabilities(self, links: Sequence[Triple]) -> list[float]:
        """How probable each link (subject, relation, object) is by itself: the object's share when the model is asked
        for the objects of that subject and relation, and for nothing else; or what ``links`` says."""
        if self.links is not None:
            return self.links(links)
        asked = sorted({(subject, relation) for subject, relation, _ in links})
        if not asked:
            return []
        objects: dict[tuple[int, int], list[int]] = {}
        for subject, relation, object_ in links:
            objects.setdefault((subject, relation), []).append(object_)
        queries = link_queries(asked, self.prepare)
        found: dict[Triple, float] = {}
        step = max(1, SCORES_AT_ONCE // self.model.entity_count)
        for first in range(0, len(asked), step):
            keys = asked[first : first + step]
            for scores, key in zip(self.log_probabilities(queries[first : first + step]), keys, strict=True):
                found.update(((*key, object_), _chance(scores[object_])) for object_ in objects[key])
        return [found[link] for link in links]

    def reads(self, query: BoundQuery) -> bool:
        """Whether the model reads the query in one piece."""
        try:
            self.prepare(query)
        except UnsupportedQuery:
            return False
        return True

    def share(
        self,
        query: BoundQuery,
        row: Mapping[int, int],
        muted: frozenset[int] = frozenset(),
        *,
        settled: Set[int] = frozenset(),
        permitted: Allowed | None = None,
        whole: bool = False,
    ) -> float:
        """p(row); ``row`` gives an entity to each target node. Refused where the model cannot read what has to be
        asked, or where no pattern says anything about a target.

        ``settled`` are nodes of parts that count as 1. ``permitted`` are (E,) masks of the entities that conditions
        leave a target: they decide which one is the surest, and change no share. With ``whole``, parts that do not
        hang together are read at once.
        """
        total = 0.0
        for part in [_Part(query, tuple(range(len(query.nodes))))] if whole else _parts(query, {}):
            if set(part.places) <= settled:
                continue
            slots = {node: slot for slot, node in enumerate(part.places)}
            own = {slots[node]: entity for node, entity in row.items() if node in slots}
            masks = {slots[node]: mask for node, mask in (permitted or {}).items() if node in slots}
            total += self._chain(part.query, own, frozenset(slots[node] for node in muted if node in slots), masks)
        return _chance(total)

    def _chain(self, query: BoundQuery, row: Mapping[int, int], muted: frozenset[int], permitted: Allowed) -> float:
        """Logarithm of p(row) for a query that is asked whole."""
        try:
            read = self.prepare(query, muted)
        except UnsupportedQuery:
            if len(query.targets) == 1:
                raise
            read = None  # a model that cannot tell the targets apart is asked for one at a time
        filled: dict[int, int] = {}
        left = list(query.targets)
        total = 0.0
        while left:
            scores = self._given(query, read, filled, muted)
            surest = max(self._fillable(query, left), key=lambda node: _largest(scores[node], permitted.get(node)))
            total += float(scores[surest][row[surest]])
            filled[surest] = row[surest]
            left.remove(surest)
        return total

    def _given(
        self, query: BoundQuery, read: BoundQuery | None, filled: Mapping[int, int], muted: frozenset[int]
    ) -> dict[int, Scores]:
        """Log-probabilities of each open target, given what is filled."""
        if read is not None and not filled:
            return dict(zip(read.targets, self.log_probabilities([read]), strict=True))
        found: dict[int, Scores] = {}
        for part in _parts(query, filled):
            hidden = frozenset(slot for slot, node in enumerate(part.places) if node in muted)
            try:
                prepared = [self.prepare(part.query, hidden)]
            except UnsupportedQuery:
                if len(part.query.targets) == 1:
                    raise
                prepared = [self.prepare(_alone(part.query, target), hidden) for target in part.query.targets]
            targets = [part.places[target] for piece in prepared for target in piece.targets]
            found.update(zip(targets, self.log_probabilities(prepared), strict=True))
        return found

    def _fillable(self, query: BoundQuery, left: list[int]) -> list[int]:
        """Open targets that may be filled next: for a model that has only seen constants at the start of paths, those
        that lie behind no other open target."""
        if self.inverses:
            return left
        behind = analyse(query).descendants
        first = [node for node in left if not any(node in behind[other] for other in left if other != node)]
        return first or left


def _parts(query: BoundQuery, filled: Mapping[int, int]) -> list[_Part]:
    """What is left to ask once these targets hold entities: one part for each connected piece with an open target."""
    nodes = [filled.get(node, value) for node, value in enumerate(query.nodes)]
    # The first question is the user's own, whole where it hangs together, whatever it says about constants.
    whole = not filled and len(_pieces(nodes, query.edges)) == 1
    edges = [edge for edge in query.edges if whole or nodes[edge[0]] < 0 or nodes[edge[2]] < 0]
    found = []
    for places in _pieces(nodes, edges):
        targets = [node for node in query.targets if node in places and node not in filled]
        if not targets:
            continue
        number = {node: slot for slot, node in enumerate(places)}
        own = tuple((number[s], relation, number[o]) for s, relation, o in edges if s in number)
        if not own:
            name = f"?{query.names[targets[0]]}" if query.names else f"target {targets[0]}"
            raise UnsupportedQuery(f"nothing is said about {name} any more")
        names = tuple(query.names[node] for node in places) if query.names else ()
        left = BoundQuery(tuple(nodes[node] for node in places), own, tuple(number[t] for t in targets), names)
        found.append(_Part(left, tuple(places)))
    return found


def _pieces(nodes: Sequence[int], edges: Sequence[Edge]) -> list[list[int]]:
    """Nodes that hang together; constants that no pattern names are left out."""
    parts = components(len(nodes), edges)
    return [part for part in parts if len(part) > 1 or nodes[part[0]] < 0 or any(edge[0] == part[0] for edge in edges)]


def _alone(query: BoundQuery, target: int) -> BoundQuery:
    """The query for one of its targets, the others hidden."""
    nodes = tuple(HIDDEN if value == TARGET and n != target else value for n, value in enumerate(query.nodes))
    return replace(query, nodes=nodes, targets=(target,))


def _largest(scores: Scores, permitted: NDArray[np.bool_] | None) -> float:
    """The largest score of an entity that is permitted."""
    return float((scores if permitted is None else scores[permitted]).max(initial=-np.inf))


def _chance(log_probability: float) -> float:
    """A probability from its logarithm; rounding in single precision may have carried it a little over 1."""
    return min(1.0, float(np.exp(log_probability)))
