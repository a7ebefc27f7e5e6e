"""Statistics of a graph: counts, degrees, relations and their kinds, splits, entities that train lacks."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from biqe.graph.knowledge_graph import SPLITS, Graph, Splits
from biqe.graph.triples import Triples, contains

KINDS = ("1-1", "1-N", "N-1", "N-N")
_MANY = 1.5
"""Average number from which a side counts as many; the cut that the literature on FB15k uses."""


@dataclass(frozen=True)
class Degrees:
    """How many triples entities stand in, as subject or object; a loop counts twice. Entities without a triple too."""

    mean: float
    median: float
    most: int
    most_entity: int
    """An entity of the highest degree."""
    isolated: int
    """Entities without a triple."""
    histogram: list[tuple[int, int, int]]
    """(from, to, entities) with bounds at powers of two."""


@dataclass(frozen=True)
class RelationStatistics:
    """One relation in the complete graph."""

    relation: int
    name: str
    triples: int
    subjects: int
    objects: int
    kind: str
    """1-1, 1-N, N-1 or N-N: subjects per object on the left, objects per subject on the right."""


@dataclass(frozen=True)
class SplitStatistics:
    """One split."""

    name: str
    triples: int
    entities: int
    relations: int
    unseen_entities: int
    """Entities of this split without a triple in train."""
    unseen_relations: int
    triples_with_unseen: int
    """Triples that name an unseen entity or relation."""
    in_train: int
    """Triples that train holds as well."""


@dataclass(frozen=True)
class Statistics:
    """Everything ``biqe stats`` shows."""

    entities: int
    relations: int
    triples: int
    """Distinct triples over all splits."""
    labels: int
    loops: int
    """Triples from an entity to itself."""
    degrees: Degrees
    splits: list[SplitStatistics]
    relation_statistics: list[RelationStatistics]
    """Most frequent first."""
    kinds: dict[str, int]
    """Number of relations of each kind."""
    fingerprint: str


def statistics(splits: Splits) -> Statistics:
    """Statistics of ``splits``; degrees, relations and loops are those of the complete graph."""
    complete = splits["complete"]
    relations = _relations(complete)
    return Statistics(
        entities=complete.entity_count,
        relations=complete.relation_count,
        triples=len(complete.triples),
        labels=len(splits.vocabulary.labels),
        loops=int((complete.triples[:, 0] == complete.triples[:, 2]).sum()),
        degrees=_degrees(complete),
        splits=[_split(splits, name) for name in SPLITS],
        relation_statistics=relations,
        kinds={kind: sum(relation.kind == kind for relation in relations) for kind in KINDS},
        fingerprint=splits.fingerprint,
    )


def unseen_entities(splits: Splits, split: str) -> NDArray[np.int32]:
    """Entities that have a triple in ``split`` but none in train, ascending."""
    count = len(splits.vocabulary.entities)
    seen = _marked(splits.train[:, [0, 2]], count)
    here = _marked(splits[split].triples[:, [0, 2]], count)
    return np.flatnonzero(here & ~seen).astype(np.int32)


def _marked(ids: NDArray[np.int32], count: int) -> NDArray[np.bool_]:
    marks = np.zeros(count, bool)
    marks[ids.ravel()] = True
    return marks


def _degrees(graph: Graph) -> Degrees:
    degrees = np.bincount(graph.triples[:, [0, 2]].ravel(), minlength=graph.entity_count)
    if len(degrees) == 0:
        return Degrees(0.0, 0.0, 0, -1, 0, [])
    histogram = []
    low = 1
    while low <= degrees.max():
        high = 2 * low - 1
        histogram.append((low, high, int(((degrees >= low) & (degrees <= high)).sum())))
        low *= 2
    return Degrees(
        mean=float(degrees.mean()),
        median=float(np.median(degrees)),
        most=int(degrees.max()),
        most_entity=int(degrees.argmax()),
        isolated=int((degrees == 0).sum()),
        histogram=histogram,
    )


def _relations(graph: Graph) -> list[RelationStatistics]:
    triples, count = graph.triples, graph.relation_count
    total = np.bincount(triples[:, 1], minlength=count)
    subjects, objects = _distinct(triples, 0, count), _distinct(triples, 2, count)
    order = np.argsort(-total, kind="stable")
    found = []
    for relation in order.tolist():
        pairs = int(total[relation])
        left = "N" if pairs >= _MANY * max(1, int(objects[relation])) else "1"
        right = "N" if pairs >= _MANY * max(1, int(subjects[relation])) else "1"
        found.append(
            RelationStatistics(
                relation,
                graph.vocabulary.relations[relation],
                pairs,
                int(subjects[relation]),
                int(objects[relation]),
                f"{left}-{right}",
            )
        )
    return found


def _distinct(triples: Triples, column: int, count: int) -> NDArray[np.int64]:
    """For each relation, the number of distinct entities in a column."""
    keys = np.sort((triples[:, 1].astype(np.int64) << 32) | triples[:, column])
    first = np.ones(len(keys), bool)
    first[1:] = keys[1:] != keys[:-1]
    return np.bincount(keys[first] >> 32, minlength=count)


def _split(splits: Splits, name: str) -> SplitStatistics:
    triples = splits[name].triples
    entity_count, relation_count = len(splits.vocabulary.entities), len(splits.vocabulary.relations)
    entities = _marked(triples[:, [0, 2]], entity_count)
    relations = _marked(triples[:, 1], relation_count)
    new_entities = entities & ~_marked(splits.train[:, [0, 2]], entity_count)
    new_relations = relations & ~_marked(splits.train[:, 1], relation_count)
    touched = new_entities[triples[:, 0]] | new_entities[triples[:, 2]] | new_relations[triples[:, 1]]
    return SplitStatistics(
        name=name,
        triples=len(triples),
        entities=int(entities.sum()),
        relations=int(relations.sum()),
        unseen_entities=int(new_entities.sum()),
        unseen_relations=int(new_relations.sum()),
        triples_with_unseen=int(touched.sum()),
        in_train=int(contains(splits.train, triples).sum()) if name != "train" else len(triples),
    )
