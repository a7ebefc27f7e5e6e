"""Query2Box's files, read as they were published and bound to a graph of ours.

    FB15k-237/
    ├── ind2ent.pkl ind2rel.pkl            names by id; even relation ids are forward, the odd one after is its inverse
    ├── train_triples_2c.pkl …             a list of queries for each split and shape
    └── valid_ans_2c.pkl valid_ans_2c_hard.pkl …   all answers in the graph up to the split, and those that are hard

Entities and relations are matched by name. The published entities are those of the training graph; only they are
ranked, and only triples between them count. Where files are missing, answers are computed by exact traversal, and
training queries of 2i and 3i are sampled (``resample``). Paper: Ren, Hu, Leskovec 2020.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from biqe.benchmarks.restricted_pickle import brief, load_pickle
from biqe.benchmarks.set_operations import merge_rows, sorted_sets, subtract
from biqe.benchmarks.shaped import LAYOUTS, UNIONS, ShapedQueries, join_shapes, rows_of
from biqe.errors import EmptyResult, InvalidOption, UnknownName, UnreadableFile
from biqe.graph.knowledge_graph import SPLITS, Graph, Splits
from biqe.graph.triples import union
from biqe.graph.vocabulary import Vocabulary
from biqe.mine.walks import signatures, unseen
from biqe.query.bound import AnswerSets, QuerySet

FILE_CODES = {
    "1p": "1c",
    "2p": "2c",
    "3p": "3c",
    "2i": "2i",
    "3i": "3i",
    "ip": "ic",
    "pi": "ci",
    "2u": "2u",
    "up": "uc",
}
"""Our name of each shape, in the order of the published table, and its name in the files."""
TRAIN_SHAPES = ("1p", "2p", "3p", "2i", "3i")
"""Shapes to learn from; the others are asked at the end only."""
REVERSE = "_reverse"

_CHAINS = {"1p", "2p", "3p"}
# For each shape the constants, then the relations, of every entry of its list.
_FLAT: dict[str, Callable[[Iterable[Any]], list[tuple[Any, ...]]]] = {
    "1p": lambda entries: [(e, a) for (e, (a,), _), _ in entries],
    "2p": lambda entries: [(e, a, b) for (e, (a, b), _), _ in entries],
    "3p": lambda entries: [(e, a, b, c) for (e, (a, b, c), _), _ in entries],
    "2i": lambda entries: [(e, f, a, b) for (e, (a,)), (f, (b,)), _, _ in entries],
    "3i": lambda entries: [(e, f, g, a, b, c) for (e, (a,)), (f, (b,)), (g, (c,)), _, _ in entries],
    "ip": lambda entries: [(e, f, a, b, c) for (e, (a,)), (f, (b,)), c, _, _ in entries],
    "pi": lambda entries: [(e, f, a, b, c) for (e, (a, b)), (f, (c,)), _, _ in entries],
}
_FLAT |= {"2u": _FLAT["2i"], "up": _FLAT["ip"]}
_ANCHORS = {shape: layout.anchors for shape, layout in LAYOUTS.items()} | dict.fromkeys(UNIONS, 2)


@dataclass(frozen=True)
class Binding:
    """The ids of a release in the ids of a graph."""

    entities: NDArray[np.int32]
    """(n,) id in the graph of each published entity."""
    relations: NDArray[np.int32]
    """(m,) id in the graph, of 2R, of each published relation."""

    @property
    def candidates(self) -> NDArray[np.int32]:
        """The entities that the benchmark ranks among, sorted."""
        return np.unique(self.entities)


def bind(folder: str | Path, vocabulary: Vocabulary) -> Binding:
    """The published names found in ``vocabulary``; UnknownName with their number and an example if any are not."""
    folder = Path(folder)
    entities = names_by_id(folder / "ind2ent.pkl")
    relations = names_by_id(folder / "ind2rel.pkl")
    if len(relations) % 2:
        raise UnreadableFile(f"{folder / 'ind2rel.pkl'} must hold a relation and its inverse in turn; one is missing")
    for forward, inverse in zip(relations[::2], relations[1::2], strict=True):
        if inverse != forward + REVERSE:
            raise UnreadableFile(
                f"{folder / 'ind2rel.pkl'}: after {forward!r} its inverse {forward + REVERSE!r} must follow. "
                f"Got {inverse!r}"
            )
    entity_ids = _ids("entities", entities, vocabulary.entities, folder)
    forward_ids = _ids("relations", relations[::2], vocabulary.relations, folder)
    inverse_ids = np.array([vocabulary.inverse(relation) for relation in forward_ids.tolist()], np.int32)
    return Binding(entity_ids, np.stack([forward_ids, inverse_ids], 1).ravel())


def files_of(folder: str | Path, split: str) -> list[Path]:
    """The files of ``folder`` that reading ``split`` looks at, sorted."""
    folder = Path(folder)
    names = [f"{split}_triples_{code}.pkl" for code in FILE_CODES.values()]
    if split != "train":
        names += [f"{split}_ans_{code}{hard}.pkl" for code in FILE_CODES.values() for hard in ("", "_hard")]
    names += ["ind2ent.pkl", "ind2rel.pkl"]
    return sorted(folder / name for name in names if (folder / name).is_file())


def shapes_of(folder: str | Path, split: str) -> tuple[str, ...]:
    """Shapes that ``folder`` has queries of, in the order of the table."""
    return tuple(s for s, code in FILE_CODES.items() if (Path(folder) / f"{split}_triples_{code}.pkl").is_file())


def read_split(
    folder: str | Path,
    split: str,
    splits: Splits,
    *,
    binding: Binding | None = None,
    shapes: Sequence[str] | None = None,
    published: bool = True,
) -> ShapedQueries:
    """The questions of ``valid`` or ``test`` with all their answers and the hard ones.

    Answers are the published ones where their file is there; else, and always with ``published`` False, they are
    computed by exact traversal of the training triples and those of the splits up to ``split``.
    """
    if split not in SPLITS[1:]:
        raise InvalidOption(f"split must be one of {', '.join(SPLITS[1:])}. Got {split!r}")
    folder = Path(folder)
    binding = binding or bind(folder, splits.vocabulary)
    present = shapes_of(folder, split)
    if not present:
        raise EmptyResult(
            f"{folder} has no {split} queries: no file {split}_triples_SHAPE.pkl",
            hint="the test queries are not part of every copy of these files; evaluate on valid"
            if split == "test"
            else "put Query2Box's files there",
        )
    traversal = _Traversal(splits, split, binding)
    parts = [
        _read_shape(folder, split, shape, binding, traversal, published)
        for shape in (present if shapes is None else shapes)
    ]
    return join_shapes(parts)


def read_train(folder: str | Path, splits: Splits, *, binding: Binding | None = None, seed: int = 0) -> ShapedQueries:
    """The training queries of the shapes 1p to 3i, without answers: those are computed when they are needed.

    Where ``train_triples_3i`` or ``…_2i`` is missing, as many such queries as there are of the other shapes are
    sampled with ``seed``.
    """
    folder = Path(folder)
    binding = binding or bind(folder, splits.vocabulary)
    present = [shape for shape in TRAIN_SHAPES if shape in shapes_of(folder, "train")]
    if not present:
        raise EmptyResult(f"{folder} has no training queries: no file train_triples_SHAPE.pkl")
    parts: list[ShapedQueries] = []
    for shape in TRAIN_SHAPES:
        if shape in present:
            anchors, relations = _read_queries(folder, "train", shape, binding)[:2]
        elif shape in ("2i", "3i"):
            count = max((len(part) for part in parts), default=0)
            graph = benchmark_graph(splits, ("train",), binding)
            anchors, relations = intersections(graph, int(shape[0]), count, seed=seed)
        else:
            continue
        parts.append(_questions(shape, anchors, relations))
    return join_shapes(parts)


def benchmark_graph(splits: Splits, parts: Sequence[str], binding: Binding) -> Graph:
    """The triples of some splits between published entities: what the published answers were traversed in."""
    is_candidate = np.zeros(len(splits.vocabulary.entities), bool)
    is_candidate[binding.entities] = True
    triples = union(*(getattr(splits, part) for part in parts))
    return Graph(splits.vocabulary, triples[is_candidate[triples[:, 0]] & is_candidate[triples[:, 2]]])


class _Traversal:
    """Answers by exact traversal, in the graph up to a split and in the one before it; each built once."""

    def __init__(self, splits: Splits, split: str, binding: Binding) -> None:
        place = SPLITS.index(split)
        self._parts = {"answers": SPLITS[: place + 1], "known": SPLITS[:place]}
        self._splits, self._binding = splits, binding
        self._graphs: dict[str, Graph] = {}

    def sets(self, which: str, rows: QuerySet, owner: NDArray[np.int64], count: int) -> AnswerSets:
        """``answers`` of the questions up to the split, or those ``known`` before."""
        from biqe.exact.answers import answer_sets

        if which not in self._graphs:
            self._graphs[which] = benchmark_graph(self._splits, self._parts[which], self._binding)
        return merge_rows(answer_sets(self._graphs[which], rows), owner, count)


def _read_shape(
    folder: Path, split: str, shape: str, binding: Binding, traversal: _Traversal, published: bool
) -> ShapedQueries:
    anchors, relations, keys = _read_queries(folder, split, shape, binding)
    rows, owner = rows_of(shape, anchors, relations)
    found: dict[str, AnswerSets] = {}
    for kind, ending in (("answers", ""), ("hard", "_hard")):
        path = folder / f"{split}_ans_{FILE_CODES[shape]}{ending}.pkl"
        if published and path.is_file():
            found[kind] = _read_answers(path, keys, binding)
    if "answers" not in found:
        found["answers"] = traversal.sets("answers", rows, owner, len(anchors))
    if "hard" not in found:
        found["hard"] = subtract(found["answers"], traversal.sets("known", rows, owner, len(anchors)))
    beyond = len(subtract(found["hard"], found["answers"]).values)
    if beyond:
        raise UnreadableFile(f"{folder}: {beyond:,} hard {split} answers of shape {shape} are not among the answers")
    return _questions(shape, anchors, relations, **found)


def _questions(
    shape: str, anchors: NDArray[np.int32], relations: NDArray[np.int32], **sets: AnswerSets
) -> ShapedQueries:
    rows, owner = rows_of(shape, anchors, relations)
    return ShapedQueries(rows, owner, (shape,), np.zeros(len(anchors), np.int8), **sets)


def _read_queries(
    folder: Path, split: str, shape: str, binding: Binding
) -> tuple[NDArray[np.int32], NDArray[np.int32], list[Any]]:
    """Constants and relations of the queries in the graph's ids, and the key of each in the answer files."""
    path = folder / f"{split}_triples_{FILE_CODES[shape]}.pkl"
    entries = load_pickle(path)
    if not isinstance(entries, list) or not entries:
        got = "an empty one" if isinstance(entries, list) else type(entries).__name__
        raise UnreadableFile(f"{path} must hold a list of queries. Got {got}")
    try:
        rows = _FLAT[shape](entries)
        keys = [(entry[0][:2],) for entry in entries] if shape in _CHAINS else [entry[:-2] for entry in entries]
    except (TypeError, ValueError, LookupError) as error:
        raise UnreadableFile(f"{path}: {_first_bad(entries, shape)} is no query of shape {shape}") from error
    flat = whole_numbers(list(chain.from_iterable(rows)), "entities and relations", path).reshape(len(rows), -1)
    anchors, relations = flat[:, : _ANCHORS[shape]], flat[:, _ANCHORS[shape] :]
    return mapped(anchors, binding.entities, path), mapped(relations, binding.relations, path), keys


