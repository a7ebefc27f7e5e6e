"""A trained model and a graph that has grown since: answering over it, and learning on from what is known.

``over_graph``: the first entities and relations of the graph are the model's own, with the same ids, and the model goes
on predicting among those. An entity that it has never seen gets no probability; a query that names one, or a relation
that is new, is refused with its reason.

``take_over``: a fresh model begins with the rows of a trained one, by name. A new entity begins as the mean of its
peers: for each of its links, the known entities that have the same link (other cities on the same river), or, where
there are none, the same relation (other cities on rivers); a little noise tells new entities with the same links apart.
A new relation begins as the mean of the known ones, with more noise. Everything else is taken over as it is.
"""

from __future__ import annotations

import copy
from collections.abc import Iterable, Mapping
from dataclasses import replace
from fnmatch import fnmatchcase
from functools import cache, cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray

from biqe.errors import InvalidOption, UnsupportedQuery, VocabularyMismatch
from biqe.graph.index import Index
from biqe.graph.knowledge_graph import Graph
from biqe.graph.vocabulary import Names, first_part
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
from biqe.models.store import LoadedModel
from biqe.query.bound import BoundQuery, QuerySet

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
    return _kind(parts)(model, entity_count, relation_count)


@cache
def _kind(parts: tuple[type[ExtendedModel], ...]) -> type[ExtendedModel]:
    return type("ExtendedModel", (*parts, ExtendedModel), {})


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
        kept = self.__dict__.keys() & {"_graph", "link_probability"}
        found.__dict__.update({name: self.__dict__[name] for name in kept})
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


# Learning on.

ENTITIES, RELATIONS, TOKENS = "entities", "relations", "mask and directions"
"""What the rows of a table stand for, see DescribesTraining; directions are relations, then their inverses."""
ENTITY_NOISE = 0.1
"""Of a new entity, in standard deviations of the table."""
RELATION_NOISE = 0.5
PEERS = 1_000
"""Entities with the same link that are looked at, at most."""


def take_over(model: QueryModel, trained: LoadedModel, graph: Graph) -> None:
    """Give ``model``, which is fresh and as large as ``graph``, the weights of ``trained``.

    Refused: a graph that lacks an entity or relation of the trained model, and a model that is built otherwise.
    """
    old = trained.model
    if (model.name, model.config) != (old.name, old.config):
        raise InvalidOption(
            f"a model is continued as it was built. Got {model.name}, with other options than before",
            hint="leave out the options of the model",
        )
    entities = _places(graph.vocabulary.entities, trained.vocabulary.entities, "entities")
    relations = _places(graph.vocabulary.relations, trained.vocabulary.relations, "relations")
    before = old.state_dict()
    peers = _peers(graph, entities)
    with torch.no_grad():
        for name, tensor in model.state_dict().items():
            kind = next((kind for pattern, kind in _tables(model).items() if fnmatchcase(name, pattern)), None)
            if kind == ENTITIES:
                tensor.copy_(_entity_rows(before[name], entities, peers))
            elif kind is not None:
                tensor.copy_(_relation_rows(before[name], relations, kind))
            elif tensor.shape == before[name].shape:
                tensor.copy_(before[name])
            else:
                raise InvalidOption(
                    f"{model.name} cannot be continued on a grown graph: its weights {name!r} depend on its size",
                    hint="train it anew",
                )


def _tables(model: QueryModel) -> Mapping[str, str]:
    return getattr(model, "tables", {})


Places = NDArray[np.int64]
"""Id in the old vocabulary of each name of the new one; -1 for a new name."""


def _places(names: Names, known: Names, what: str) -> Places:
    found = np.full(len(names), -1, np.int64)
    missing = []
    for old, name in enumerate(known):
        new = names.find(name)
        if new is None:
            missing.append(name)
        else:
            found[new] = old
    if missing:
        raise VocabularyMismatch(
            f"the model knows {len(missing):,} {what} that this graph does not have, such as {missing[0]!r}",
            hint="continue on the graph that the model was trained on, or on one that has grown out of it",
        )
    return found


def _peers(graph: Graph, places: Places) -> dict[int, list[NDArray[np.int64]]]:
    """For each new entity, the old ids of its peers, one group for each of its links that has any."""
    found: dict[int, list[NDArray[np.int64]]] = {}
    for entity in np.flatnonzero(places < 0).tolist():
        groups = (_known(places, group) for group in _alike(graph, entity))
        found[entity] = [group for group in groups if len(group)]
    return found


def _alike(graph: Graph, entity: int) -> list[NDArray[np.integer]]:
    """Of each link of an entity, the entities with the same link; where it is alone, those with the same relation."""
    index = graph.index
    alike: list[NDArray[np.integer]] = []
    for number in range(int(index.out_offsets[entity]), int(index.out_offsets[entity + 1])):
        relation, other = int(index.out_relations[number]), int(index.out_objects[number])
        same = graph.subjects(relation, other)
        alike.append(same if len(same) > 1 else _of_relation(index, relation, index.relation_subjects))
    for number in range(int(index.in_offsets[entity]), int(index.in_offsets[entity + 1])):
        relation, other = int(index.in_relations[number]), int(index.in_subjects[number])
        same = graph.objects(other, relation)
        alike.append(same if len(same) > 1 else _of_relation(index, relation, index.relation_objects))
    return alike


def _of_relation(index: Index, relation: int, ends: NDArray[np.int32]) -> NDArray[np.int32]:
    return ends[index.relation_offsets[relation] : index.relation_offsets[relation + 1]]


def _known(places: Places, entities: NDArray[np.integer]) -> NDArray[np.int64]:
    old = places[entities]
    old = old[old >= 0]
    return old[:: max(1, len(old) // PEERS)]


def _entity_rows(before: torch.Tensor, places: Places, peers: dict[int, list[NDArray[np.int64]]]) -> torch.Tensor:
    rows = before[torch.from_numpy(np.maximum(places, 0))].clone()
    everybody = before.mean(0)
    for entity, groups in peers.items():
        means = [before[torch.from_numpy(group)].mean(0) for group in groups]
        rows[entity] = torch.stack(means).mean(0) if means else everybody
    return _noisy(rows, before, torch.from_numpy(places < 0), ENTITY_NOISE)


def _relation_rows(before: torch.Tensor, places: Places, kind: str) -> torch.Tensor:
    head = before[:1] if kind == TOKENS else before[:0]
    known = before[len(head) :]
    count = len(known) if kind == RELATIONS else len(known) // 2
    # Inverses come right behind the relations, in the same order.
    all_places = [places] if kind == RELATIONS else [places, np.where(places < 0, -1, places + count)]
    parts = [head]
    for part, own in zip(all_places, known.split(count), strict=True):
        rows = known[torch.from_numpy(np.maximum(part, 0))].clone()
        new = torch.from_numpy(part < 0)
        rows[new] = own.mean(0)
        parts.append(_noisy(rows, known, new, RELATION_NOISE))
    return torch.cat(parts)


def _noisy(rows: torch.Tensor, before: torch.Tensor, new: torch.Tensor, scale: float) -> torch.Tensor:
    count = int(new.sum())
    if count and rows.dim() > 1 and len(before) > 1:  # a bias is a number of its own, and needs no noise
        rows[new] += scale * before.std(0) * torch.randn(count, *rows.shape[1:])
    return rows
