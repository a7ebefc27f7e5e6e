"""GQE's Bio files (Hamilton et al. 2018), read as they were published.

    bio/
    ├── graph_data.pkl                      relations by node type, adjacency by relation, nodes by type
    ├── val_edges.pkl test_edges.pkl        edges that are held out, as questions of type 1-chain
    ├── train_edges.pkl                     all other edges; not read, since they are the adjacency without those
    └── {train,val,test}_queries_{2,3}.pkl  questions of the other six types

An edge is ``(head, (head_type, relation, tail_type), tail)``; a question is ``(query_graph, negatives, hard
negatives)`` and a query graph a tuple of its type and its edges, which lead from the target to the constants. A
relation and the one with its types swapped are inverses of each other; one between entities of one type is its own
inverse, so its triples are held both ways. An entity is named ``type/node``, a relation ``type/relation/type``.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from biqe.benchmarks.opened import OpenBenchmark, cached_questions
from biqe.benchmarks.restricted_pickle import brief, load_pickle
from biqe.benchmarks.set_operations import sorted_sets
from biqe.benchmarks.shaped import LAYOUTS, ShapedQueries, join_shapes, lay_out
from biqe.benchmarks.storage import cache_folder, cached_columns, key_of
from biqe.benchmarks.typed_queries import TYPES
from biqe.errors import EmptyResult, InvalidOption, UnreadableFile
from biqe.graph import folder as graph_folder
from biqe.graph.knowledge_graph import SPLITS, Splits
from biqe.graph.triples import Triples, as_triples, contains, difference
from biqe.graph.vocabulary import Vocabulary
from biqe.query.bound import AnswerSets

NEEDED = ("graph_data.pkl", "val_edges.pkl", "test_edges.pkl")
FILE_SPLITS = {"train": "train", "valid": "val", "test": "test"}
"""Our name of each split, and its name in the files."""

RelationKey = tuple[str, str, str]

_CHAINS = {"1-chain": 1, "2-chain": 2, "3-chain": 3}
_INTERSECTIONS = {"2-inter": 2, "3-inter": 3}


@dataclass(frozen=True)
class TypedSplits:
    """The splits of a graph whose entities have types."""

    splits: Splits
    types: NDArray[np.int8]
    """(E,) index into ``type_names``."""
    type_names: tuple[str, ...]


def read_graph(folder: str | Path) -> TypedSplits:
    """The graph in ``folder``: training triples are all but the held-out ones."""
    folder = Path(folder)
    path = folder / "graph_data.pkl"
    held = load_pickle(path)
    if not isinstance(held, tuple | list) or len(held) != 3:
        raise UnreadableFile(f"{path} must hold three things: relations, adjacency and nodes by type")
    _, adjacency, nodes = held
    if not isinstance(adjacency, Mapping) or not isinstance(nodes, Mapping):
        raise UnreadableFile(f"{path} must hold adjacency and nodes as dicts")
    names, types, type_names = _entities(nodes, path)
    relations = sorted({canonical(_relation_key(key, path)) for key in adjacency})
    relation_names = ["/".join(key) for key in relations]
    if len(set(relation_names)) < len(relations):
        raise UnreadableFile(f"{path} has relations that cannot be told apart by their names")
    vocabulary = Vocabulary(names, relation_names)
    edges = _Edges({name: id_ for id_, name in enumerate(names)}, {key: id_ for id_, key in enumerate(relations)}, path)
    every = edges.triples(
        (head, key, tail) for key, ends in adjacency.items() for head, tails in _ends(ends, path) for tail in tails
    )
    parts = {}
    for split in SPLITS[1:]:
        file = folder / f"{FILE_SPLITS[split]}_edges.pkl"
        parts[split] = _Edges(edges.entities, edges.relations, file).triples(_held_out(load_pickle(file), file))
        unknown = int((~contains(every, parts[split])).sum())
        if unknown:
            raise UnreadableFile(f"{file}: {unknown:,} of its {len(parts[split]):,} edges are not in {path.name}")
    train = difference(difference(every, parts["valid"]), parts["test"])
    splits = Splits(vocabulary, train, difference(parts["valid"], parts["test"]), parts["test"])
    return TypedSplits(splits, types, type_names)


def read_split(folder: str | Path, split: str, vocabulary: Vocabulary) -> ShapedQueries:
    """The questions of ``train``, ``valid`` or ``test``, each with the target it was sampled from as gold entity.

    Held-out splits have questions of type 1-chain from their edges; the edges of train are triples of the graph.
    """
    if split not in SPLITS:
        raise InvalidOption(f"split must be one of {', '.join(SPLITS)}. Got {split!r}")
    files = question_files(folder, split)
    if not files:
        raise EmptyResult(f"{folder} has no {split} questions: no file {FILE_SPLITS[split]}_queries_2.pkl")
    return read_questions(files, vocabulary)


def question_files(folder: str | Path, split: str) -> list[Path]:
    """The files with questions of ``split`` that are there."""
    word = FILE_SPLITS[split]
    names = ([] if split == "train" else [f"{word}_edges.pkl"]) + [f"{word}_queries_{size}.pkl" for size in (2, 3)]
    return [Path(folder) / name for name in names if (Path(folder) / name).is_file()]


def open_folder(folder: str | Path, name: str = "bio") -> OpenBenchmark:
    """The benchmark in ``folder``; graph and questions are read once into the cache."""
    folder = Path(folder)
    key = key_of("gqe", 1, files=[folder / file for file in NEEDED])
    graph = load_typed(name, key, lambda: read_graph(folder))
    splits = graph.splits

    def read(split: str) -> ShapedQueries:
        files = question_files(folder, split)
        key = key_of("gqe", 1, split, splits.fingerprint, files=files)
        return cached_questions(f"{name}-{split}", key, splits, lambda: read_split(folder, split, splits.vocabulary))

    asked = [path for split in SPLITS for path in question_files(folder, split)]
    return OpenBenchmark(
        name,
        "bio",
        splits,
        key_of("gqe", name, splits.fingerprint, files=asked),
        read,
        lambda: read("train") if question_files(folder, "train") else None,
        types=graph.types,
        type_names=graph.type_names,
    )


def load_typed(name: str, key: str, make) -> TypedSplits:  # type: ignore[no-untyped-def]
    """A typed graph from the cache; made by ``make`` where it is not there."""
    place = cache_folder() / "graphs" / f"{name}-{key}"
    made: list[TypedSplits] = []

    def once() -> TypedSplits:
        if not made:
            made.append(make())
        return made[0]

    def columns() -> dict[str, NDArray[Any]]:
        graph = once()
        return {"types": graph.types, "names": np.frombuffer("\n".join(graph.type_names).encode(), np.uint8)}

    found = cached_columns(f"{name}-types", key, columns)
    try:
        splits = graph_folder.load(place)
    except UnreadableFile:
        graph_folder.save(once().splits, place, force=True)
        splits = graph_folder.load(place)
    if len(found["types"]) != len(splits.vocabulary.entities):
        raise UnreadableFile(f"the kept types of {name} do not fit its kept graph", hint=f"delete {place}")
    return TypedSplits(splits, found["types"], tuple(found["names"].tobytes().decode().split("\n")))


def _entities(nodes: Mapping[Any, Any], path: Path) -> tuple[list[str], NDArray[np.int8], tuple[str, ...]]:
    """Names of all entities, type after type, and their types."""
    if not nodes or len(nodes) > 127 or not all(isinstance(kind, str) for kind in nodes):
        raise UnreadableFile(f"{path} must hold the nodes of 1 to 127 types by the type's name")
    type_names = tuple(sorted(nodes))
    names: list[str] = []
    sizes = []
    for kind in type_names:
        members = nodes[kind]
        if not isinstance(members, list | tuple | set | frozenset | dict):
            raise UnreadableFile(f"{path}: the nodes of type {kind!r} must be a list or a set")
        # -1 stands for "no node" in these files. Sets have no order of their own.
        try:
            own = [entity_name(kind, node) for node in members if node != -1]
        except TypeError as error:
            raise UnreadableFile(f"{path}: {error}") from error
        names += own if isinstance(members, list | tuple) else sorted(own)
        sizes.append(len(own))
    if len(set(names)) < len(names):
        raise UnreadableFile(f"{path} names {len(names) - len(set(names)):,} nodes twice")
    return names, np.repeat(np.arange(len(type_names), dtype=np.int8), sizes), type_names


def _relation_key(key: Any, path: Path) -> RelationKey:
    if not isinstance(key, tuple) or len(key) != 3 or not all(isinstance(part, str) for part in key):
        raise UnreadableFile(f"{path}: a relation is (head type, relation, tail type). Got {brief(key)}")
    return key


def _ends(ends: Any, path: Path) -> Iterable[tuple[Any, Iterable[Any]]]:
    if not isinstance(ends, Mapping):
        raise UnreadableFile(f"{path}: the adjacency of a relation must be a dict from node to its neighbours")
    for head, tails in ends.items():
        if not isinstance(tails, list | tuple | set | frozenset):
            raise UnreadableFile(f"{path}: the neighbours of {brief(head)} must be a list or a set")
        yield head, (tail for tail in tails if tail != -1)


def _held_out(entries: Any, path: Path) -> Iterable[tuple[Any, Any, Any]]:
    """Edges of a file: bare ones, or questions of type 1-chain."""
    if not isinstance(entries, list | tuple):
        raise UnreadableFile(f"{path} must hold a list of edges. Got {type(entries).__name__}")
    for number, entry in enumerate(entries):
        edge = entry
        if isinstance(entry, tuple | list) and entry and isinstance(entry[0], tuple | list):
            edge = entry[0][1] if len(entry[0]) == 2 else None
        if not isinstance(edge, tuple) or len(edge) != 3:
            raise UnreadableFile(f"{path}, entry {number:,}: an edge is (head, relation, tail). Got {brief(entry)}")
        yield edge


class _Edges:
    """Turns edges in names into triples, every one in the direction that is held."""

    def __init__(self, entities: dict[str, int], relations: dict[RelationKey, int], path: Path) -> None:
        self.entities, self.relations, self.path = entities, relations, path

    def triples(self, edges: Iterable[tuple[Any, Any, Any]]) -> Triples:
        rows: list[int] = []
        for head, key, tail in edges:
            key = _relation_key(key, self.path)
            own = canonical(key)
            relation = self.relations.get(own)
            try:
                start, end = (self.entities.get(entity_name(*n)) for n in ((key[0], head), (key[2], tail)))
            except TypeError as error:
                raise UnreadableFile(f"{self.path}: {error}") from error
            if relation is None or start is None or end is None:
                raise UnreadableFile(f"{self.path}: the edge {brief((head, key, tail))} has an unknown part")
            rows += (start, relation, end) if own == key else (end, relation, start)
            if key[0] == key[2]:
                rows += (end, relation, start)
        return as_triples(rows)


class _NotOfType(Exception):
    """A query graph that is not built as its type says; caught within this file."""


def canonical(key: RelationKey) -> RelationKey:
    """Of a relation and its inverse the one whose triples are held: the types in alphabetical order."""
    return key if key[0] <= key[2] else (key[2], key[1], key[0])


def entity_name(kind: Any, node: Any) -> str:
    """``type/node``; TypeError, for the caller to say where, if the type is no text or the node neither that nor a
    whole number."""
    if not isinstance(kind, str) or not isinstance(node, int | str):
        raise TypeError(f"a node is a whole number or a text, its type a text, not {brief(node)} of {brief(kind)}")
    return f"{kind}/{node}"


def read_questions(files: Sequence[Path], vocabulary: Vocabulary) -> ShapedQueries:
    """The questions of all ``files``, type after type."""
    reader = _Reader(vocabulary)
    for path in files:
        entries = load_pickle(path)
        if not isinstance(entries, list | tuple):
            raise UnreadableFile(f"{path} must hold a list of questions. Got {type(entries).__name__}")
        for number, entry in enumerate(entries):
            reader.add(entry, f"{path}, entry {number:,}")
    return reader.questions()


class _Reader:
    def __init__(self, vocabulary: Vocabulary) -> None:
        self.vocabulary = vocabulary
        self.entities = {name: id_ for id_, name in enumerate(vocabulary.entities)}
        self.relations = {name: id_ for id_, name in enumerate(vocabulary.relations)}
        self.rows: dict[str, list[tuple[int, ...]]] = {name: [] for name in TYPES}
        """By type: the target, the constants, the relations."""
        self.negatives: dict[str, list[tuple[Any, Any]]] = {name: [] for name in TYPES}

    def add(self, entry: Any, place: str) -> None:
        """One question, ``(query_graph, negatives, hard negatives)``, or a bare edge."""
        if isinstance(entry, tuple) and len(entry) == 3 and not isinstance(entry[0], tuple | list):
            entry = (("1-chain", entry), None, None)
        if not isinstance(entry, tuple | list) or len(entry) != 3 or not isinstance(entry[0], tuple | list):
            raise UnreadableFile(f"{place}: a question is (query graph, negatives, hard negatives). Got {brief(entry)}")
        graph, easy, hard = entry
        kind = graph[0] if graph else None
        if not isinstance(kind, str) or kind not in TYPES:
            raise UnreadableFile(f"{place}: the type of a question is one of {', '.join(TYPES)}. Got {brief(kind)}")
        try:
            target, anchors, ways = _parts(kind, graph)
            row = [self._entity(target)] + [self._entity(anchor) for anchor in anchors]
            row += [self._inverse(way) for way in ways]
            target_type = target[0]
            self.negatives[kind].append(tuple(self._members(some, target_type) for some in (easy, hard)))  # type: ignore[arg-type]
        except (TypeError, ValueError, IndexError, KeyError, _NotOfType) as error:
            raise UnreadableFile(f"{place}: {brief(graph)} is no {kind} of this graph ({str(error)[:300]})") from error
        self.rows[kind].append(tuple(row))

    def questions(self) -> ShapedQueries:
        parts = []
        for kind, shape in TYPES.items():
            if not self.rows[kind]:
                continue
            flat = np.array(self.rows[kind], np.int32)
            last = 1 + LAYOUTS[shape].anchors
            rows = lay_out(shape, flat[:, 1:last], flat[:, last:], flat[:, 0])
            parts.append(
                ShapedQueries(
                    rows,
                    np.arange(len(rows)),
                    (kind,),
                    np.zeros(len(rows), np.int8),
                    negatives=_sets([easy for easy, _ in self.negatives[kind]]),
                    hard_negatives=_sets([hard for _, hard in self.negatives[kind]]),
                )
            )
        if not parts:
            raise EmptyResult("the files hold no question")
        return join_shapes(parts)

    def _entity(self, node: tuple[str, Any]) -> int:
        return self.entities[entity_name(*node)]

    def _inverse(self, key: RelationKey) -> int:
        """The relation walked from the constants: against the direction in which the edge is written."""
        if len(key) != 3 or not all(isinstance(part, str) for part in key):
            raise _NotOfType(f"{brief(key)} is no relation")
        own = canonical(key)
        relation = self.relations["/".join(own)]
        return self.vocabulary.inverse(relation) if own == key and key[0] != key[2] else relation

    def _members(self, nodes: Any, kind: str) -> list[int]:
        return [] if nodes is None else [self.entities[entity_name(kind, node)] for node in nodes]


def _sets(members: list[list[int]]) -> AnswerSets:
    lengths = [len(some) for some in members]
    values = np.array([value for some in members for value in some], np.int32)
    return sorted_sets(np.repeat(np.arange(len(members)), lengths), values, len(members))


def _parts(kind: str, graph: Any) -> tuple[tuple[str, Any], list[tuple[str, Any]], list[RelationKey]]:
    """Target, constants and relations, in the order of our shape; nodes with their types.

    Edges lead from the target to the constants; ours lead the other way, so a chain is read from its end.
    """
    if kind in _CHAINS:
        edges = _checked(graph[1:], _CHAINS[kind])
        for before, after in zip(edges, edges[1:], strict=False):
            _meet(_tail(before), _head(after))
        return _head(edges[0]), [_tail(edges[-1])], [edge[1] for edge in reversed(edges)]
    if kind in _INTERSECTIONS:
        edges = _checked(graph[1:], _INTERSECTIONS[kind])
        for edge in edges[1:]:
            _meet(_head(edges[0]), _head(edge))
        return _head(edges[0]), [_tail(edge) for edge in edges], [edge[1] for edge in edges]
    first, (second, third) = graph[1], graph[2]
    _checked((first, second, third, *graph[3:]), 3)
    if kind == "3-inter_chain":
        _meet(_head(first), _head(second))
        _meet(_tail(second), _head(third))
        return _head(first), [_tail(third), _tail(first)], [third[1], second[1], first[1]]
    _meet(_tail(first), _head(second))
    _meet(_tail(first), _head(third))
    return _head(first), [_tail(second), _tail(third)], [second[1], third[1], first[1]]


def _checked(edges: Sequence[Any], count: int) -> Sequence[Any]:
    if len(edges) != count or not all(isinstance(edge, tuple | list) and len(edge) == 3 for edge in edges):
        raise _NotOfType(f"it needs {count} edges")
    return edges


def _head(edge: Any) -> tuple[str, Any]:
    return _node(edge[1][0], edge[0])


def _tail(edge: Any) -> tuple[str, Any]:
    return _node(edge[1][2], edge[2])


def _node(kind: Any, node: Any) -> tuple[str, Any]:
    entity_name(kind, node)  # refuses what would be costly to compare
    return kind, node


def _meet(one: tuple[str, Any], other: tuple[str, Any]) -> None:
    if one != other:
        raise _NotOfType(f"its edges do not meet: {brief(one)} and {brief(other)}")
