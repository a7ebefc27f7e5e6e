"""How a row's share changes when the query changes, or when a stored triple is withheld from the model.

**A pattern is dropped**: the query without it is asked, whatever then hangs together. An unknown about which nothing
is said any more has no share. The share is the model's own (``row_share`` in predict/conditional.py).

**A stored triple is removed** from what the model may use, which means

* for a model that looks facts up while it answers (``looks_facts_up``, as cqd with known links): the triple is
  taken out of the graph that the model sees. What the model learnt from it in training stays in its weights.
* for a part of the question that asks for nothing (all of ASK): the fact is no longer stored, so that the model has to
  predict it. The probability of such a part is that of its missing links, multiplied.
* for any other model: nothing is looked up, so what leads it to the triple is the part of the query that the triple
  fills. The constant of that pattern is hidden: the model reads the same query with this one name left out, other
  patterns with the same constant untouched. Where the pattern has no constant, or the model cannot read a query
  without it, the pattern is cut, and with it all that hung on the unknowns by it alone.

The question is the one that the model was asked when the row was listed: with the entities that conditions pin as
constants, and with parts of a predicted row that the graph holds, and nothing joins to the others, as settled.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Sequence, Set
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from biqe.errors import UnsupportedQuery
from biqe.graph.knowledge_graph import Graph
from biqe.graph.triples import difference
from biqe.predict.conditional import Masks, row_share
from biqe.predict.evidence import Evidence, IdLink
from biqe.predict.predictor import Predictor, Triple
from biqe.query.bound import BoundQuery
from biqe.query.dag import components

DROPPED = "dropped"
TAKEN = "taken out of the graph"
HIDDEN_NAME = "name hidden"
CUT = "pattern cut"


@dataclass(frozen=True)
class Change:
    """One change of the question or of the graph, and the row's share after it."""

    pattern: int
    """The pattern that was dropped, or whose triple was withheld; from 0."""
    how: str
    """DROPPED for a pattern; TAKEN, HIDDEN_NAME or CUT for a stored triple."""
    share: float | None
    """The row's share after the change; None where it has none."""
    reason: str = ""
    """Why there is none."""
    name: int | None = None
    """Node of the constant that was hidden, for HIDDEN_NAME."""


@dataclass(frozen=True)
class Counterfactual:
    """The row's share as asked, and after each change."""

    share: float
    """The row's share before any change; for a known row, by the model alone."""
    patterns: tuple[Change, ...]
    """Each pattern dropped, in the order of the query."""
    triples: tuple[Change, ...]
    """Each stored triple of the witness withheld, in the order of the query."""
    sees_graph: bool
    """Whether the model looks facts up in the graph while it answers."""


def sees_graph(predictor: Predictor) -> bool:
    """Whether a model looks facts up in the graph while it answers; one that merely counts links does not."""
    return bool(getattr(predictor.model, "looks_facts_up", False))


def with_graph(predictor: Predictor, graph: Graph) -> Predictor:
    """A copy of the model that looks facts up in ``graph``, if it looks facts up at all."""
    sees_it = predictor.links is not None and predictor.links.graph is graph
    if sees_it or not sees_graph(predictor):
        return predictor
    from biqe.models._contract import use_graph

    model = copy.copy(predictor.model)  # shares the weights
    use_graph(model, graph)
    return Predictor(model)


def vary(asked: Asked) -> Counterfactual:
    """Every change, one at a time. Refused where the row cannot be given a share to begin with."""
    share = asked.share()
    stored = asked.evidence.stored
    triples = tuple(asked.without_triple(number) for number, is_stored in enumerate(stored) if is_stored)
    patterns = tuple(asked.without_pattern(number) for number in range(len(asked.query.edges)))
    return Counterfactual(share, patterns, triples, sees_graph(asked.predictor))


