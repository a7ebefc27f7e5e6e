"""How a row's share changes when the query changes, or when a stored triple is withheld from the model.

**A pattern is dropped**: the query without it is asked, whatever then hangs together. An unknown about which nothing
is said any more has no share. The share is the model's own (see asking.py), before any calibration.

**A stored triple is removed** from what the model may use, which means

* for a model that looks into the graph while it answers (it has a ``use_graph`` of its own, as cqd): the triple is
  taken out of the graph that the model sees. What the model learnt from it in training stays in its weights.
* for any other model: nothing is looked up, so what leads it to the triple is the part of the query that the triple
  fills. The constant of that pattern is hidden: the model reads the same query with this one name left out, other
  patterns with the same constant untouched. Where the pattern has no constant, or the model cannot read a query
  without it, the pattern is cut, and with it all that hung on the unknowns by it alone.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np

from biqe.errors import UnsupportedQuery
from biqe.explain.asking import Asker, Triple
from biqe.explain.witness import Found, forward
from biqe.graph.knowledge_graph import Graph
from biqe.graph.triples import difference
from biqe.query.bound import BoundQuery

DROPPED = "dropped"
TAKEN = "taken out of the graph"
HIDDEN_NAME = "name hidden"
CUT = "pattern cut"


@dataclass(frozen=True)
class Change:
    """One thing done, and what became of the row."""

    pattern: int
    """The pattern that was dropped, or whose triple was withheld; from 0."""
    how: str
    """DROPPED for a pattern; TAKEN, HIDDEN_NAME or CUT for a stored triple."""
    share: float | None
    """Of the row afterwards; None where there is none."""
    reason: str = ""
    """Why there is none."""


@dataclass(frozen=True)
class Counterfactual:
    """The row's share as asked, and after each change."""

    share: float
    """What the model by itself gives the row, known or not."""
    patterns: tuple[Change, ...]
    """Each pattern dropped, in the order of the query."""
    triples: tuple[Change, ...]
    """Each stored triple of the witness withheld, in the order of the query."""
    sees_graph: bool
    """Whether the model looks into the graph while it answers."""


def sees_graph(asker: Asker) -> bool:
    """Whether a model looks into the graph while it answers."""
    from biqe.models._contract import QueryModel  # torch: not before a model is asked

    own = getattr(type(asker.model), "use_graph", None)
    return own is not None and own is not QueryModel.use_graph


def told(asker: Asker, graph: Graph) -> Asker:
    """The same model with ``graph`` to look into, if it looks into one; the model that was given stays as it is."""
    if not sees_graph(asker):
        return asker
    model = copy.copy(asker.model)  # shares the weights
    model.use_graph(graph)
    return Asker(model, asker.links)


def vary(asker: Asker, graph: Graph, query: BoundQuery, row: Mapping[int, int], found: Found) -> Counterfactual:
    """Every change, one at a time. ``asker`` was ``told`` of ``graph``; ``found`` is the row's witness. Refused where
    the model cannot give the row a share to begin with."""
    share = asker.share(query, row)
    looks = sees_graph(asker)
    triples = []
    for number in (number for number, is_stored in enumerate(found.stored) if is_stored):
        if looks:
            triples.append(_without_triple(asker, graph, query, row, number, found))
        else:
            triples.append(_without_name(asker, query, row, number))
    patterns = [
        _asked(asker, without_pattern(query, number), row, number, DROPPED) for number in range(len(query.edges))
    ]
    return Counterfactual(share, tuple(patterns), tuple(triples), looks)


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


def _without_triple(
    asker: Asker, graph: Graph, query: BoundQuery, row: Mapping[int, int], number: int, found: Found
) -> Change:
    subject, relation, object_ = query.edges[number]
    triple = forward((found.nodes[subject], relation, found.nodes[object_]), graph.relation_count)
    return _asked(told(asker, without_triple(graph, triple)), query, row, number, TAKEN)


def _without_name(asker: Asker, query: BoundQuery, row: Mapping[int, int], number: int) -> Change:
    hidden = without_name(query, number)
    if hidden is not None:
        change = _asked(asker, hidden[0], row, number, HIDDEN_NAME, hidden[1])
        if change.share is not None:
            return change
    return _asked(asker, without_pattern(query, number), row, number, CUT)


def _asked(
    asker: Asker, query: BoundQuery, row: Mapping[int, int], number: int, how: str,
    muted: frozenset[int] = frozenset(),
) -> Change:  # fmt: skip
    try:
        return Change(number, how, asker.share(query, row, muted))
    except UnsupportedQuery as error:
        return Change(number, how, None, error.message)
