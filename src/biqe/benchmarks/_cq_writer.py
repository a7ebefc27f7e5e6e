"""Queries of ours in the authors' CQ/Paths format (see ``_cq_release.py``), for tools that read that format."""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Iterable
from pathlib import Path

import numpy as np

from biqe.benchmarks._cq_release import FILTER_GRAPHS, MASK, SEPARATOR
from biqe.benchmarks._release_files import FILE_NAMES, release_split
from biqe.errors import EmptyResult, InvalidOption, RunFailed, UnsupportedQuery
from biqe.graph.vocabulary import Vocabulary
from biqe.query.bound import TARGET, BoundQuery
from biqe.query.queryset import KINDS, AnswerSets, QuerySet


def write_release(
    queries: QuerySet, vocabulary: Vocabulary, directory: Path, *, split: str = "dev", filter_graph: str | None = None
) -> tuple[Path, ...]:
    """Write queries and filters in the release's format; returns the files, named as in FILE_NAMES.

    DAGs must be branches that meet in one target with one further target behind it, and paths must be chains;
    every target needs a gold entity. ``filter_graph`` names the filters to write; None takes those that the
    release has, ``split`` for DAGs and ``reach`` for paths. Files that exist are not overwritten.
    """
    directory, split = Path(directory), release_split(split)
    present = [kind for kind in FILTER_GRAPHS if (queries.kinds == KINDS.index(kind)).any()]
    others = sorted({KINDS[code] for code in np.unique(queries.kinds)} - set(FILTER_GRAPHS))
    if others:
        raise InvalidOption(f"a release holds DAGs and paths only. Got queries of kind {', '.join(others)}")
    if not present:
        raise EmptyResult("there is no query to write")
    contents: dict[Path, list[object]] = {}
    for kind in present:
        graph = filter_graph or FILTER_GRAPHS[kind]
        if graph not in queries.filters:
            raise InvalidOption(
                f"the queries have no {graph!r} filters; they have {', '.join(queries.filters) or 'none'}",
                hint="choose the filters to write with filter_graph",
            )
        names = _Names(queries, vocabulary, queries.filters[graph])
        rows = np.flatnonzero(queries.kinds == KINDS.index(kind)).tolist()
        written = [names.dag(row) if kind == "dag" else names.path(row) for row in rows]
        contents[directory / FILE_NAMES[kind].format(split=split)] = [query for query, _ in written]
        contents[directory / FILE_NAMES[f"{kind} filters"].format(split=split)] = [filters for _, filters in written]

    for path in contents:
        if path.exists():
            raise InvalidOption(f"{path} exists already", hint="choose an empty folder, or remove the file first")
    try:
        directory.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise RunFailed(f"{directory} could not be made: {error.strerror or error}") from error
    for path, items in contents.items():
        _write_list(path, items)
    return tuple(contents)


