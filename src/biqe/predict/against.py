"""What counts against a row: a part of the question that must not hold, and may hold after all.

``FILTER NOT EXISTS { ?city :located_in :Germany }`` leaves out every row for which the graph holds the part. For all
others the part may be missing in the graph and true. Its probability p is that of its best assignment, and the row's
probability is multiplied by 1 - p.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from biqe.exact.filters import Filters, columns_of
from biqe.predict.evidence import IdLink, forward
from biqe.predict.rows import Entities
from biqe.query.bound import BoundQuery

if TYPE_CHECKING:
    from biqe.predict.decompose import Asking


@dataclass(frozen=True)
class Against:
    """A negated part of a question, as likely as it may hold for one row."""

    links: tuple[IdLink, ...]
    """Its missing links, in its best assignment."""
    probability: float


def counts_against(asking: Asking, filters: Filters, query: BoundQuery, rows: Entities) -> list[tuple[Against, ...]]:
    """For each (n, targets) row of ``query``, what the negated parts of its conditions say against it."""
    columns, found = columns_of(query, rows), [list[Against]() for _ in range(len(rows))]
    for part in filters.negated_parts():
        shared = np.stack([columns[part.names[node]] for node in part.targets] or [np.zeros(len(rows), np.int32)], 1)
        different, which = np.unique(shared, axis=0, return_inverse=True)
        said = _judged(asking, part, different.tolist())
        for number, place in enumerate(which.ravel().tolist()):
            found[number].append(said[place])
    return [tuple(each) for each in found]


def chance_of(against: Sequence[Against]) -> float:
    """How probable it is that none of them holds."""
    return math.prod(1.0 - each.probability for each in against)


def _judged(asking: Asking, part: BoundQuery, rows: Sequence[Sequence[int]]) -> list[Against]:
    filled = []
    for row in rows:
        nodes = list(part.nodes)
        for node, entity in zip(part.targets, row, strict=False):
            nodes[node] = entity
        filled.append(replace(part, nodes=tuple(nodes), targets=()))
    if all(value >= 0 for value in filled[0].nodes):
        count = asking.graph.relation_count
        every = [
            [IdLink(q.nodes[s], r, q.nodes[o]) for s, r, o in (forward(edge, count) for edge in q.edges)]
            for q in filled
        ]
        different = list(dict.fromkeys(link for links in every for link in links))
        chances = dict(zip(different, asking.predictor.link_probabilities(different), strict=True))
        return [Against(tuple(links), math.prod(chances[link] for link in links)) for links in every]
    found = []
    for query in filled:
        chance, evidence = asking.closed(query)
        found.append(Against(() if evidence is None else evidence.missing, chance))
    return found