def _first_bad(entries: list[Any], shape: str) -> str:
    for number, entry in enumerate(entries):
        try:
            _FLAT[shape]([entry])
        except (TypeError, ValueError):
            return f"entry {number:,}, {brief(entry)},"
    return "an entry"


def whole_numbers(values: list[Any], what: str, path: Path) -> NDArray[np.int64]:
    """``values`` as an array. Types are checked first: an array of nested lists could be of any size."""
    for kind in set(map(type, values)) - {int}:
        raise UnreadableFile(f"{path} must hold whole numbers for {what}. Got {kind.__name__}")
    try:
        return np.array(values, np.int64)
    except OverflowError as error:
        raise UnreadableFile(f"{path} must hold whole numbers for {what}. Got one beyond 64 bits") from error


def _read_answers(path: Path, keys: list[Any], binding: Binding) -> AnswerSets:
    by_key = load_pickle(path)
    if not isinstance(by_key, dict):
        raise UnreadableFile(f"{path} must hold a dict from query to answers. Got {type(by_key).__name__}")
    try:
        sets: list[Any] = [by_key.get(key) for key in keys]
    except TypeError as error:
        raise UnreadableFile(
            f"{path} has no answers for queries that are no tuples, such as {brief(keys[0])}"
        ) from error
    missing = [key for key, some in zip(keys, sets, strict=True) if not isinstance(some, set | frozenset)]
    if missing:
        raise UnreadableFile(f"{path} has no set of answers for {len(missing):,} queries, such as {brief(missing[0])}")
    lengths = np.fromiter(map(len, sets), np.int64, len(sets))
    values = whole_numbers(list(chain.from_iterable(sets)), "entities", path)
    return sorted_sets(np.repeat(np.arange(len(sets)), lengths), mapped(values, binding.entities, path), len(sets))


