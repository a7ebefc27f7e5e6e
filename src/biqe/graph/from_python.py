"""Graphs out of what Python programs have: triples, a DataFrame, a graph of rdflib, triples of PyKEEN, files.

The constructors of ``Graph`` are the way in; they import this module when one of them is called.
"""

from __future__ import annotations

import os
import tempfile
import warnings
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from biqe.errors import EmptyResult, InvalidOption, UnknownName
from biqe.graph import folder as graph_folder
from biqe.graph.blocks import MAX_NAME_BYTES
from biqe.graph.collect import Collector
from biqe.graph.knowledge_graph import Graph
from biqe.graph.read import read_graph
from biqe.graph.search import namespace_of
from biqe.graph.table_shape import name_of
from biqe.graph.triples import as_triples, union
from biqe.graph.values import take_values
from biqe.graph.vocabulary import Names, Vocabulary

_ROLES = ("subject", "relation", "object")


# Triples and tables


def graph_of_triples(triples: Iterable[Sequence[Any]], labels: Mapping[Any, str] | None) -> Graph:
    """The graph of rows (subject, relation, object)."""
    columns: tuple[list[Any], list[Any], list[Any]] = [], [], []
    if not isinstance(triples, Iterable):
        raise InvalidOption(f"from_triples takes rows (subject, relation, object). Got {type(triples).__name__}")
    for number, row in enumerate(triples):
        if isinstance(row, str) or not hasattr(row, "__len__") or len(row) != 3:
            raise InvalidOption(
                f"row {number:,} is no triple: {str(row)[:60]!r}", hint="a triple is (subject, relation, object)"
            )
        for column, value in zip(columns, row, strict=True):
            column.append(value)
    return _graph([_factorized(column) for column in columns], labels)


def graph_of_table(table: Any, names: Sequence[Any], labels: Mapping[Any, str] | None) -> Graph:
    """The graph of three columns of a DataFrame."""
    import pandas

    if not isinstance(table, pandas.DataFrame):
        raise InvalidOption(f"from_pandas takes a DataFrame of pandas. Got {type(table).__name__}")
    for role, name in zip(_ROLES, names, strict=True):
        count = list(table.columns).count(name)
        if count != 1:
            there = ", ".join(map(str, table.columns[:20]))
            raise UnknownName(
                f"the DataFrame has {count or 'no'} column{'s' * (count > 1)} {name!r}, which is to be the {role}",
                hint=f"its columns are {there}; name three of them: Graph.from_pandas(df, SUBJECT, RELATION, OBJECT)",
            )
    columns = []
    for name in names:
        try:
            codes, values = pandas.factorize(table[name])
        except TypeError as error:
            raise InvalidOption(f"column {name!r} holds values that are no names: {error}") from None
        columns.append((codes, list(values)))
    return _graph(columns, labels)


_Column = tuple[NDArray[Any], Sequence[Any]]
"""For each row the place of its value among the different values, or -1 for none; and these values."""


def _factorized(values: Sequence[Any]) -> _Column:
    places: dict[Any, int] = {}
    codes = np.empty(len(values), np.int64)
    for row, value in enumerate(values):
        try:
            codes[row] = places.setdefault((type(value), value), len(places))
        except TypeError:
            raise InvalidOption(f"row {row:,} has a {type(value).__name__}, which is no name: {value!r:.60}") from None
    return codes, [value for _, value in places]


def _graph(columns: Sequence[_Column], labels: Mapping[Any, str] | None) -> Graph:
    texts = [_names(role, *column) for role, column in zip(_ROLES, columns, strict=True)]
    whole = np.ones(len(columns[0][0]), bool)
    for (codes, _), names in zip(columns, texts, strict=True):
        whole &= np.array([name is not None for name in names] + [False])[codes]  # the last stands for the code -1
    if left_out := int(len(whole) - whole.sum()):
        # Level 4 is the line of the user, who called a constructor of Graph.
        warnings.warn(
            f"{left_out:,} of {len(whole):,} rows lack a subject, a relation or an object, and are left out",
            stacklevel=4,
        )
    if not whole.any():
        raise EmptyResult("there is no triple to make a graph of", hint="every triple needs all of its three names")
    into = Collector()
    rows = np.empty((int(whole.sum()), 3), np.int32)
    for column, (interner, (codes, _), names) in enumerate(
        zip((into.entities, into.relations, into.entities), columns, texts, strict=True)
    ):
        used, places = np.unique(codes[whole], return_inverse=True)
        rows[:, column] = interner.ids([str(names[place]) for place in used])[places]
    into.add_rows("train", rows)
    take_values(into)
    entities = into.entities.names()
    vocabulary = Vocabulary(entities, into.relations.names(), _labels(labels or {}, entities))
    return Graph(vocabulary, as_triples(into.parts["train"][0]), into.literals.finished())


