"""A model on a grown graph that begins with the weights of one that was trained before.

Rows of entities and relations that the old model knows are taken over by name. A new entity begins as the mean of its
peers: for each of its links, the known entities that have the same link (other cities on the same river), or, where
there are none, the same relation (other cities on rivers); a little noise tells new entities with the same links apart.
A new relation begins as the mean of the known ones, with more noise. Everything else is taken over as it is.
"""

from __future__ import annotations

from collections.abc import Mapping
from fnmatch import fnmatchcase

import numpy as np
import torch
from numpy.typing import NDArray

from biqe.errors import InvalidOption, VocabularyMismatch
from biqe.graph.index import Index, objects, subjects
from biqe.graph.knowledge_graph import Graph
from biqe.graph.vocabulary import Names
from biqe.models._contract import QueryModel
from biqe.models.store import LoadedModel

ENTITIES, RELATIONS, DIRECTIONS, TOKENS = "entities", "relations", "directions", "mask and directions"
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
            if kind is not None and any(
                len(table) != _rows(kind, of) for table, of in ((tensor, model), (before[name], old))
            ):
                kind = None  # with these options the model shares such rows among relations
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


def _rows(kind: str, model: QueryModel) -> int:
    if kind == ENTITIES:
        return model.entity_count
    return model.relation_count if kind == RELATIONS else 2 * model.relation_count + (kind == TOKENS)


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
    index = graph.index
    found: dict[int, list[NDArray[np.int64]]] = {}
    for entity in np.flatnonzero(places < 0).tolist():
        groups = (_known(places, group) for group in _alike(index, entity))
        found[entity] = [group for group in groups if len(group)]
    return found


def _alike(index: Index, entity: int) -> list[NDArray[np.integer]]:
    """Of each link of an entity, the entities with the same link; where it is alone, those with the same relation."""
    alike: list[NDArray[np.integer]] = []
    for number in range(int(index.out_offsets[entity]), int(index.out_offsets[entity + 1])):
        relation, other = int(index.out_relations[number]), int(index.out_objects[number])
        same = subjects(index, relation, other)
        alike.append(same if len(same) > 1 else _of_relation(index, relation, index.relation_subjects))
    for number in range(int(index.in_offsets[entity]), int(index.in_offsets[entity + 1])):
        relation, other = int(index.in_relations[number]), int(index.in_subjects[number])
        same = objects(index, other, relation)
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