class Asked:
    """A question as it was put to the model when a row was listed, and the row."""

    def __init__(
        self,
        predictor: Predictor,
        graph: Graph,
        query: BoundQuery,
        evidence: Evidence,
        chances: Sequence[float | None],
        permitted: Masks,
    ) -> None:
        """``predictor`` has ``graph`` to look into; ``chances`` are the probabilities of the links of ``evidence``, and
        ``permitted`` are the entities that conditions leave targets."""
        self.predictor, self.graph, self.query, self.evidence, self.chances = predictor, graph, query, evidence, chances
        self.row = {node: evidence.nodes[node] for node in query.targets}
        self.permitted = permitted
        parts = [set(part) for part in components(len(query.nodes), query.edges)]
        self._whole = len(parts) > 1 and bool(query.targets) and predictor.reads(query)
        if self._whole:
            parts = []
        self._part_of = {node: part for part in parts for node in part}
        open_parts = [part for part in parts if not part.isdisjoint(query.targets)]
        self._closed = [
            number for number, edge in enumerate(query.edges) if parts and self._part_of[edge[0]] not in open_parts
        ]
        """Patterns of parts that ask for nothing."""
        stored = [
            all(held for held, edge in zip(evidence.stored, query.edges, strict=True) if edge[0] in part)
            for part in open_parts
        ]
        self._settled: set[int] = set()
        if not all(evidence.stored) and len(parts) > 1:
            self._settled = {node for part, held in zip(open_parts, stored, strict=True) if held for node in part}

    def share(
        self,
        *,
        predictor: Predictor | None = None,
        query: BoundQuery | None = None,
        muted: frozenset[int] = frozenset(),
        settled: Set[int] | None = None,
        is_cut: bool = False,
        dropped: int | None = None,
        withheld: tuple[int, Predictor] | None = None,
    ) -> float:
        """The row's share, as it was asked or after a change: with another model or query, with muted constants, with
        fewer parts settled. ``is_cut`` where the query lost a pattern; ``dropped`` and ``withheld`` are for parts that
        ask for nothing."""
        return self._closed_share(dropped, withheld) * row_share(
            predictor or self.predictor,
            query or self.query,
            self.row,
            muted,
            settled=self._settled if settled is None else settled,
            permitted=self.permitted,
            whole=self._whole and not is_cut,
        )

    def without_pattern(self, number: int) -> Change:
        """The share without a pattern."""
        left = without_pattern(self.query, number)
        if not left.edges and not left.targets:
            return Change(number, DROPPED, None, "nothing is left of the question")
        return self._changed(number, DROPPED, query=left, is_cut=True, dropped=number)

    def without_triple(self, number: int) -> Change:
        """The share without the stored triple of a pattern."""
        subject, _, object_ = self.query.edges[number]
        looks = sees_graph(self.predictor)
        predictor = self.predictor
        if looks:
            predictor = with_graph(predictor, without_triple(self.graph, self.evidence.links[number]))
        if number in self._closed:
            return self._changed(number, TAKEN, withheld=(number, predictor))
        # A part without one of its facts is not settled any more.
        settled = self._settled - self._part_of.get(subject, set())
        if looks:
            return self._changed(number, TAKEN, predictor=predictor, settled=settled)
        hidden = without_name(self.query, number)
        if hidden is not None:
            change = self._changed(number, HIDDEN_NAME, query=hidden[0], muted=hidden[1], settled=settled)
            if change.share is not None:
                return replace(change, name=subject if self.query.nodes[subject] >= 0 else object_)
        return self._changed(number, CUT, query=without_pattern(self.query, number), settled=settled, is_cut=True)

    def _changed(self, number: int, how: str, **changes: Any) -> Change:
        try:
            return Change(number, how, self.share(**changes))
        except UnsupportedQuery as error:
            return Change(number, how, None, reason_of(error))

    def _closed_share(self, dropped: int | None, withheld: tuple[int, Predictor] | None) -> float:
        """Product of the probabilities of the missing links, each once, of the parts without unknowns. The withheld
        pattern is asked of its own predictor."""
        chances: dict[IdLink, float | None] = {}
        for number in self._closed:
            link = self.evidence.links[number]
            if number != dropped and not self.evidence.stored[number]:
                chances[link] = self.chances[number]
            if withheld is not None and number == withheld[0]:
                (chances[link],) = withheld[1].link_probabilities([link])
        said = [chance for chance in chances.values() if chance is not None]
        if len(said) < len(chances):
            raise UnsupportedQuery("a link is missing about which the model cannot say anything")
        return math.prod(said)


def reason_of(error: UnsupportedQuery) -> str:
    """Why a model cannot read a query, in its own words."""
    return str(getattr(error, "reason", error.message))


def without_pattern(query: BoundQuery, number: int) -> BoundQuery:
    """The query without pattern ``number``; nodes keep their numbers."""
    return replace(query, edges=query.edges[:number] + query.edges[number + 1 :])


def without_name(query: BoundQuery, number: int) -> tuple[BoundQuery, frozenset[int]] | None:
    """The query, and the node of pattern ``number``'s constant, which is then to be muted. Where other patterns name
    the same constant, this one gets a node of its own. None where the pattern has no constant, or nothing else."""
    subject, relation, object_ = query.edges[number]
    constants = [node for node in (subject, object_) if query.nodes[node] >= 0]
    if len(constants) != 1:
        return None
    (constant,) = constants
    if not any(constant in (edge[0], edge[2]) for edge in without_pattern(query, number).edges):
        return query, frozenset({constant})
    own = len(query.nodes)
    edge = (own, relation, object_) if constant == subject else (subject, relation, own)
    changed = replace(
        query,
        nodes=(*query.nodes, query.nodes[constant]),
        edges=(*query.edges[:number], edge, *query.edges[number + 1 :]),
        names=(*query.names, "") if query.names else (),
    )
    return changed, frozenset({own})


def without_triple(graph: Graph, triple: Triple) -> Graph:
    """The graph without one triple."""
    return Graph(graph.vocabulary, difference(graph.triples, np.array([triple], np.int32)))
