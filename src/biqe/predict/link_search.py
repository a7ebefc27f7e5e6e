"""Rows by the search over links, where links have calibrated probabilities: nothing else is asked then.

The search (links/beam.py) finds the assignments of all variables, hidden ones too, whose links have the largest product
of probabilities; a stored link counts 1. A row is what such an assignment gives its targets. It comes with its
evidence, the assignment itself, and its probability is the product of those of its missing links, each once.
"""

from __future__ import annotations

import math

import numpy as np
import torch
from numpy.typing import NDArray

from biqe.graph.knowledge_graph import Graph
from biqe.links.beam import joint_tuples
from biqe.links.guided import best_assignments
from biqe.links.search import TUPLE_BEAM
from biqe.links.search import marginals as best_completed
from biqe.links.structures import Batch, StructuredQueries
from biqe.predict.evidence import EvidenceSearch
from biqe.predict.predictor import Predictor, Scores
from biqe.predict.rows import Entities, Listed, Rows
from biqe.query.bound import HIDDEN, BoundQuery, QuerySet, selected_rows

LARGE = 6
"""Variables from which on a query is searched with messages that look ahead (links/guided.py)."""
WIDTH = 24
"""Partial rows that the search keeps, at least, beside all whose links are stored."""
FEWEST = 30
"""Rows that are ranked by their probabilities, at least, however few are wanted."""
GROWTH, MOST = 8, 32_768
"""Factor by which the request grows where too few of the rows are new, and its cap."""


def search_rows(
    predictor: Predictor, graph: Graph, query: BoundQuery, exclude: Entities | None, count: int, width: int
) -> Rows:
    """The ``count`` best rows of a query that the search supports, best first, without those in ``exclude`` and others
    that the graph holds; None: these compete, too."""
    links = predictor.links
    assert links is not None
    batch = _batch(predictor, graph, query)
    beside = _beside(predictor, query)
    search = EvidenceSearch(graph, query)
    order = selected_rows([query])
    # Patterns between constants join no variable, and the search does not see them.
    fixed = search.filled(query.nodes)
    no_row_is_known = any(link.is_closed for link in fixed.missing)
    only_missing = exclude is not None and not no_row_is_known
    asked = max(2 * count, FEWEST)
    is_large = sum(value < 0 for value in query.nodes) >= LARGE
    excluded = None if exclude is None else Listed(exclude)
    while True:
        with torch.no_grad():
            if is_large:
                best = best_assignments(query, graph, links, asked, max(width, WIDTH), _allowed(predictor, query))
                rows, assigned = best.nodes[:, list(query.targets)], best.nodes
            else:
                (found,) = joint_tuples(
                    batch,
                    links,
                    "product",
                    max(width, WIDTH),
                    asked,
                    beside,
                    width_per_pair=TUPLE_BEAM,
                    only_missing=only_missing,
                )
                rows, assigned = found.rows[:, order], np.tile(np.array(query.nodes, np.int32), (len(found.rows), 1))
                assigned[:, list(found.variables)] = found.assignments
        kept = np.arange(len(rows)) if excluded is None else np.flatnonzero(~excluded.holds(rows))
        if len(kept) >= count or len(rows) < asked or asked >= MOST:
            break
        asked = min(MOST, GROWTH * asked)
    # Of the hidden variables, whose entities the search chooses, few assignments are all tried.
    is_complete = links.entity_count ** query.nodes.count(HIDDEN) <= WIDTH
    evidence = [search.filled(nodes, is_complete) for nodes in assigned[kept].tolist()]
    missing = list(dict.fromkeys(link for each in evidence for link in each.missing))
    chances = dict(zip(missing, predictor.link_probabilities(missing), strict=True))
    ranked = Rows(
        rows[kept],
        np.array([math.prod(chances[link] for link in each.missing) for each in evidence], np.float64),
        marginals=lambda: marginals(predictor, graph, query),
        evidence=evidence,
        link_probabilities=chances,
    )
    return ranked.take(np.lexsort((*ranked.entities.T[::-1], -ranked.probabilities))[:count])


def marginals(predictor: Predictor, graph: Graph, query: BoundQuery) -> Scores:
    """(T, E) logarithms of the share of each entity as a target, whatever the other targets are: by its best
    assignment."""
    links = predictor.links
    assert links is not None
    (group,) = _batch(predictor, graph, query).groups
    with torch.no_grad():
        found = best_completed(group, links, "product", WIDTH, _beside(predictor, query))[0]
    return torch.log_softmax(found, 1).numpy()[selected_rows([query])]  # type: ignore[no-any-return]


def _batch(predictor: Predictor, graph: Graph, query: BoundQuery) -> Batch:
    queries = StructuredQueries(QuerySet.of([query]), graph.entity_count, graph.relation_count, predictor.name)
    return queries.batch(np.zeros(1, np.int64))


def _allowed(predictor: Predictor, query: BoundQuery) -> dict[int, NDArray[np.bool_]]:
    """(E,) entities that conditions leave a target, by node."""
    masks = {node: predictor.allowed.get(query.names[node]) for node in query.targets if query.names}
    return {node: mask for node, mask in masks.items() if mask is not None}


def _beside(predictor: Predictor, query: BoundQuery) -> torch.Tensor | None:
    """(T, E) minus infinity where conditions exclude an entity from a target, by ascending node; None without any."""
    masks = _allowed(predictor, query)
    if not masks:
        return None
    table = torch.zeros(len(query.targets), predictor.entity_count)
    for row, node in enumerate(sorted(query.targets)):
        if node in masks:
            table[row, torch.from_numpy(~masks[node])] = -torch.inf
    return table