def mapped(ids: NDArray[np.integer], table: NDArray[np.int32], path: Path) -> NDArray[np.int32]:
    """Published ids in the ids of a graph; UnreadableFile for one that the release does not name."""
    if ids.size and not 0 <= ids.min() <= ids.max() < len(table):
        wrong = ids[(ids < 0) | (ids >= len(table))].ravel()[0]
        raise UnreadableFile(f"{path}: id {wrong} is none of the {len(table):,} that the release names")
    return table[ids]


def names_by_id(path: Path) -> list[str]:
    """Names by id: a dict from 0..n-1 to text, none twice."""
    held = load_pickle(path)
    if not isinstance(held, dict) or not held or set(held) != set(range(len(held))):
        raise UnreadableFile(f"{path} must hold a dict from the ids 0, 1, 2, … to names")
    names = [held[id_] for id_ in range(len(held))]
    if not all(isinstance(name, str) for name in names) or len(set(names)) < len(names):
        raise UnreadableFile(f"{path} must hold one name for each id, none of them twice")
    return names


def _ids(what: str, names: Sequence[str], known: Sequence[str], folder: Path) -> NDArray[np.int32]:
    by_name = {name: id_ for id_, name in enumerate(known)}
    unknown = [name for name in names if name not in by_name]
    if unknown:
        raise UnknownName(
            f"{len(unknown):,} of the {len(names):,} {what} of {folder} are not in this graph, such as {unknown[0]!r}",
            hint="the queries belong to another graph, or the graph was imported with other names",
        )
    return np.array([by_name[name] for name in names], np.int32)


