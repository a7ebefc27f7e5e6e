"""Tables of facts whose objects are numbers or dates: values for SPARQL, not entities that a link could lead to.

    Alien,directed_by,Ridley Scott
    Alien,year,1979

Nothing in such a table says what a value is, so it is told by the relation: all its objects are numbers or dates, its
subjects are not, and hardly any of these objects is an entity elsewhere. Graphs whose entities have numbers for names
stay as they are, and so do tables of nothing but values.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from biqe.graph.collect import Collector
from biqe.graph.literals import Interner
from biqe.graph.table_shape import FEWEST_ROWS, value_kind

FEW = 0.1
"""Share of a relation's subjects that may be called like a value, and of its values that may be entities elsewhere:
1984 is a year, and a film."""


def take_values(into: Collector) -> list[str]:
    """Make literals of the values among the triples of train; the names of their relations."""
    if not into.parts["train"]:
        return []
    rows = np.concatenate(into.parts["train"])
    into.parts["train"] = [rows]
    relations, names = list(into.relations), list(into.entities)
    # One look at each relation: with a name among its objects, it is a relation of links.
    first = np.full(len(relations), -1)
    first[rows[::-1, 1]] = rows[::-1, 2]
    likely = [id_ for id_, entity in enumerate(first.tolist()) if entity >= 0 and value_kind(names[entity])]
    candidates = {}
    for relation in likely:
        chosen = rows[rows[:, 1] == relation]
        subjects, objects = np.unique(chosen[:, 0]), np.unique(chosen[:, 2])
        if (
            len(chosen) >= FEWEST_ROWS
            and all(value_kind(names[entity]) for entity in objects.tolist())
            and sum(value_kind(names[entity]) is not None for entity in subjects.tolist()) <= FEW * len(subjects)
        ):
            candidates[relation] = objects
    if not candidates:
        return []
    elsewhere = np.zeros(len(names), bool)
    elsewhere[rows[:, 0]] = True
    elsewhere[rows[~np.isin(rows[:, 1], list(candidates)), 2]] = True
    taken = [relation for relation, objects in candidates.items() if elsewhere[objects].mean() <= FEW]
    values = np.isin(rows[:, 1], taken)
    if not taken or values.all():  # without any other link, these are what the table is about
        return []
    _move(into, values)
    return sorted(relations[relation] for relation in taken)


def _move(into: Collector, values: NDArray[np.bool_]) -> None:
    """Make literals of these rows, and give ids anew to the names that are left."""
    from pyoxigraph import Literal, NamedNode

    (rows,) = into.parts["train"]
    names, relations = list(into.entities), list(into.relations)
    for subject, relation, object_ in rows[values].tolist():
        kind = value_kind(names[object_])
        assert kind is not None
        into.add_literal(names[subject], relations[relation], Literal(names[object_], datatype=NamedNode(kind)))
    into.counts.triples -= int(values.sum())
    rows = rows[~values]
    entities, ends = np.unique(rows[:, [0, 2]], return_inverse=True)
    used, which = np.unique(rows[:, 1], return_inverse=True)
    into.entities, into.relations = Interner(), Interner()
    into.entities.ids([names[id_] for id_ in entities.tolist()])
    into.relations.ids([relations[id_] for id_ in used.tolist()])
    ends = ends.reshape(-1, 2)
    into.parts["train"] = [np.stack([ends[:, 0], which, ends[:, 1]], 1).astype(np.int32)]