class _Names:
    """Writes one query at a time in names."""

    def __init__(self, queries: QuerySet, vocabulary: Vocabulary, answers: AnswerSets) -> None:
        self.queries = queries
        self.vocabulary = vocabulary
        self.answers = answers
        self.first_target = queries.target_offsets

    def dag(self, row: int) -> tuple[list[str], dict[str, list[str]]]:
        """Path strings, tail first, and filters by key."""
        query = self.queries[row]
        incoming = _incoming(query)
        leaves = [node for node in range(len(query.nodes)) if all(s != node for s, _, _ in query.edges)]
        if len(leaves) != 1 or len(incoming[leaves[0]]) != 1:
            raise _unfit(row, "it has no single tail with one edge into it")
        tail = leaves[0]
        tail_edge = query.edges[incoming[tail][0]]
        inter = tail_edge[0]
        if query.nodes[tail] != TARGET or query.nodes[inter] != TARGET:
            raise _unfit(row, "its tail and its intersection are not both targets")
        if not incoming[inter]:
            raise _unfit(row, "no branch leads to its intersection")
        paths, filters = [], {"tail": self.filter(row, query, tail), "inter": self.filter(row, query, inter)}
        seen, edges_written = 2, 1
        for branch, first in enumerate(incoming[inter]):
            nodes, relations = [tail, inter], [tail_edge[1]]
            edge = first
            while True:
                subject, relation, _ = query.edges[edge]
                if subject in nodes:
                    raise _unfit(row, "it has a cycle")
                nodes.append(subject)
                relations.append(relation)
                edges_written += 1
                if query.nodes[subject] == TARGET:
                    filters[f"{branch}-{len(nodes) - 3}"] = self.filter(row, query, subject)
                    seen += 1
                if not incoming[subject]:
                    break
                if len(incoming[subject]) > 1 or query.nodes[subject] != TARGET:
                    raise _unfit(row, "a branch is not a chain of targets that starts at an entity")
                edge = incoming[subject][0]
            if query.nodes[nodes[-1]] < 0:
                raise _unfit(row, "a branch does not start at an entity")
            paths.append(self.text(row, query, nodes, relations))
        if seen != len(query.targets) or edges_written != len(query.edges):
            raise _unfit(row, "not every edge lies on a branch of its own")
        return paths, filters

    def path(self, row: int) -> tuple[str, list[list[str]]]:
        """The path string, source first, and filters in the order of its masks."""
        query = self.queries[row]
        incoming = _incoming(query)
        outgoing = {s: (r, o) for s, r, o in query.edges}
        sources = [node for node, edges in incoming.items() if not edges]
        nodes, relations = sources[:1], []
        while len(sources) == 1 and nodes[-1] in outgoing and len(nodes) <= len(query.nodes):
            relation, node = outgoing[nodes[-1]]
            relations.append(relation)
            nodes.append(node)
        if not len(nodes) == len(query.nodes) == len(query.edges) + 1:
            raise _unfit(row, "it is not one chain")
        return self.text(row, query, nodes, relations), [
            self.filter(row, query, node) for node in nodes if query.nodes[node] == TARGET
        ]

    def text(self, row: int, query: BoundQuery, nodes: list[int], relations: list[int]) -> str:
        """Tokens in the order of ``nodes`` with the relations between them, then the golds of the masks."""
        tokens, golds = [], []
        for step, node in enumerate(nodes):
            if query.nodes[node] == TARGET:
                gold = int(self.queries.gold[self.queries.node_offsets[row] + node])
                if gold < 0:
                    raise _unfit(row, "a target has no gold entity")
                tokens.append(MASK)
                golds.append(self.safe(self.vocabulary.entities[gold]))
            elif query.nodes[node] < 0:
                raise _unfit(row, "it has a hidden variable, which the format cannot say")
            else:
                tokens.append(self.safe(self.vocabulary.entities[query.nodes[node]]))
            if step < len(relations):
                if relations[step] >= len(self.vocabulary.relations):
                    raise _unfit(row, "it walks an edge against its direction, which the format cannot say")
                tokens.append(self.safe(self.vocabulary.relations[relations[step]]))
        return "\t".join([SEPARATOR.join(tokens), *golds])

    def safe(self, name: str) -> str:
        """``name``, if it can be told from what surrounds it."""
        if not name or SEPARATOR in name or name == MASK or any(mark in name for mark in "\t\r\n"):
            raise InvalidOption(f"the name {name!r} cannot be written in the release's format")
        return name

    def filter(self, row: int, query: BoundQuery, node: int) -> list[str]:
        answers = self.answers[self.first_target[row] + query.targets.index(node)]
        return [self.vocabulary.entities[value] for value in answers.tolist()]


def _incoming(query: BoundQuery) -> dict[int, list[int]]:
    """Edges into each node, by number."""
    incoming: dict[int, list[int]] = {node: [] for node in range(len(query.nodes))}
    for number, (_, _, node) in enumerate(query.edges):
        incoming[node].append(number)
    return incoming


def _unfit(row: int, why: str) -> UnsupportedQuery:
    return UnsupportedQuery(
        f"query {row:,} does not fit the release's format: {why}",
        hint="DAGs are branches from entities that meet in one target with one target behind it; paths are chains",
    )


def _write_list(path: Path, items: Iterable[object]) -> None:
    """One item a line, in place only when complete."""
    partial = path.with_name(f".{path.name}.partial")
    try:
        with partial.open("w", encoding="utf-8") as file:
            file.write("[\n")
            for number, item in enumerate(items):
                file.write(",\n" if number else "")
                file.write(json.dumps(item, ensure_ascii=False))
            file.write("\n]\n")
            file.flush()
            os.fsync(file.fileno())
        os.replace(partial, path)
    except OSError as error:
        with contextlib.suppress(OSError):
            partial.unlink()
        raise RunFailed(f"{path} could not be written: {error.strerror or error}") from error
