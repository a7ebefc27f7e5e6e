"""Questions of a benchmark with one target each, grouped by shape, with their answers.

A question is a disjunction of conjunctive queries: one row for most shapes, two for the unions 2u and up, which
are answered by the better of their rows (disjunctive normal form, as Query2Box does). ``LAYOUTS`` says how each
conjunctive shape is laid out; ``to_columns`` and ``from_columns`` are how questions are cached.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from biqe.errors import InvalidOption, UnreadableFile
from biqe.query.bound import HIDDEN, KINDS, ROLES, TARGET, AnswerSets, QuerySet, concatenate

SETS = ("answers", "hard", "negatives", "hard_negatives")
_ROWS = ("node_offsets", "nodes", "gold", "roles", "edge_offsets", "edges", "kinds")
_NEGATED = "rows.negated"


@dataclass(frozen=True)
class ShapedQueries:
    """N questions over R conjunctive rows."""

    rows: QuerySet
    """(R) conjunctive queries with one target each; the rows of a question stand together."""
    owner: NDArray[np.int64]
    """(R,) the question that each row belongs to; not falling."""
    shapes: tuple[str, ...]
    """Names of the shapes, in the order of the benchmark's table."""
    shape: NDArray[np.int8]
    """(N,) index into ``shapes``."""
    answers: AnswerSets | None = None
    """(N) all answers of each question in the graph up to its split; None where they are computed when needed."""
    hard: AnswerSets | None = None
    """(N) those of them that the graph before that split does not give."""
    negatives: AnswerSets | None = None
    """(N) sampled entities of the answer's type that are no answers; for protocol ``bio``."""
    hard_negatives: AnswerSets | None = None
    """(N) likewise, such as fulfil a part of the question; empty where it is no intersection."""

    def __post_init__(self) -> None:
        if len(self.owner) != len(self.rows):
            raise InvalidOption(f"{len(self.rows):,} rows need as many owners. Got {len(self.owner):,}")
        for name in SETS:
            sets = getattr(self, name)
            if sets is not None and len(sets) != len(self.shape):
                raise InvalidOption(f"{len(self.shape):,} questions need as many sets of {name}. Got {len(sets):,}")

    def __len__(self) -> int:
        return len(self.shape)

    def take(self, questions: NDArray[np.integer]) -> ShapedQueries:
        """These questions, in this order."""
        numbers: NDArray[np.int64] = np.asarray(questions, np.int64)
        starts = np.searchsorted(self.owner, numbers)
        stops = np.searchsorted(self.owner, numbers, side="right")
        counts = stops - starts
        first = np.cumsum(counts) - counts
        rows = np.repeat(starts - first, counts) + np.arange(int(counts.sum()))
        sets = (getattr(self, name) for name in SETS)

        return ShapedQueries(
            self.rows.take(rows),
            np.repeat(np.arange(len(numbers)), counts),
            self.shapes,
            self.shape[numbers],
            *(None if some is None else some.take(numbers) for some in sets),
        )

    def of_shape(self, name: str) -> ShapedQueries:
        """The questions of one shape."""
        if name not in self.shapes:
            raise InvalidOption(f"there is no shape {name!r}; there are {', '.join(self.shapes)}")
        return self.take(np.flatnonzero(self.shape == self.shapes.index(name)))


@dataclass(frozen=True)
class Layout:
    """A conjunctive shape: its constants and relations in order, and where they stand."""

    nodes: tuple[int, ...]
    """For each node the number of its constant, or HIDDEN, or TARGET."""
    edges: tuple[tuple[int, int], ...]
    """Ends of the edges, by node; edge i has relation i."""
    kind: str
    negated: tuple[int, ...] = ()
    """For each edge its negated part, from 1; 0 for edges that are asked for. Empty where none is negated."""

    @property
    def anchors(self) -> int:
        """How many constants it has."""
        return sum(node >= 0 for node in self.nodes)