# Intersections sampled as Query2Box's own were, for training files that are not distributed

# Published are the queries, not the program that made them. What the published 2i and 3i training queries look like is
# met by this: an answer is drawn from all entities alike; for each branch one of the relations that lead to it, all
# alike, in either direction, then one of the entities that the relation comes from. The branches of a query differ; a
# query is kept once, but the same branches in another order are another query. docs/concepts/benchmarks.md compares
# the two.


_ROUNDS = 400
"""Rounds after which a graph is taken to have no more queries to give."""


def intersections(
    graph: Graph, branches: int, count: int, *, seed: int = 0
) -> tuple[NDArray[np.int32], NDArray[np.int32]]:
    """``count`` different intersections of ``branches`` edges: (n, k) entities and (n, k) relations, ids of 2R.

    Each has an answer in ``graph``. The same seed gives the same queries; EmptyResult if the graph has too few.
    """
    if branches < 2 or count < 0:
        raise InvalidOption(f"branches must be 2 or more and count 0 or more. Got {branches} and {count}")
    ways = _Ways(graph)
    rng = np.random.default_rng([seed, branches])
    answers = np.flatnonzero(ways.group_offsets[1:] > ways.group_offsets[:-1])
    found: list[NDArray[np.int64]] = []
    seen = np.zeros(0, np.uint64)
    missing = count
    for _ in range(_ROUNDS if len(answers) else 0):
        if missing == 0:
            break
        drawn = ways.draw(rng.choice(answers, min(2 * missing + 256, 1 << 18)), branches, rng)
        fresh, seen = unseen(signatures(ways.sources[drawn], ways.relations[drawn]), seen)
        found.append(drawn[fresh[:missing]])
        missing -= len(found[-1])
    if missing:
        raise EmptyResult(f"this graph gives only {count - missing:,} of {count:,} intersections of {branches} edges")
    places = np.concatenate(found) if found else np.zeros((0, branches), np.int64)
    return ways.sources[places], ways.relations[places]


class _Ways:
    """Edges into each entity, both directions, sorted by entity and relation; a group is the run of one relation."""

    def __init__(self, graph: Graph) -> None:
        triples, count = graph.triples, graph.relation_count
        sources = np.concatenate([triples[:, 0], triples[:, 2]])
        relations = np.concatenate([triples[:, 1], triples[:, 1] + np.int32(count)])
        ends = np.concatenate([triples[:, 2], triples[:, 0]])
        order = np.lexsort((sources, relations, ends))
        self.sources, self.relations, ends = sources[order], relations[order], ends[order]
        first = np.ones(len(ends), bool)
        first[1:] = (ends[1:] != ends[:-1]) | (self.relations[1:] != self.relations[:-1])
        self.edge_offsets = np.append(np.flatnonzero(first), len(ends))
        """(G+1,) slice of each group in ``sources`` and ``relations``."""
        self.group_offsets = np.zeros(graph.entity_count + 1, np.int64)
        """(E+1,) slice of each entity's groups."""
        np.cumsum(np.bincount(ends[first], minlength=graph.entity_count), out=self.group_offsets[1:])

    def draw(self, answers: NDArray[np.integer], branches: int, rng: np.random.Generator) -> NDArray[np.int64]:
        """(n, k) places of edges into each answer; answers whose edges came out alike are left out."""
        shape = (len(answers), branches)
        groups = np.diff(self.group_offsets)[answers][:, None]
        group = self.group_offsets[answers][:, None] + (rng.random(shape) * groups).astype(np.int64)
        start = self.edge_offsets[group]
        edge = start + (rng.random(shape) * (self.edge_offsets[group + 1] - start)).astype(np.int64)
        in_order = np.sort(edge, axis=1)
        return edge[(in_order[:, 1:] != in_order[:, :-1]).all(axis=1)]
