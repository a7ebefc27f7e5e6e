"""A graph on disk: a folder of plain .npy arrays beside a manifest.json, memory-mapped when loaded.

    kg/g/
    ├── manifest.json                 kind, version, fingerprint, counts, prefixes, size and checksum of each file
    ├── train.npy valid.npy test.npy  (n, 3) int32, sorted
    ├── entities.*.npy relations.*.npy   names: UTF-8 bytes, offsets, and an order for finding a name
    ├── labels.*.npy descriptions.*.npy  texts of some entities: ids, bytes, offsets
    ├── aliases.*.npy                 further labels, likewise; only where there are some
    └── literals.*.npy                statements with a literal as object, likewise

A folder appears whole or not at all: it is written beside its place and moved there in the end.
"""

from __future__ import annotations

import hashlib
import json
import stat
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from biqe.errors import UnreadableFile
from biqe.graph.knowledge_graph import SPLITS, Splits
from biqe.graph.literals import Literals
from biqe.graph.vocabulary import Aliases, Labels, Names, Vocabulary
from biqe.graph.whole_folder import (
    MANIFEST,
    cannot_be_read,
    check_free,
    is_of_kind,
    read_array,
    read_manifest,
    write_folder,
    write_synced,
)

KIND = "biqe graph"
VERSION = 1
_DAMAGED = "import the graph again; biqe doctor GRAPH shows more"
_ENTRIES = {
    "fingerprint": str,
    "vocabulary_fingerprint": str,
    "entities": int,
    "relations": int,
    "triples": dict,
    "prefixes": dict,
    "source": dict,
    "files": dict,
}
"""Entries that every manifest has, and their types."""
_KIND_WORDS = {str: "a text", int: "a number of 0 or more", dict: "an object"}
_LITERAL_NAMES = ("subjects", "relations", "values")
_WIDE = 1024
"""Rows of triples that are looked at as one."""


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
        target,
        lambda place: _write(splits, place, prefixes if prefixes is not None else {"": ""}, extra or {}),
        replace=force,
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
    manifest = read_manifest(
        place,
        kind=KIND,
        version=VERSION,
        what="graph folder",
        make="make one with biqe import FILE --out FOLDER",
        other=f"import it first: biqe import {place} --out FOLDER",
        damaged=_DAMAGED,
    )
    wrong = next(_wrong_entries(manifest), None)
    if wrong is not None:
        raise _damaged(place / MANIFEST, wrong)
    return manifest


def _wrong_entries(manifest: Mapping[str, Any]) -> Iterator[str]:
    """What is missing in a manifest, or of another type than it is written with."""
    for name, kind in _ENTRIES.items():
        value = manifest.get(name)
        if type(value) is not kind or (isinstance(value, int) and value < 0):  # a truth value is no number here
            yield f"{name!r} is missing or not {_KIND_WORDS[kind]}"
            return
    for name, facts in manifest["files"].items():
        is_size = isinstance(facts, dict) and type(facts.get("bytes")) is int and isinstance(facts.get("sha256"), str)
        if not is_size or Path(name).name != name:
            yield f"its entry for the file {name[:60]!r} cannot be right"
    for split in SPLITS:
        if type(manifest["triples"].get(split)) is not int:
            yield f"it has no number of triples for {split}"
    if not all(isinstance(iri, str) for iri in manifest["prefixes"].values()):
        yield "a prefix stands for something that is not text"