LAYOUTS = {
    "1p": Layout((0, TARGET), ((0, 1),), "triple"),
    "2p": Layout((0, HIDDEN, TARGET), ((0, 1), (1, 2)), "path"),
    "3p": Layout((0, HIDDEN, HIDDEN, TARGET), ((0, 1), (1, 2), (2, 3)), "path"),
    "2i": Layout((0, 1, TARGET), ((0, 2), (1, 2)), "dag"),
    "3i": Layout((0, 1, 2, TARGET), ((0, 3), (1, 3), (2, 3)), "dag"),
    "ip": Layout((0, 1, HIDDEN, TARGET), ((0, 2), (1, 2), (2, 3)), "dag"),
    "pi": Layout((0, HIDDEN, 1, TARGET), ((0, 1), (1, 3), (2, 3)), "dag"),
    "2in": Layout((0, 1, TARGET), ((0, 2), (1, 2)), "dag", (0, 1)),
    "3in": Layout((0, 1, 2, TARGET), ((0, 3), (1, 3), (2, 3)), "dag", (0, 0, 1)),
    "inp": Layout((0, 1, HIDDEN, TARGET), ((0, 2), (1, 2), (2, 3)), "dag", (0, 1, 0)),
    "pin": Layout((0, HIDDEN, 1, TARGET), ((0, 1), (1, 3), (2, 3)), "dag", (0, 0, 1)),
    "pni": Layout((0, HIDDEN, 1, TARGET), ((0, 1), (1, 3), (2, 3)), "dag", (1, 1, 0)),
}
"""Every edge points away from the constants, towards the target."""
NEGATIONS = tuple(name for name, layout in LAYOUTS.items() if layout.negated)
"""Shapes with a negated part."""

UNIONS = {"2u": ("1p", ((0, (0,)), (1, (1,)))), "up": ("2p", ((0, (0, 2)), (1, (1, 2))))}
"""Shape of the rows of a union, and for each row its constant and its relations, of those of the question."""


def lay_out(
    shape: str, anchors: NDArray[np.integer], relations: NDArray[np.integer], gold: NDArray[np.integer] | None = None
) -> QuerySet:
    """Queries of one conjunctive ``shape``: (n, a) constants, (n, e) relations, (n,) gold entities of the targets."""
    layout, count = LAYOUTS[shape], len(anchors)
    if anchors.shape != (count, layout.anchors) or relations.shape != (count, len(layout.edges)):
        raise InvalidOption(
            f"{shape} has {layout.anchors} constants and {len(layout.edges)} relations. "
            f"Got {anchors.shape[1:]} and {relations.shape[1:]}"
        )
    nodes = np.empty((count, len(layout.nodes)), np.int32)
    known = np.full_like(nodes, -1)
    roles = np.zeros((count, len(layout.nodes)), np.int8)
    for place, node in enumerate(layout.nodes):
        nodes[:, place] = node if node < 0 else anchors[:, node]
        if node >= 0:
            known[:, place] = anchors[:, node]
        elif node == TARGET:
            roles[:, place] = ROLES.index("tail")
            if gold is not None:
                known[:, place] = gold
    edges = np.empty((count, len(layout.edges), 3), np.int32)
    for place, (start, end) in enumerate(layout.edges):
        edges[:, place, 0], edges[:, place, 1], edges[:, place, 2] = start, relations[:, place], end
    return QuerySet(
        np.arange(count + 1, dtype=np.int64) * nodes.shape[1],
        nodes.ravel(),
        known.ravel(),
        roles.ravel(),
        np.arange(count + 1, dtype=np.int64) * len(layout.edges),
        edges.reshape(-1, 3),
        np.full(count, KINDS.index(layout.kind), np.int8),
        negated=np.tile(np.array(layout.negated, np.int8), count) if layout.negated else None,
    )


