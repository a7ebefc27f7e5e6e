"""Where the results of reading and sampling are kept: a folder of .npy columns for each, found by its inputs.

    ~/.cache/biqe/                           or the folder that BIQE_CACHE names
    ├── graphs/fb15k237-<key>/               graph folders (biqe.graph.folder)
    ├── mined/fb15k237-cq-<key>/             mined sets (biqe.mine.folder)
    └── columns/fb15k237-q2b-valid-<key>/    manifest.json and columns, memory-mapped when loaded

A key is a checksum over the bytes of all inputs and the options, so nothing is ever out of date; a folder appears
whole or not at all. One that is damaged is made again. All of it may be deleted at any time.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

from biqe.errors import UnreadableFile
from biqe.graph.whole_folder import MANIFEST, write_folder, write_synced

KIND = "biqe benchmark columns"
VERSION = 1
Columns = Mapping[str, NDArray[Any]]


def cache_folder() -> Path:
    """The folder that BIQE_CACHE names, else ``biqe`` in the user's cache folder."""
    if named := os.environ.get("BIQE_CACHE"):
        return Path(named)
    base = os.environ.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path.home() / ".cache") / "biqe"


def checksum(path: Path) -> str:
    """SHA-256 of a file, in hex."""
    try:
        with path.open("rb") as stream:
            return hashlib.file_digest(stream, "sha256").hexdigest()
    except OSError as error:
        raise UnreadableFile(f"{path} cannot be read: {error.strerror or error}") from error


def key_of(*parts: object, files: Iterable[Path] = ()) -> str:
    """Sixteen hex digits over ``parts`` and over names and bytes of ``files``."""
    digest = hashlib.sha256(json.dumps([str(part) for part in parts]).encode())
    for path in files:
        digest.update(path.name.encode() + b"\0" + checksum(path).encode())
    return digest.hexdigest()[:16]


def digest_of(columns: Columns) -> str:
    """Sixteen hex digits over names, types and values of the columns."""
    digest = hashlib.sha256()
    for name, array in sorted(columns.items()):
        digest.update(f"{name} {array.dtype.str} {array.shape}\n".encode())
        digest.update(np.ascontiguousarray(array).data)
    return digest.hexdigest()[:16]


def cached_columns(name: str, key: str, make: Callable[[], Columns]) -> dict[str, NDArray[Any]]:
    """The columns kept under ``name`` and ``key``, memory-mapped; made by ``make`` where they are not there."""
    place = cache_folder() / "columns" / f"{name}-{key}"
    found = load_columns(place)
    if found is None:
        save_columns(place, make())
        found = load_columns(place)
        if found is None:
            raise UnreadableFile(
                f"{place} cannot be read back after it was written", hint="BIQE_CACHE names another place"
            )
    return found


def save_columns(place: Path, columns: Columns) -> None:
    """Write the columns as the folder ``place``, whole or not at all, in the place of what stood there."""

    def write(folder: Path) -> None:
        files = {}
        for name, array in columns.items():
            path = folder / f"{name}.npy"
            write_synced(path, partial(_save, array=np.ascontiguousarray(array)))
            files[name] = {"bytes": path.stat().st_size, "dtype": array.dtype.str, "shape": list(array.shape)}
        manifest = {"kind": KIND, "version": VERSION, "digest": digest_of(columns), "columns": files}
        write_synced(folder / MANIFEST, lambda stream: stream.write(json.dumps(manifest, indent=1).encode()))

    write_folder(place, write)


def _save(stream: BinaryIO, array: NDArray[Any]) -> None:
    np.save(stream, array, allow_pickle=False)


def load_columns(place: Path) -> dict[str, NDArray[Any]] | None:
    """The columns in ``place``, memory-mapped; None where they are missing, damaged, or of another version."""
    try:
        manifest = json.loads((place / MANIFEST).read_text("utf-8"))
        if manifest["kind"] != KIND or manifest["version"] != VERSION:
            return None
        columns = {}
        for name, facts in manifest["columns"].items():
            path = place / f"{name}.npy"
            if path.stat().st_size != facts["bytes"]:
                return None
            # Copy-on-write, not read-only: numba compiles a second version of every kernel for read-only arrays.
            array = np.asarray(np.load(path, mmap_mode="c" if 0 not in facts["shape"] else None, allow_pickle=False))
            if array.dtype.str != facts["dtype"] or list(array.shape) != facts["shape"]:
                return None
            columns[name] = array
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return None
    return columns
