"""A graph on disk: a folder of plain .npy arrays beside a manifest.json, memory-mapped when loaded.

    kg/g/
    ├── manifest.json                 kind, version, fingerprint, counts, prefixes, size and checksum of each file
    ├── train.npy valid.npy test.npy  (n, 3) int32, sorted
    ├── entities.*.npy relations.*.npy   names: UTF-8 bytes, offsets, and an order for finding a name
    └── labels.*.npy descriptions.*.npy  texts of some entities: ids, bytes, offsets

A folder appears whole or not at all: it is written beside its place and moved there in the end.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from biqe.errors import UnreadableFile
from biqe.graph.knowledge_graph import SPLITS, Splits
from biqe.graph.labels import Labels
from biqe.graph.vocabulary import Names, Vocabulary
from biqe.graph.whole_folder import MANIFEST, check_free, is_of_kind, write_folder, write_synced

KIND = "biqe graph"
VERSION = 1


def save(
    splits: Splits,
    folder: str | Path,
    *,
    prefixes: Mapping[str, str] | None = None,
    extra: Mapping[str, Any] | None = None,
    force: bool = False,
) -> dict[str, Any]:
    """Write ``splits`` to ``folder`` and return its manifest.

    ``extra`` is kept in the manifest under ``source``. An existing graph folder is replaced only with ``force``;
    anything else that stands there is never touched.
    """
    target = Path(folder)
    check_target(target, force=force)
    return write_folder(
        target, lambda place: _write(splits, place, prefixes if prefixes is not None else {"": ""}, extra or {})
    )


def check_target(folder: str | Path, *, force: bool = False) -> None:
    """InvalidOption if a graph may not be written to ``folder``: something else, or a graph without ``force``."""
    check_free(folder, kind=KIND, what="graph folder", force=force)


def is_graph_folder(folder: str | Path) -> bool:
    """Whether ``folder`` holds a graph that biqe wrote, of any version."""
    return is_of_kind(folder, KIND)


def load_manifest(folder: str | Path) -> dict[str, Any]:
    """The manifest of a graph folder; UnreadableFile if it is none, or one of another version."""
    place = Path(folder)
    if not place.exists():
        raise UnreadableFile(f"graph folder {place} does not exist", hint="make one with biqe import FILE --out FOLDER")
    path = place / MANIFEST
    if not path.is_file():
        raise UnreadableFile(
            f"{place} is not a graph folder of biqe: it has no {MANIFEST}",
            hint=f"import it first: biqe import {place} --out FOLDER",
        )
    try:
        manifest = json.loads(path.read_text("utf-8"))
    except (OSError, ValueError) as error:
        raise UnreadableFile(f"{path} is damaged: {error}") from error
    if not isinstance(manifest, dict) or manifest.get("kind") != KIND:
        kind = manifest.get("kind") if isinstance(manifest, dict) else None
        raise UnreadableFile(f"{place} is not a graph folder of biqe: its manifest says kind {kind!r}, not {KIND!r}")
    if manifest.get("version") != VERSION:
        raise UnreadableFile(
            f"{place} is a graph folder of version {manifest.get('version')!r}; this program reads version {VERSION}",
            hint="import the graph again",
        )
    return manifest


def load(folder: str | Path, *, verify: bool = False) -> Splits:
    """The splits in ``folder``, memory-mapped: loading costs milliseconds, whatever the size of the graph.

    Sizes of all files are compared with the manifest; with ``verify`` all bytes are, and the fingerprint is
    computed anew instead of taken from the manifest.
    """
    place = Path(folder)
    manifest = load_manifest(place)
    try:
        files = manifest["files"]
        for name, facts in files.items():
            _check_file(place / name, facts, verify=verify)
        vocabulary = Vocabulary(
            _names(place, "entities", with_lookup=True),
            _names(place, "relations", with_lookup=True),
            Labels(_array(place, "labels.ids"), _names(place, "labels")),
            Labels(_array(place, "descriptions.ids"), _names(place, "descriptions")),
        )
        splits = Splits(vocabulary, *(_array(place, split) for split in SPLITS))
        counts = [
            len(vocabulary.entities),
            len(vocabulary.relations),
            *(len(splits[split].triples) for split in SPLITS),
        ]
        promised = [manifest["entities"], manifest["relations"], *(manifest["triples"][split] for split in SPLITS)]
        if counts != promised:
            raise UnreadableFile(f"{place} is damaged: its arrays hold {counts} items, its manifest says {promised}")
        if verify and splits.fingerprint != manifest["fingerprint"]:
            raise UnreadableFile(f"{place} is damaged: its fingerprint is {splits.fingerprint}, not as in the manifest")
        # The cached properties are filled from the manifest: hashing a large graph takes longer than all the rest.
        splits.__dict__["fingerprint"] = manifest["fingerprint"]
        vocabulary.__dict__["fingerprint"] = manifest["vocabulary_fingerprint"]
    except (KeyError, TypeError, AttributeError) as error:
        raise UnreadableFile(f"{place / MANIFEST} is damaged: {error!r}", hint="import the graph again") from error
    return splits


def verify(folder: str | Path) -> None:
    """Read every byte of the folder and compare it with the manifest; UnreadableFile on the first difference."""
    load(folder, verify=True)


def _write(splits: Splits, folder: Path, prefixes: Mapping[str, str], extra: Mapping[str, Any]) -> dict[str, Any]:
    vocabulary = splits.vocabulary
    arrays: dict[str, NDArray[Any]] = {split: getattr(splits, split) for split in SPLITS}
    for kind, names in (("entities", vocabulary.entities), ("relations", vocabulary.relations)):
        arrays |= _name_arrays(kind, names) | {f"{kind}.lookup": names.lookup}
    for kind, texts in (("labels", vocabulary.labels), ("descriptions", vocabulary.descriptions)):
        texts = texts if isinstance(texts, Labels) else Labels.of(texts)
        arrays |= _name_arrays(kind, texts.texts) | {f"{kind}.ids": texts.entities}
    files = {f"{name}.npy": _write_array(folder / f"{name}.npy", array) for name, array in arrays.items()}
    manifest = {
        "kind": KIND,
        "version": VERSION,
        "fingerprint": splits.fingerprint,
        "vocabulary_fingerprint": vocabulary.fingerprint,
        "entities": len(vocabulary.entities),
        "relations": len(vocabulary.relations),
        "labels": len(vocabulary.labels),
        "triples": {split: len(getattr(splits, split)) for split in SPLITS},
        "prefixes": dict(prefixes),
        "source": dict(extra),
        "files": files,
    }
    text = json.dumps(manifest, ensure_ascii=False, indent=1)
    write_synced(folder / MANIFEST, lambda stream: stream.write(text.encode()))
    return manifest


def _name_arrays(kind: str, names: Names) -> dict[str, NDArray[Any]]:
    return {f"{kind}.blob": names.blob, f"{kind}.offsets": names.offsets}


def _write_array(path: Path, array: NDArray[Any]) -> dict[str, Any]:
    write_synced(path, lambda stream: np.save(stream, array, allow_pickle=False))
    return {"bytes": path.stat().st_size, "sha256": _checksum(path)}


def _checksum(path: Path) -> str:
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def _check_file(path: Path, facts: Mapping[str, Any], *, verify: bool) -> None:
    try:
        size = path.stat().st_size
    except OSError as error:
        raise UnreadableFile(f"{path} is missing: the graph folder is incomplete") from error
    if size != facts["bytes"]:
        raise UnreadableFile(f"{path} is damaged: it has {size:,} bytes, its manifest says {facts['bytes']:,}")
    if verify and _checksum(path) != facts["sha256"]:
        raise UnreadableFile(f"{path} is damaged: its checksum is not the one in the manifest")


def _array(folder: Path, name: str) -> NDArray[Any]:
    path = folder / f"{name}.npy"
    try:
        # Copy-on-write, not read-only: numba compiles a second version of every kernel for read-only arrays.
        return np.asarray(np.load(path, mmap_mode="c", allow_pickle=False))
    except (OSError, ValueError) as error:
        raise UnreadableFile(f"{path} is damaged: {error}") from error


def _names(folder: Path, kind: str, *, with_lookup: bool = False) -> Names:
    return Names(
        _array(folder, f"{kind}.blob"),
        _array(folder, f"{kind}.offsets"),
        _array(folder, f"{kind}.lookup") if with_lookup else None,
    )
