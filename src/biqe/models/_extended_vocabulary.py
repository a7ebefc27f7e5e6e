"""A model that answers over a graph with more entities and relations than it was trained on.

The first entities and relations of the graph are the model's own, with the same ids. The model goes on predicting among
those. An entity that it has never seen gets no probability, and a query that names one, or a relation that is new, is
refused with its reason.
"""

from __future__ import annotations

import copy
from collections.abc import Iterable
from dataclasses import replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from biqe.errors import UnsupportedQuery
from biqe.graph.grown import first_part
from biqe.graph.knowledge_graph import Graph
from biqe.models._contract import (
    Encoded,
    FindsTuples,
    HasAttention,
    QueryModel,
    SolvesOtherwise,
    Support,
    Trace,
    Tuples,
    UsesGraph,
    use_graph,
)
from biqe.query.bound import BoundQuery
from biqe.query.queryset import QuerySet

if TYPE_CHECKING:
    from biqe.links.probability import LinkProbability

HINT = "take it in with: biqe train --continue RUN --graph GRAPH --out NEW; mode 'known' answers from the graph alone"


def over_graph(model: QueryModel, graph: Graph) -> QueryModel:
    """``model`` as it answers over ``graph``, which has all that it knows and perhaps more. The given model is left as
    it is."""
    if isinstance(model, UsesGraph):
        model = copy.copy(model)  # shares the weights; what it keeps of a graph is its own
    if (graph.entity_count, graph.relation_count) != (model.entity_count, model.relation_count):
        model = _extended(model, graph.entity_count, graph.relation_count)
    use_graph(model, graph)
    return model


def _extended(model: QueryModel, entity_count: int, relation_count: int) -> ExtendedModel:
    """A wrapper that has the optional protocols of ``model``, and no others."""
    parts = tuple(part for protocol, part in _OPTIONAL if isinstance(model, protocol))
    kind = type("ExtendedModel", (*parts, ExtendedModel), {})
    return kind(model, entity_count, relation_count)  # type: ignore[no-any-return]


class ExtendedModel(QueryModel):
    """A model among the first entities and relations of a larger vocabulary."""

    def __init__(self, model: QueryModel, entity_count: int, relation_count: int) -> None:
        super().__init__()
        self.model: Any = model
        self.name, self.config, self.paper = model.name, model.config, model.paper
        self.entity_count = entity_count
        self.relation_count = relation_count
        self.seen = model.entity_count, model.relation_count
        """Entities and relations that the model knows."""
        self.train(model.training)

    def supports(self, query: BoundQuery, *, strict: bool = True) -> Support:
        """What the model supports, of what it knows."""
        if self._is_unseen(query.nodes, (relation for _, relation, _ in query.edges)):
            return Support(False, "it names an entity or a relation that is newer than the model", HINT)
        edges = tuple((subject, self._relation(relation), object_) for subject, relation, object_ in query.edges)
        return self.model.supports(replace(query, edges=edges), strict=strict)  # type: ignore[no-any-return]

    def _is_unseen(self, nodes: Iterable[int], relations: Iterable[int]) -> bool:
        entities, known = self.seen
        return any(node >= entities for node in nodes) or any(r % self.relation_count >= known for r in relations)

    def _relation(self, relation: int) -> int:
        """The model's id of a relation. Inverses are numbered right behind the relations, of which it has fewer."""
        return relation if relation < self.relation_count else relation - self.relation_count + self.seen[1]

    def encode(self, queries: QuerySet) -> Encoded:
        return self.model.encode(self._own(queries))  # type: ignore[no-any-return]

    def _own(self, queries: QuerySet) -> QuerySet:
        """The queries with the model's ids."""
        relation = queries.edges[:, 1]
        entities, relations = self.seen
        if (queries.nodes >= entities).any() or (relation % self.relation_count >= relations).any():
            raise UnsupportedQuery("a query names what is newer than the model", hint=HINT)
        edges = queries.edges.copy()
        edges[:, 1] = np.where(relation < self.relation_count, relation, relation - self.relation_count + relations)
        return replace(queries, edges=edges)

    def scores(self, batch: Any) -> torch.Tensor:
        return self._widened(self.model.scores(batch))

    def _widened(self, scores: torch.Tensor) -> torch.Tensor:
        """(V, E) with no probability for entities that the model does not know."""
        wide = scores.new_full((len(scores), self.entity_count), -torch.inf)
        wide[:, : scores.shape[1]] = scores
        return wide

    def loss(self, batch: Any, *, label_smoothing: float = 0.0) -> torch.Tensor:
        """That of the model: new entities and relations are learnt by ``biqe train --continue``."""
        return self.model.loss(batch, label_smoothing=label_smoothing)  # type: ignore[no-any-return]


class _Attention(ExtendedModel):
    def trace(self, batch: Any) -> Trace:
        """That of the model."""
        found = self.model.trace(batch)
        return replace(found, scores=self._widened(found.scores))


class _Solving(ExtendedModel):
    @property
    def solving_options(self) -> tuple[str, ...]:
        """Those of the model."""
        return self.model.solving_options  # type: ignore[no-any-return]

    def solving(self, **options: Any) -> QueryModel:
        """The model with other options, over the same vocabulary."""
        found = type(self)(self.model.solving(**options), self.entity_count, self.relation_count)
        found.__dict__.update({name: self.__dict__[name] for name in ("_graph",) if name in self.__dict__})
        return found


class _Graph(ExtendedModel):
    @property
    def looks_facts_up(self) -> bool:
        """As the model does."""
        return bool(self.model.looks_facts_up)

    def use_graph(self, graph: Graph) -> None:
        """Tell the model the part of ``graph`` that it knows the names of."""
        entities, relations = self.seen
        part = first_part(graph.vocabulary, entities, relations)
        assert part is not None
        triples = graph.triples
        inside = (triples[:, 0] < entities) & (triples[:, 1] < relations) & (triples[:, 2] < entities)
        self.model = copy.copy(self.model)
        self.model.use_graph(Graph(part, np.ascontiguousarray(triples[inside])))
        self._graph = graph

    @cached_property
    def link_probability(self) -> LinkProbability | None:
        """Probabilities of links over the whole graph: rules and kinds speak of what is newer than the model, too."""
        knowledge = getattr(self.model, "knowledge", None)
        if knowledge is None:
            return None
        from biqe.links.probability import LinkProbability

        return LinkProbability(knowledge, self.model.links, self._graph)


class _Tuples(ExtendedModel):
    def tuples(
        self, queries: QuerySet, count: int, marginals: torch.Tensor | None = None, width: int | None = None
    ) -> list[Tuples] | None:
        """Those of the model."""
        own = None if marginals is None else marginals[:, : self.seen[0]].contiguous()
        return self.model.tuples(self._own(queries), count, own, width)  # type: ignore[no-any-return]


_OPTIONAL = ((HasAttention, _Attention), (SolvesOtherwise, _Solving), (UsesGraph, _Graph), (FindsTuples, _Tuples))
"""What a wrapper needs for each optional protocol."""