def load(folder: str | Path, *, verify: bool = False) -> Splits:
    """The splits in ``folder``, memory-mapped: loading costs one look at every id, and no copy.

    Sizes of all files are compared with the manifest, and every id and offset is checked to point at something; with
    ``verify`` all bytes are compared, and the fingerprint is computed anew instead of taken from the manifest.
    """
    place = Path(folder)
    manifest = load_manifest(place)
    files = manifest["files"]
    for name, facts in files.items():
        _check_file(place / name, facts, verify=verify)
    entities, relations = (_names(place, kind, with_lookup=True) for kind in ("entities", "relations"))
    vocabulary = Vocabulary(
        entities,
        relations,
        Labels(*_texts(place, "labels", len(entities))),
        Labels(*_texts(place, "descriptions", len(entities))),
        Aliases(*_texts(place, "aliases", len(entities))) if "aliases.ids.npy" in files else (),
    )
    parts = {split: _triples(place, split, len(entities), len(relations)) for split in SPLITS}
    splits = Splits(vocabulary, **parts, literals=_literals(place) if "literals.npy" in files else None)
    counts = [
        len(vocabulary.entities),
        len(vocabulary.relations),
        *(len(splits[split].triples) for split in SPLITS),
    ]
    promised = [manifest["entities"], manifest["relations"], *(manifest["triples"][split] for split in SPLITS)]
    if counts != promised:
        raise UnreadableFile(
            f"{place} is damaged: its arrays hold {counts} items, its manifest says {promised}", hint=_DAMAGED
        )
    if verify and splits.fingerprint != manifest["fingerprint"]:
        raise UnreadableFile(
            f"{place} is damaged: its fingerprint is {splits.fingerprint}, not as in the manifest", hint=_DAMAGED
        )
    # The cached properties are filled from the manifest: hashing a large graph takes longer than all the rest.
    splits.__dict__["fingerprint"] = manifest["fingerprint"]
    vocabulary.__dict__["fingerprint"] = manifest["vocabulary_fingerprint"]
    return splits


