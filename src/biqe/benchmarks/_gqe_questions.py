"""Questions in GQE's form, with their negatives, as columns."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from biqe.benchmarks._sets import sorted_sets
from biqe.benchmarks._shaped_columns import LAYOUTS, join_shapes, lay_out
from biqe.benchmarks.restricted_pickle import brief, load_pickle
from biqe.benchmarks.shaped import ShapedQueries
from biqe.benchmarks.typed_queries import TYPES
from biqe.errors import EmptyResult, UnreadableFile
from biqe.graph.vocabulary import Vocabulary
from biqe.query.queryset import AnswerSets

RelationKey = tuple[str, str, str]

_CHAINS = {"1-chain": 1, "2-chain": 2, "3-chain": 3}
_INTERSECTIONS = {"2-inter": 2, "3-inter": 3}


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