def rows_of(
    shape: str, anchors: NDArray[np.integer], relations: NDArray[np.integer]
) -> tuple[QuerySet, NDArray[np.int64]]:
    """Rows of questions of any shape, and the question of each row: two rows a question for unions."""
    if shape not in UNIONS:
        return lay_out(shape, anchors, relations), np.arange(len(anchors))
    row_shape, rows = UNIONS[shape]
    # Question after question: its rows stand together.
    sources = np.stack([anchors[:, anchor] for anchor, _ in rows], 1).reshape(-1, 1)
    ways = np.stack([relations[:, list(way)] for _, way in rows], 1).reshape(len(sources), -1)
    return lay_out(row_shape, sources, ways), np.repeat(np.arange(len(anchors)), len(rows))


def join_sets(parts: Sequence[AnswerSets]) -> AnswerSets:
    """The sets of all parts, part after part."""
    lengths = np.concatenate([np.zeros(0, np.int64), *(np.diff(part.offsets) for part in parts)])
    offsets = np.zeros(len(lengths) + 1, np.int64)
    np.cumsum(lengths, out=offsets[1:])
    return AnswerSets(offsets, np.concatenate([np.zeros(0, np.int32), *(part.values for part in parts)]))


def join_shapes(parts: Sequence[ShapedQueries]) -> ShapedQueries:
    """Questions of several shapes as one; a kind of answers that not all parts have is dropped."""
    names = tuple(dict.fromkeys(name for part in parts for name in part.shapes))
    first = np.cumsum([0, *(len(part) for part in parts)])
    codes = [np.array([names.index(name) for name in part.shapes], np.int8)[part.shape] for part in parts]

    def sets(kind: str) -> AnswerSets | None:
        found = [getattr(part, kind) for part in parts]
        return None if any(one is None for one in found) else join_sets(found)

    return ShapedQueries(
        concatenate([part.rows for part in parts]),
        np.concatenate([part.owner + start for part, start in zip(parts, first, strict=False)]),
        names,
        np.concatenate(codes),
        *(sets(kind) for kind in SETS),
    )


def to_columns(questions: ShapedQueries) -> dict[str, NDArray[Any]]:
    """Everything about the questions as arrays; names of shapes as one line of UTF-8."""
    columns = {f"rows.{name}": getattr(questions.rows, name) for name in _ROWS}
    if questions.rows.negated is not None:
        columns[_NEGATED] = questions.rows.negated
    columns |= {
        "owner": questions.owner,
        "shape": questions.shape,
        "shapes": np.frombuffer("\n".join(questions.shapes).encode(), np.uint8),
    }
    for kind in SETS:
        sets = getattr(questions, kind)
        if sets is not None:
            columns |= {f"{kind}.offsets": sets.offsets, f"{kind}.values": sets.values}
    return columns


def from_columns(columns: Mapping[str, NDArray[Any]], *, entity_count: int, relation_count: int) -> ShapedQueries:
    """The questions of ``to_columns``; UnreadableFile if an id is not of this graph or the columns do not fit."""
    try:
        node_offsets, nodes, gold, roles, edge_offsets, edges, kinds = (columns[f"rows.{name}"] for name in _ROWS)
        rows = QuerySet(node_offsets, nodes, gold, roles, edge_offsets, edges, kinds, negated=columns.get(_NEGATED))
        sets = {
            kind: AnswerSets(columns[f"{kind}.offsets"], columns[f"{kind}.values"])
            for kind in SETS
            if f"{kind}.offsets" in columns
        }
        shapes = tuple(columns["shapes"].tobytes().decode().split("\n"))
        questions = ShapedQueries(rows, columns["owner"], shapes, columns["shape"], **sets)
    except (KeyError, ValueError, InvalidOption) as error:
        raise UnreadableFile(f"cached questions are damaged: {error}") from error
    limits = [(rows.nodes, HIDDEN, entity_count), (rows.edges[:, 1], 0, 2 * relation_count)]
    limits += [(some.values, 0, entity_count) for some in sets.values()]
    if any(len(ids) and not low <= ids.min() <= ids.max() < high for ids, low, high in limits):
        raise UnreadableFile("cached questions are damaged: an id is not of this graph")
    return questions
