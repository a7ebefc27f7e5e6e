"""The authors' CQ and Paths sets, read as they were released.

A DAG is a list of path strings, each written tail first: tokens joined by ``-#-``, ``[MASK]`` for a target,
then a tab and the gold entities of the masks, tab-separated, in order. All paths of a DAG share the tail, the
tail relation and the intersection, which are the first mask, the first relation and the second mask. A path
query is one such string, but written source first. Filters lie in files of their own, one entry a query: for a
DAG a dict with ``tail``, ``inter`` and ``B-K`` (the K-th further mask of branch B, both from 0), for a path a
list of lists in the order of its masks.

The released filters of DAGs were traversed in the split's own graph with the whole query satisfied, so they
are read as ``split``; those of paths hold what the source reaches in the complete graph, read as ``reach``.
Queries count from 0, as in the lists.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from biqe.benchmarks.release_files import Files, find_files, json_items, release_split
from biqe.errors import EmptyResult, InvalidOption, UnknownName, UnreadableFile
from biqe.graph.vocabulary import Vocabulary
from biqe.query.bound import KINDS, ROLES, TARGET, AnswerSets, QuerySet

SEPARATOR = "-#-"
MASK = "[MASK]"
FILTER_GRAPHS = {"dag": "split", "path": "reach"}
"""Which graph the released filters come from, by kind of query."""

_TAIL, _INTERSECTION, _BRANCH = (ROLES.index(role) for role in ("tail", "intersection", "branch"))


@dataclass(frozen=True)
class Release:
    """Queries of one split of a release."""

    queries: QuerySet
    kind: str
    """``dag`` or ``path``."""
    split: str
    """``dev`` or ``test``."""
    filter_graph: str | None
    """Name of the release's own filters in ``queries.filters``: ``split`` for DAGs, ``reach`` for paths; None where
    they were not read."""
    files: tuple[Path, ...]
    skipped: Mapping[str, int] = field(default_factory=dict)
    """What was left out, by reason: queries and filter values with unknown names, and filters of no target."""


def read_release(
    directory: Path,
    vocabulary: Vocabulary,
    split: str,
    *,
    kind: str | None = None,
    with_filters: bool = True,
    skip_unknown: bool = False,
) -> Release:
    """Queries of ``split`` (``dev`` or ``test``) in a release's folder, with the filters released beside them.

    ``kind`` is ``dag`` or ``path``; None takes DAGs where the folder has them and paths otherwise. A name that
    the vocabulary does not hold is refused with file and query number, unless ``skip_unknown``: then queries
    that mention it and filter values that are it are left out and counted in ``Release.skipped``.
    """
    directory, split = Path(directory), release_split(split)
    found = find_files(directory)
    kind = _kind(found, split, kind)
    queries_file = found.one(kind, split)
    reader = _Reader(vocabulary, skip_unknown)
    rows = reader.queries(queries_file, kind)
    if not with_filters:
        return Release(rows.query_set(), kind, split, None, (queries_file,), reader.skipped)
    filters_file = found.one(f"{kind} filters", split)
    answers = reader.filters(filters_file, kind, rows, queries_file)
    queries = rows.query_set().with_filters(**{FILTER_GRAPHS[kind]: answers})
    return Release(queries, kind, split, FILTER_GRAPHS[kind], (queries_file, filters_file), reader.skipped)


def release_kind(directory: Path, split: str, kind: str | None = None) -> str:
    """Which queries ``read_release`` would read: ``kind`` itself, or ``dag`` where there are DAGs, else ``path``."""
    return _kind(find_files(Path(directory)), release_split(split), kind)


def _kind(found: Files, split: str, kind: str | None) -> str:
    if kind not in (None, *FILTER_GRAPHS):
        raise InvalidOption(f"kind of query must be one of {', '.join(FILTER_GRAPHS)}. Got {kind!r}")
    return kind or next((kind for kind in FILTER_GRAPHS if found.of(kind, split)), "dag")


class _Unknown(Exception):
    """A name outside the vocabulary; caught within this file."""

    def __init__(self, what: str, name: object) -> None:
        self.what = what
        self.name = name


@dataclass
class _Rows:
    """Queries as they are read, one list of columns a query; None for one that was left out."""

    columns: list[tuple[list[int], list[int], list[int], list[tuple[int, int, int]]] | None]
    keys: list[list[str]]
    """Filter key of each target, in node order."""
    kind: str

    def query_set(self) -> QuerySet:
        kept = [columns for columns in self.columns if columns is not None]
        node_offsets = np.cumsum([0, *(len(nodes) for nodes, *_ in kept)])
        edge_offsets = np.cumsum([0, *(len(edges) for *_, edges in kept)])

        def flat(column: int) -> list[int]:
            return [value for columns in kept for value in columns[column]]  # type: ignore[misc]

        return QuerySet(
            node_offsets.astype(np.int64),
            np.array(flat(0), np.int32),
            np.array(flat(1), np.int32),
            np.array(flat(2), np.int8),
            edge_offsets.astype(np.int64),
            np.array(flat(3), np.int32).reshape(-1, 3),
            np.full(len(kept), KINDS.index(self.kind), np.int8),
        )


class _Reader:
    """Turns names into ids and keeps count of those that are unknown."""

    def __init__(self, vocabulary: Vocabulary, skip_unknown: bool) -> None:
        # As dicts: a filter file asks for millions of names, and a vocabulary finds one at a time on disk.
        self.ids = {
            what: {name: id_ for id_, name in reversed(list(enumerate(names)))}
            for what, names in (("entity", vocabulary.entities), ("relation", vocabulary.relations))
        }
        self.skip_unknown = skip_unknown
        self.skipped: dict[str, int] = {}

    def entity(self, name: str) -> int:
        return self._id("entity", name)

    def relation(self, name: str) -> int:
        return self._id("relation", name)

    def _id(self, what: str, name: str) -> int:
        id_ = self.ids[what].get(name)
        if id_ is None:
            raise _Unknown(what, name)
        return id_

    def unknown(self, place: str, what: str, name: object, reason: str, count: int = 1) -> None:
        if not self.skip_unknown:
            raise UnknownName(
                f"{place}: {what} {name!r} is not one of the {len(self.ids[what]):,} that the model knows",
                hint="the release must belong to the graph that the model was trained on; with skip_unknown "
                "(--skip-unknown) such names are left out and counted",
            )
        self.leave_out(reason, count)

    def leave_out(self, reason: str, count: int) -> None:
        self.skipped[reason] = self.skipped.get(reason, 0) + count

    def queries(self, path: Path, kind: str) -> _Rows:
        """Every query of a file of DAGs or paths."""
        rows = _Rows([], [], kind)
        build = self._dag if kind == "dag" else self._path
        for number, item in enumerate(json_items(path)):
            place = f"{path}, query {number:,}"
            try:
                columns, keys = build(item, place)
                rows.columns.append(columns)
                rows.keys.append(keys)
            except _Unknown as error:
                self.unknown(place, error.what, error.name, f"query with an unknown {error.what}")
                rows.columns.append(None)
                rows.keys.append([])
        if all(columns is None for columns in rows.columns):
            raise EmptyResult(f"{path} holds no query that can be read ({len(rows.columns):,} in all)")
        return rows

    def _dag(self, item: object, place: str):  # type: ignore[no-untyped-def]
        if not isinstance(item, list) or len(item) == 0 or not all(isinstance(path, str) for path in item):
            raise UnreadableFile(f"{place}: a DAG must be a list of path strings. Got {_short(item)}")
        nodes, gold, roles = [TARGET, TARGET], [-1, -1], [_TAIL, _INTERSECTION]
        keys = ["tail", "inter"]
        edges: list[tuple[int, int, int]] = []
        for branch, text in enumerate(item):
            names, relations, golds = _tokens(text, place)
            if len(names) < 3 or names[:2] != [MASK, MASK]:
                raise UnreadableFile(
                    f"{place}: a path of a DAG must start with the tail's mask, its relation and the intersection's "
                    f"mask. Got {_short(text)}"
                )
            if names[-1] == MASK:
                raise UnreadableFile(f"{place}: a path of a DAG must end with an entity. Got {_short(text)}")
            if branch == 0:
                shared = (relations[0], golds[:2])
                gold[:2] = self.entity(golds[0]), self.entity(golds[1])
                edges.append((1, self.relation(relations[0]), 0))
            elif (relations[0], golds[:2]) != shared:
                raise UnreadableFile(
                    f"{place}: all paths must share tail, tail relation and intersection; path {branch} has "
                    f"{_short([*golds[:2], relations[0]])}, path 0 has {_short([*shared[1], shared[0]])}"
                )
            further = iter(golds[2:])
            mask, target = 0, 1
            for step, name in enumerate(names[2:], start=1):
                if name == MASK:
                    nodes.append(TARGET)
                    gold.append(self.entity(next(further)))
                    roles.append(_BRANCH)
                    keys.append(f"{branch}-{mask}")
                    mask += 1
                else:
                    # As in mined queries, a node of its own even where branches share an entity: so two
                    # equal branches stay two paths.
                    value = self.entity(name)
                    nodes.append(value)
                    gold.append(value)
                    roles.append(0)
                edges.append((len(nodes) - 1, self.relation(relations[step]), target))
                target = len(nodes) - 1
        return (nodes, gold, roles, edges), keys

    def _path(self, item: object, place: str):  # type: ignore[no-untyped-def]
        if not isinstance(item, str):
            raise UnreadableFile(f"{place}: a path must be a string. Got {_short(item)}")
        names, relations, golds = _tokens(item, place)
        if not golds:
            raise UnreadableFile(f"{place}: a path must have at least one {MASK}. Got {_short(item)}")
        further = iter(golds)
        nodes, gold, roles = [], [], []
        for name in names:
            is_mask = name == MASK
            gold.append(self.entity(next(further) if is_mask else name))
            nodes.append(TARGET if is_mask else gold[-1])
            roles.append(_BRANCH if is_mask else 0)
        if names[-1] == MASK:
            roles[-1] = _TAIL
        edges = [(step, self.relation(relation), step + 1) for step, relation in enumerate(relations)]
        return (nodes, gold, roles, edges), [str(mask) for mask in range(len(golds))]

    def filters(self, path: Path, kind: str, rows: _Rows, queries_file: Path) -> AnswerSets:
        """The filters of the queries that were kept, one sorted set a target."""
        sets: list[np.ndarray] = []
        count = 0
        for number, item in enumerate(json_items(path)):
            count += 1
            if number >= len(rows.columns) or rows.columns[number] is None:
                continue
            place = f"{path}, query {number:,}"
            entries = _filter_entries(item, kind, rows.keys[number], place)
            sets.extend(self._filter(names, f"{place}, {key!r}") for key, names in entries)
            if len(item) > len(entries):  # type: ignore[arg-type]
                self.leave_out("filter whose key fits no target", len(item) - len(entries))  # type: ignore[arg-type]
        if count != len(rows.columns):
            raise UnreadableFile(
                f"{path} has filters of {count:,} queries, but {queries_file.name} has {len(rows.columns):,} queries",
                hint="filters and queries must come from the same release and split",
            )
        offsets = np.zeros(len(sets) + 1, np.int64)
        np.cumsum([len(values) for values in sets], out=offsets[1:])
        return AnswerSets(offsets, np.concatenate([np.zeros(0, np.int32), *sets]))

    def _filter(self, names: object, place: str) -> np.ndarray:
        if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
            raise UnreadableFile(f"{place}: a filter must be a list of entity names. Got {_short(names)}")
        ids = list(map(self.ids["entity"].get, names))
        if None in ids:
            missing = ids.count(None)
            name = names[ids.index(None)]
            self.unknown(place, "entity", name, "filter value that is an unknown entity", missing)
            ids = [id_ for id_ in ids if id_ is not None]
        return np.unique(np.array(ids, np.int32))


def _filter_entries(item: object, kind: str, keys: list[str], place: str) -> list[tuple[str, object]]:
    """Key and filter of each target, in node order."""
    if kind == "dag":
        if not isinstance(item, dict):
            raise UnreadableFile(f"{place}: the filters of a DAG must be a dict. Got {_short(item)}")
        missing = [key for key in keys if key not in item]
        if missing:
            raise UnreadableFile(
                f"{place}: the filters must have a key for each target; missing {_short(missing)}, "
                f"found {_short(sorted(item))}",
                hint="filters and queries must come from the same release and split",
            )
        return [(key, item[key]) for key in keys]
    if not isinstance(item, list):
        raise UnreadableFile(f"{place}: the filters of a path must be a list of lists. Got {_short(item)}")
    if len(item) != len(keys):
        raise UnreadableFile(f"{place}: {len(item)} filters for a path with {len(keys)} masks")
    return list(zip(keys, item, strict=True))


def _tokens(text: str, place: str) -> tuple[list[str], list[str], list[str]]:
    """Nodes, relations and golds of a path string, in the order in which they are written."""
    path, _, golds_text = text.rstrip("\r\n\t").partition("\t")
    tokens = path.split(SEPARATOR)
    if len(tokens) < 3 or len(tokens) % 2 == 0 or MASK in tokens[1::2] or "" in tokens:
        raise UnreadableFile(
            f"{place}: a path must alternate entities or {MASK} with relations, joined by {SEPARATOR!r}. "
            f"Got {_short(text)}"
        )
    golds = golds_text.split("\t") if golds_text else []
    masks = tokens[::2].count(MASK)
    if len(golds) != masks:
        raise UnreadableFile(f"{place}: {masks} masks but {len(golds)} gold entities in {_short(text)}")
    return tokens[::2], tokens[1::2], golds


def _short(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 160 else f"{text[:160]}…"
