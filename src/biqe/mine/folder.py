"""A mined set on disk: a folder of .npy columns beside a manifest.json, memory-mapped when loaded.

    sets/cq/
    ├── manifest.json                     kind, version, recipe, seed, fingerprints, statistics, leakage, files
    ├── train.nodes.npy train.edges.npy … the columns of each split's query set
    └── train.filters.split.values.npy …  true values of each target, by filter

A folder appears whole or not at all: it is written beside its place and moved there in the end.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from biqe.errors import BiqeError, InvalidOption, UnreadableFile, VocabularyMismatch
from biqe.graph.knowledge_graph import Splits
from biqe.graph.vocabulary import Vocabulary
from biqe.graph.whole_folder import (
    MANIFEST,
    cannot_be_read,
    check_free,
    read_array,
    read_manifest,
    write_folder,
    write_synced,
)
from biqe.mine.dataset import MineConfig, MinedSet
from biqe.mine.leakage import Leakage
from biqe.mine.statistics import DEFINITIONS, SplitStatistics
from biqe.query.bound import HIDDEN, KINDS, ROLES, AnswerSets, QuerySet

KIND = "biqe mined set"
VERSION = 1
_MAKE = "make one with biqe mine GRAPH --out FOLDER"
_DAMAGED = "mine the set again"
_COLUMNS = {
    "node_offsets": np.int64,
    "nodes": np.int32,
    "gold": np.int32,
    "roles": np.int8,
    "edge_offsets": np.int64,
    "edges": np.int32,
    "kinds": np.int8,
}


def save(mined: MinedSet, folder: str | Path, *, force: bool = False) -> dict[str, Any]:
    """Write ``mined`` to ``folder`` and return its manifest.

    An existing mined set is replaced only with ``force``; anything else that stands there is never touched.
    """
    target = Path(folder)
    check_target(target, force=force)
    return write_folder(target, lambda place: _write(mined, place), replace=force)


def check_target(folder: str | Path, *, force: bool = False) -> None:
    """InvalidOption if no mined set may be written to ``folder``: something else is there, or one without ``force``."""
    check_free(folder, kind=KIND, what="mined set", force=force)


def load_manifest(folder: str | Path) -> dict[str, Any]:
    """The manifest of a mined set; UnreadableFile if it is none, or one of another version."""
    return read_manifest(
        Path(folder), kind=KIND, version=VERSION, what="mined set", make=_MAKE, other=_MAKE, damaged=_DAMAGED
    )


def load(folder: str | Path, splits: Splits | None = None, *, vocabulary: Vocabulary | None = None) -> MinedSet:
    """The mined set in ``folder``, memory-mapped.

    With ``splits``, it must have been mined from exactly these; with ``vocabulary``, from a graph with these
    names and ids. VocabularyMismatch otherwise.
    """
    place = Path(folder)
    manifest = load_manifest(place)
    try:
        if splits is not None:
            _check_same(place, "graph", manifest["graph_fingerprint"], splits.fingerprint)
        if vocabulary is not None:
            _check_same(place, "vocabulary", manifest["vocabulary_fingerprint"], vocabulary.fingerprint)
        for name, size in manifest["files"].items():
            _check_file(place / name, size)
        sizes = (int(manifest["entities"]), int(manifest["relations"]))
        queries = {split: _query_set(place, split, facts, sizes) for split, facts in manifest["splits"].items()}
        return MinedSet(
            MineConfig.from_dict(manifest["config"]),
            queries,
            {split: SplitStatistics(**facts["statistics"]) for split, facts in manifest["splits"].items()},
            Leakage(**manifest["leakage"]),
            manifest["graph_fingerprint"],
            manifest["vocabulary_fingerprint"],
            *sizes,
        )
    except (KeyError, TypeError, AttributeError, ValueError, InvalidOption) as error:
        raise UnreadableFile(f"{place / MANIFEST} is damaged: {error}", hint=_DAMAGED) from error


def _write(mined: MinedSet, folder: Path) -> dict[str, Any]:
    files: dict[str, int] = {}

    def write(name: str, array: NDArray[Any]) -> None:
        path = folder / f"{name}.npy"
        write_synced(path, lambda stream: np.save(stream, np.ascontiguousarray(array), allow_pickle=False))
        files[path.name] = path.stat().st_size

    for split, queries in mined.queries.items():
        for column, dtype in _COLUMNS.items():
            write(f"{split}.{column}", getattr(queries, column).astype(dtype, copy=False))
        for graph, answers in queries.filters.items():
            write(f"{split}.filters.{graph}.offsets", answers.offsets)
            write(f"{split}.filters.{graph}.values", answers.values)
    manifest = {
        "kind": KIND,
        "version": VERSION,
        "recipe": mined.config.recipe,
        "seed": mined.config.seed,
        "config": mined.config.to_dict(),
        "graph_fingerprint": mined.graph_fingerprint,
        "vocabulary_fingerprint": mined.vocabulary_fingerprint,
        "entities": mined.entity_count,
        "relations": mined.relation_count,
        "splits": {
            split: {
                "queries": len(queries),
                "targets": len(queries.target_nodes),
                "filters": sorted(queries.filters),
                "statistics": mined.statistics[split].to_dict(),
            }
            for split, queries in mined.queries.items()
        },
        "counted": DEFINITIONS,
        "leakage": {name: dict(getattr(mined.leakage, name)) for name in Leakage.__dataclass_fields__},
        "files": files,
    }
    write_synced(folder / MANIFEST, lambda stream: stream.write(json.dumps(manifest, indent=1).encode()))
    return manifest


def _check_same(place: Path, what: str, stored: str, given: str) -> None:
    if stored != given:
        raise VocabularyMismatch(
            f"{place} was mined from a graph with {what} fingerprint {stored}; this one has {given}",
            hint="use the graph that the set was mined from, or mine a set from this one",
        )


def _check_file(path: Path, size: int) -> None:
    try:
        found = path.stat().st_size
    except FileNotFoundError as error:
        raise UnreadableFile(f"{path} is missing: the mined set is incomplete", hint=_DAMAGED) from error
    except OSError as error:
        raise cannot_be_read(path, error) from error
    if found != size:
        raise UnreadableFile(f"{path} is damaged: it has {found:,} bytes, its manifest says {size:,}", hint=_DAMAGED)


def _query_set(place: Path, split: str, facts: Mapping[str, Any], sizes: tuple[int, int]) -> QuerySet:
    columns = {name: _array(place, f"{split}.{name}", dtype) for name, dtype in _COLUMNS.items()}
    queries = QuerySet(**columns)  # type: ignore[arg-type]
    if problem := _problem(queries, sizes):
        raise UnreadableFile(f"{place} is damaged: in the queries of {split}, {problem}", hint=_DAMAGED)
    filters = {
        graph: AnswerSets(
            _array(place, f"{split}.filters.{graph}.offsets", np.int64),
            _array(place, f"{split}.filters.{graph}.values", np.int32),
        )
        for graph in facts["filters"]
    }
    if (len(queries), len(queries.target_nodes)) != (facts["queries"], facts["targets"]):
        raise UnreadableFile(
            f"{place} is damaged: {split} does not have as many queries as its manifest says", hint=_DAMAGED
        )
    for graph, answers in filters.items():
        if not _are_offsets(answers.offsets, len(answers.values)):
            raise UnreadableFile(
                f"{place} is damaged: the filters {graph!r} of {split} do not fit together", hint=_DAMAGED
            )
    try:
        return queries.with_filters(**filters)
    except BiqeError as error:
        raise UnreadableFile(f"{place} is damaged: {error.message}", hint=_DAMAGED) from error


def _array(place: Path, name: str, dtype: type) -> NDArray[Any]:
    path = place / f"{name}.npy"
    array = read_array(path, damaged=_DAMAGED)
    if array.dtype != dtype or array.ndim != (2 if name.endswith(".edges") else 1):
        raise UnreadableFile(f"{path} is damaged: it holds {array.ndim}-dimensional {array.dtype}", hint=_DAMAGED)
    return array


def _problem(queries: QuerySet, sizes: tuple[int, int]) -> str | None:
    """How the arrays contradict each other, so that a compiled kernel would read outside of them; None: not at all."""
    entities, relations = sizes
    nodes = len(queries.nodes)
    if not _are_offsets(queries.node_offsets, nodes) or not _are_offsets(queries.edge_offsets, len(queries.edges)):
        return "offsets do not fit the columns"
    if len(queries.gold) != nodes or len(queries.roles) != nodes or len(queries.kinds) != len(queries):
        return "columns differ in length"
    if len(queries.edge_offsets) != len(queries.node_offsets) or queries.edges.shape[1:] != (3,):
        return "edges do not fit the nodes"
    limits = (
        (queries.nodes, HIDDEN, entities),
        (queries.gold, -1, entities),
        (queries.roles, 0, len(ROLES)),
        (queries.kinds, 0, len(KINDS)),
        (queries.edges[:, 1], 0, 2 * relations),
    )
    if any(len(column) and not low <= column.min() <= column.max() < high for column, low, high in limits):
        return "an id is out of range"
    size = np.repeat(np.diff(queries.node_offsets), np.diff(queries.edge_offsets))
    ends = queries.edges[:, [0, 2]]
    if ((ends < 0) | (ends >= size[:, None])).any():
        return "an edge leads to a node that is not there"
    return None


def _are_offsets(offsets: NDArray[np.int64], size: int) -> bool:
    return len(offsets) > 0 and offsets[0] == 0 and offsets[-1] == size and bool((np.diff(offsets) >= 0).all())
