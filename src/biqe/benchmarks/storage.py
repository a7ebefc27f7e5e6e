"""Where benchmark files lie, and where what was read from them is cached.

The data folder holds other people's files, each benchmark in its own folder (docs/concepts/benchmarks.md). The cache
holds what was imported, mined or read here:

    ~/.cache/biqe/                           or the folder that BIQE_CACHE names
    ├── graphs/fb15k237-<key>/               graph folders (biqe.graph.folder)
    ├── mined/fb15k237-cq-<key>/             mined sets (biqe.mine.folder)
    └── columns/fb15k237-q2b-valid-<key>/    manifest.json and .npy columns, memory-mapped when loaded

A key is a checksum over the bytes of all inputs and the options, so nothing in the cache is ever out of date. A
folder appears whole or not at all, and a damaged one is made again. The cache may be deleted at any time.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

from biqe.errors import UnreadableFile
from biqe.graph.whole_folder import MANIFEST, open_regular, write_folder, write_synced

KIND = "biqe benchmark columns"
VERSION = 1
Columns = Mapping[str, NDArray[Any]]


def data_folder(data: str | Path | None = None) -> Path:
    """The folder of benchmark files, which need not exist: ``data``, else the one that BIQE_DATA names, else
    ``shared/data`` beside the checkout, else ``data`` in the working folder."""
    if data is not None:
        return Path(data)
    if named := os.environ.get("BIQE_DATA"):
        return Path(named)
    beside = Path(__file__).resolve().parents[4] / "shared" / "data"
    return beside if beside.is_dir() else Path("data")


def missing_files(folder: Path, names: Iterable[str]) -> list[Path]:
    """Those of the files ``names`` that ``folder`` lacks."""
    return [folder / name for name in names if not (folder / name).is_file()]


def refuse_missing(what: str, missing: Sequence[Path], how: str) -> None:
    """UnreadableFile if any file of ``what`` is missing; ``how`` says how to get it."""
    if missing:
        more = f" and {len(missing) - 1:,} more" if len(missing) > 1 else ""
        raise UnreadableFile(f"the files of {what} are not at hand: {missing[0]}{more} missing", hint=how)


def cache_folder() -> Path:
    """The folder that BIQE_CACHE names, else ``biqe`` in the user's cache folder."""
    if named := os.environ.get("BIQE_CACHE"):
        return Path(named)
    base = os.environ.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path.home() / ".cache") / "biqe"


def sha256(path: Path) -> str:
    """Checksum of a file, in hex."""
    try:
        with open(open_regular(path), "rb") as stream:
            return hashlib.file_digest(stream, "sha256").hexdigest()
    except OSError as error:
        raise UnreadableFile(f"{path} cannot be read: {error.strerror or error}") from error


def key_of(*parts: object, files: Iterable[Path] = ()) -> str:
    """Sixteen hex digits over ``parts`` and over names and bytes of ``files``."""
    digest = hashlib.sha256(json.dumps([str(part) for part in parts]).encode())
    for path in files:
        digest.update(path.name.encode() + b"\0" + sha256(path).encode())
    return digest.hexdigest()[:16]


def digest_of(columns: Columns) -> str:
    """Sixteen hex digits over names, types and values of the columns."""
    digest = hashlib.sha256()
    for name, array in sorted(columns.items()):
        digest.update(f"{name} {array.dtype.str} {array.shape}\n".encode())
        digest.update(np.ascontiguousarray(array).data)
    return digest.hexdigest()[:16]


def cached_columns(name: str, key: str, make: Callable[[], Columns]) -> dict[str, NDArray[Any]]:
    """The columns cached under ``name`` and ``key``, memory-mapped; made by ``make`` where they are not there."""
    place = cache_folder() / "columns" / f"{name}-{key}"
    found = _load(place)
    if found is None:
        columns = make()
        write_folder(place, lambda folder: _write(columns, folder))
        found = _load(place)
        if found is None:
            raise UnreadableFile(
                f"{place} cannot be read back after it was written", hint="BIQE_CACHE names another place"
            )
    return found


def _write(columns: Columns, folder: Path) -> None:
    files = {}
    for name, array in columns.items():
        path = folder / f"{name}.npy"
        write_synced(path, partial(_save, array=np.ascontiguousarray(array)))
        files[name] = {"bytes": path.stat().st_size, "dtype": array.dtype.str, "shape": list(array.shape)}
    manifest = {"kind": KIND, "version": VERSION, "columns": files}
    write_synced(folder / MANIFEST, lambda stream: stream.write(json.dumps(manifest, indent=1).encode()))


def _save(stream: BinaryIO, array: NDArray[Any]) -> None:
    np.save(stream, array, allow_pickle=False)


def _load(place: Path) -> dict[str, NDArray[Any]] | None:
    """The columns in ``place``; None where they are missing, damaged, or of another version."""
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
