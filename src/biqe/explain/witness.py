"""The facts that together make a row: an entity for every variable, and for each pattern whether it is stored.

How they are found is in search.py. Where the search had to stop early, ``is_complete`` is false: the witness is a
witness, but there may be a better one.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from biqe.errors import UnsupportedQuery
from biqe.explain.asking import Asker, Triple
from biqe.explain.search import Allowed, Evidence, EvidenceFinder
from biqe.explain.weigh import chosen
from biqe.graph.index import objects
from biqe.graph.knowledge_graph import Graph
from biqe.query.bound import BoundQuery, Edge

NOBODY = -1
"""In place of an entity, where none was found."""


@dataclass(frozen=True)
class Found:
    """A witness in ids."""

    nodes: tuple[int, ...]
    """Entity of each node of the query; NOBODY for a hidden variable that nothing fills."""
    stored: tuple[bool, ...]
    """For each edge of the query, whether the graph holds it."""
    probabilities: tuple[float | None, ...]
    """For each edge: 1 where it is stored, the model's where it is missing, None where nobody can say."""
    is_complete: bool
    """Whether nothing better can have been overlooked."""


def holds(graph: Graph, triple: Triple) -> bool:
    """Whether the graph holds this triple; its relation may be an inverse."""
    subject, relation, object_ = forward(triple, graph.relation_count)
    stored = objects(graph.index, subject, relation)
    place = int(np.searchsorted(stored, object_))
    return place < len(stored) and int(stored[place]) == object_


def forward(edge: Edge, relation_count: int) -> Edge:
    """The edge as a stored triple is written: never by an inverse relation."""
    subject, relation, object_ = edge
    return edge if relation < relation_count else (object_, relation - relation_count, subject)


def find(
    graph: Graph,
    query: BoundQuery,
    row: Mapping[int, int],
    asker: Asker | None,
    allowed: Allowed | None = None,
    evidence: Evidence | None = None,
) -> Found:
    """The best witness of a row; ``row`` gives an entity to each target node. ``evidence`` is what the row was found to
    rest on when it was answered, if it was. Without a model missing links have no probability, and a hidden variable
    that no stored triple fills stays empty."""
    said: dict[Triple, float] = {}
    is_answered = evidence is not None
    if evidence is None:
        finder = EvidenceFinder(graph, query, allowed)
        choices = [finder.alternatives([row[node] for node in query.targets])]
        (evidence,), chances = chosen(finder, choices, None if asker is None else asker.opinion)
        said.update(chances.items())
    filled = dict(evidence.filled) | dict(row)
    nodes = tuple(filled.get(node, NOBODY) if value < 0 else value for node, value in enumerate(query.nodes))
    links = [forward((nodes[s], relation, nodes[o]), graph.relation_count) for s, relation, o in query.edges]
    stored = tuple(NOBODY not in (s, o) and holds(graph, (s, r, o)) for s, r, o in links)
    if asker is not None and is_answered:
        missing = list(
            dict.fromkeys(
                link for link, is_stored in zip(links, stored, strict=True) if not is_stored and NOBODY not in link[::2]
            )
        )
        try:
            said.update(zip(missing, asker.link_probabilities(missing), strict=True))
        except UnsupportedQuery:
            pass  # a model that cannot read a single link has no opinion on it
    return Found(
        nodes,
        stored,
        tuple(1.0 if is_stored else said.get(link) for link, is_stored in zip(links, stored, strict=True)),
        evidence.is_complete,
    )