def _names(role: str, codes: NDArray[Any], values: Sequence[Any]) -> list[str | None]:
    """The name of each value; None where it stands for none. InvalidOption for what cannot be a name."""
    names = []
    for place, value in enumerate(values):
        try:
            name = name_of(value)
            fault = None if name is None else _fault(name)
        except (TypeError, UnicodeDecodeError):
            fault = f"is a {type(value).__name__}, which is no name"
        if fault is not None:
            row = int(np.flatnonzero(codes == place)[0])
            raise InvalidOption(
                f"row {row:,}: the {role} {fault}: {str(value)[:60]!r}",
                hint="a name identifies something, on one line; clean that column, or leave such rows out",
            )
        names.append(name)
    return names


def _fault(name: str) -> str | None:
    """What is wrong with a name; None for nothing."""
    if "\n" in name or "\r" in name:
        return "runs over the end of a line"
    try:
        size = len(name.encode())
    except UnicodeEncodeError:
        return "is no text of Unicode"
    return f"has {size:,} bytes, and a name may have {MAX_NAME_BYTES:,}" if size > MAX_NAME_BYTES else None


def _labels(labels: Mapping[Any, str], entities: Names) -> dict[int, str]:
    """Labels by entity; those of names that are no entity are dropped."""
    found: dict[int, str] = {}
    for value, label in labels.items():
        name, text = name_of(value), name_of(label)
        entity = entities.find(name) if name is not None else None
        if entity is not None and text is not None and text != name:
            found[entity] = " ".join(text.split())
    return found


# Graphs of other libraries, and files


def graph_of_rdflib(graph: Any) -> Graph:
    """The graph that rdflib holds, by way of N-Triples, so that it is read as a file of it would be."""
    if not hasattr(graph, "serialize") or not hasattr(graph, "namespaces"):
        raise InvalidOption(f"from_rdflib takes a graph of rdflib. Got {type(graph).__name__}")
    parts = graph.graphs() if hasattr(graph, "graphs") else [graph]  # a Dataset has several
    with tempfile.TemporaryDirectory() as place:
        path = Path(place) / "graph.nt"
        with path.open("wb") as file:
            for part in parts:
                part.serialize(destination=file, format="nt", encoding="utf-8")
        found = graph_of_files([path])
    bound = {str(prefix): str(iri) for prefix, iri in graph.namespaces()}
    used = {namespace_of(name) for names in (found.vocabulary.entities, found.vocabulary.relations) for name in names}
    bound = {prefix: iri for prefix, iri in bound.items() if iri in used}
    chosen = {prefix: iri for prefix, iri in found.prefixes.items() if not prefix or iri not in bound.values()}
    return replace(found, prefixes={**chosen, **bound})


def graph_of_pykeen(triples: Any) -> Graph:
    """The graph of a TriplesFactory, or of all parts of a Dataset, with the ids that PyKEEN gave."""
    parts = [getattr(triples, part, None) for part in ("training", "validation", "testing")]
    factories = [part for part in parts if part is not None] or [triples]
    first = factories[0]
    if not all(hasattr(first, name) for name in ("mapped_triples", "entity_to_id", "relation_to_id")):
        raise InvalidOption(
            f"from_pykeen takes a TriplesFactory or a Dataset of PyKEEN. Got {type(triples).__name__}",
            hint="a factory of numbers without names has to be labelled first, or given to from_triples",
        )
    rows = [as_triples(np.asarray(factory.mapped_triples)) for factory in factories]
    return Graph(Vocabulary(_by_id(first, "entity_to_id"), _by_id(first, "relation_to_id")), union(*rows))


def _by_id(factory: Any, kind: str) -> list[str]:
    ids = getattr(factory, kind)
    names = sorted(ids, key=ids.__getitem__)
    if [ids[name] for name in names] != list(range(len(names))):
        raise InvalidOption(f"the ids of {kind} are not 0, 1, 2, ...", hint="give the labelled triples to from_triples")
    return list(map(str, names))


def graph_of_files(paths: Sequence[str | os.PathLike[str]]) -> Graph:
    """The graph in files, or in a graph folder; the splits that they bring are joined."""
    places = [Path(path) for path in paths]
    if len(places) == 1 and graph_folder.is_graph_folder(places[0]):
        prefixes = graph_folder.load_manifest(places[0])["prefixes"]
        return replace(graph_folder.load(places[0])["complete"], prefixes=prefixes)
    read = read_graph(places)
    return replace(read.splits["complete"], prefixes=read.prefixes)


def save(graph: Graph, folder: str | os.PathLike[str], *, force: bool) -> None:
    """Write a graph folder, all triples in train."""
    graph_folder.save(graph.as_splits(), Path(folder), prefixes=graph.prefixes, force=force)