def _write(splits: Splits, folder: Path, prefixes: Mapping[str, str], extra: Mapping[str, Any]) -> dict[str, Any]:
    vocabulary = splits.vocabulary
    arrays: dict[str, NDArray[Any]] = {split: getattr(splits, split) for split in SPLITS}
    for kind, names in (("entities", vocabulary.entities), ("relations", vocabulary.relations)):
        arrays |= _name_arrays(kind, names) | {f"{kind}.lookup": names.lookup}
    for kind, texts in (("labels", vocabulary.labels), ("descriptions", vocabulary.descriptions)):
        texts = texts if isinstance(texts, Labels) else Labels.of(texts)
        arrays |= _name_arrays(kind, texts.texts) | {f"{kind}.ids": texts.entities}
    if vocabulary.aliases:
        aliases = Aliases.of(vocabulary.aliases)
        arrays |= _name_arrays("aliases", aliases.texts) | {"aliases.ids": aliases.entities}
    if splits.literals is not None:
        arrays["literals"] = splits.literals.rows
        for kind in _LITERAL_NAMES:
            arrays |= _name_arrays(f"literals.{kind}", getattr(splits.literals, kind))
    files = {f"{name}.npy": _write_array(folder / f"{name}.npy", array) for name, array in arrays.items()}
    manifest = {
        "kind": KIND,
        "version": VERSION,
        "fingerprint": splits.fingerprint,
        "vocabulary_fingerprint": vocabulary.fingerprint,
        "entities": len(vocabulary.entities),
        "relations": len(vocabulary.relations),
        "labels": len(vocabulary.labels),
        "aliases": len(vocabulary.aliases),
        "literals": 0 if splits.literals is None else len(splits.literals),
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
        found = path.stat()
    except FileNotFoundError as error:
        raise UnreadableFile(f"{path} is missing: the graph folder is incomplete", hint=_DAMAGED) from error
    except OSError as error:
        raise cannot_be_read(path, error) from error
    if not stat.S_ISREG(found.st_mode):
        raise UnreadableFile(f"{path} is not a regular file", hint="a pipe or a device cannot stand in for it")
    size = found.st_size
    if size != facts["bytes"]:
        raise _damaged(path, f"it has {size:,} bytes, its manifest says {facts['bytes']:,}")
    if verify and _checksum(path) != facts["sha256"]:
        raise _damaged(path, "its checksum is not the one in the manifest")


def _damaged(path: Path, what: str) -> UnreadableFile:
    return UnreadableFile(f"{path} is damaged: {what}", hint=_DAMAGED)


def _array(folder: Path, name: str, dtype: str, columns: int | None = None) -> NDArray[Any]:
    """The array of that name: one row of ``dtype``, or rows of so many columns."""
    path = folder / f"{name}.npy"
    array = read_array(path, damaged=_DAMAGED)
    tail = () if columns is None else (columns,)
    if array.dtype != dtype or array.ndim != 1 + len(tail) or array.shape[1:] != tail or not array.flags.c_contiguous:
        wanted = ", ".join(map(str, ("n", *tail)))
        raise _damaged(
            path, f"it holds {array.dtype} of shape {array.shape}, not {np.dtype(dtype)} of shape ({wanted})"
        )
    return array


def _triples(folder: Path, split: str, entities: int, relations: int) -> NDArray[np.int32]:
    return _checked(folder, split, ("subject", "relation", "object"), (entities, relations, entities))


def _checked(folder: Path, name: str, kinds: Sequence[str], counts: Sequence[int]) -> NDArray[np.int32]:
    """Rows of three ids, one of each kind, of which there are so many."""
    rows = _array(folder, name, "<i4", 3)
    for kind, largest, count in zip(kinds, _largest(rows), counts, strict=True):
        if largest >= count:
            # Negative ids look like very large ones, and are wrong like them.
            found = largest if largest < 1 << 31 else largest - (1 << 32)
            raise _damaged(folder / f"{name}.npy", f"a triple has the {kind} {found}; ids go from 0 to {count - 1}")
    return rows


def _literals(folder: Path) -> Literals:
    names = {kind: _names(folder, f"literals.{kind}") for kind in _LITERAL_NAMES}
    rows = _checked(folder, "literals", _LITERAL_NAMES, list(map(len, names.values())))
    return Literals(**names, rows=rows)


def _largest(rows: NDArray[np.int32]) -> list[int]:
    """The largest value of each column, read as unsigned; -1 where there are no rows.

    Many rows are taken as one long row: numpy is some ten times slower on rows of three.
    """
    values = rows.view(np.uint32)
    whole = len(values) // _WIDE * _WIDE
    parts = [values[whole:]]
    if whole:
        parts.append(values[:whole].reshape(-1, 3 * _WIDE).max(axis=0).reshape(-1, 3))
    return [max((int(part[:, column].max()) for part in parts if len(part)), default=-1) for column in range(3)]


def _names(folder: Path, kind: str, *, with_lookup: bool = False) -> Names:
    blob, offsets = _array(folder, f"{kind}.blob", "|u1"), _array(folder, f"{kind}.offsets", "<i8")
    path = folder / f"{kind}.offsets.npy"
    if len(offsets) == 0 or offsets[0] != 0 or offsets[-1] != len(blob):
        raise _damaged(path, f"its offsets do not go from 0 to {len(blob)}")
    if (offsets[1:] < offsets[:-1]).any():
        raise _damaged(path, "its offsets do not ascend")
    if not with_lookup:
        return Names(blob, offsets)
    lookup = _array(folder, f"{kind}.lookup", "<u8")
    # The id is the lower half of an entry, which comes first on disk.
    ids = lookup.view("<u4")[::2]
    if len(ids) != len(offsets) - 1 or (len(ids) and ids.max() >= len(ids)):
        raise _damaged(folder / f"{kind}.lookup.npy", f"it does not lead to {len(offsets) - 1} names")
    return Names(blob, offsets, lookup)


def _texts(folder: Path, kind: str, entities: int) -> tuple[NDArray[np.int32], Names]:
    """Ids of entities, and a text for each."""
    ids, texts = _array(folder, f"{kind}.ids", "<i4"), _names(folder, kind)
    path = folder / f"{kind}.ids.npy"
    if len(ids) != len(texts):
        raise _damaged(path, f"it has {len(ids):,} ids for {len(texts):,} texts")
    if len(ids) and (ids[0] < 0 or ids[-1] >= entities or (ids[1:] < ids[:-1]).any()):
        raise _damaged(path, f"its ids do not ascend within 0 to {entities - 1}")
    return ids, texts
