"""What a model says about the targets of a query, as log-probabilities over all entities."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from biqe.errors import UnsupportedQuery
from biqe.query.bound import TARGET, BoundQuery
from biqe.query.orient import orient
from biqe.query.queryset import QuerySet

if TYPE_CHECKING:
    from biqe.models._contract import QueryModel

SCORES_AT_ONCE = 32_000_000
"""Scores that one model call may return (128 MB of float32); more queries than that go in several calls."""


class Predictor:
    """A model, asked in queries as the user wrote them.

    A model trained with inverses is asked with every edge pointing away from the anchors, whatever way the
    user wrote the pattern; any other model gets the query as it stands.
    """

    def __init__(self, model: QueryModel) -> None:
        self.model = model
        self.name = model.name
        self.inverses = bool(getattr(model.config, "inverses", False))
        self.entity_count = model.entity_count

    def prepare(self, query: BoundQuery) -> BoundQuery:
        """``query`` as the model reads it, nodes in the same order; UnsupportedQuery where it cannot."""
        oriented = orient(query, self.model.relation_count) if self.inverses else query
        support = self.model.supports(oriented)
        if not support.yes:
            known = "mode 'known' (--mode known) answers from the graph alone"
            hint = f"{support.hint}; {known}" if support.hint else known
            raise UnsupportedQuery(f"{self.name} cannot predict this query: {support.reason}", hint=hint)
        return oriented

    def log_probabilities(self, prepared: Sequence[BoundQuery]) -> NDArray[np.float32]:
        """(V, E) one row for each target: query by query, and in a query in the order of its ``targets``."""
        # Queries come from ``prepare``; torch is imported by whoever loaded the model.
        import torch

        with torch.inference_mode():
            scores = self.model.scores(self.model.encoder(QuerySet.of(prepared))).numpy()
        order: list[int] = []
        start = 0
        for query in prepared:
            by_node = {node: start + row for row, node in enumerate(sorted(query.targets))}
            order.extend(by_node[node] for node in query.targets)
            start += len(by_node)
        return scores if order == list(range(len(order))) else scores[order]

    def queries_at_once(self, targets: int) -> int:
        """How many queries with so many targets go in one call."""
        return max(1, SCORES_AT_ONCE // max(1, targets * self.entity_count))

    def link_probabilities(self, links: Sequence[tuple[int, int, int]]) -> list[float]:
        """How probable each link (subject, relation, object) is: the object's share when the model is asked
        for the objects of that subject and relation, everything else left out."""
        asked = sorted({(subject, relation) for subject, relation, _ in links})
        if not asked:
            return []
        # All of these queries have one structure, so one preparation serves them all.
        template = self.prepare(BoundQuery((asked[0][0], TARGET), ((0, asked[0][1], 1),), (1,)))
        ((start, _, stop),) = template.edges
        queries = [
            replace(template, nodes=(subject, TARGET), edges=((start, relation, stop),)) for subject, relation in asked
        ]
        found: dict[tuple[int, int, int], float] = {}
        objects: dict[tuple[int, int], list[int]] = {}
        for subject, relation, object_ in links:
            objects.setdefault((subject, relation), []).append(object_)
        step = self.queries_at_once(1)
        for first in range(0, len(asked), step):
            scores = self.log_probabilities(queries[first : first + step])
            for row, key in zip(scores, asked[first : first + step], strict=True):
                found.update(((*key, object_), float(np.exp(row[object_]))) for object_ in objects[key])
        return [found[subject, relation, object_] for subject, relation, object_ in links]
