"""The folder of a live graph: a base that never changes, a log of the updates since, and a new base at times.

    live/
    ├── manifest.json         kind and version of the format
    ├── updates.sqlite        the log; its state names the current base (biqe.serve.live.log)
    ├── acknowledged          number of the last acknowledged update
    ├── 000000000120/         a base, named by the version of the graph that it holds
    │   ├── graph/            graph folder (biqe.graph.folder), memory-mapped
    │   └── literals          statements with a literal as object
    ├── rejected.jsonl        suggestions that somebody rejected (biqe.suggest.rejections)
    └── .lock                 held by the process that writes

The state has the checksum of the base's manifest, and that has those of all files of the base. A new base is written
beside the old one, synced, and named in the state in one transaction, so a kill leaves the old one or the new one.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import json
import os
import shutil
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from biqe.errors import InvalidOption, RunFailed, UnreadableFile
from biqe.graph import folder as graph_folder
from biqe.graph.knowledge_graph import Splits
from biqe.graph.whole_folder import (
    MANIFEST,
    MAX_MANIFEST_BYTES,
    check_free,
    is_of_kind,
    read_regular,
    sync_folder,
    write_folder,
    write_synced,
)
from biqe.graph.whole_folder import read_manifest as read_folder_manifest
from biqe.serve.live.changes import Changes, Statement, Text, decode, encode
from biqe.serve.live.log import RESTORE, Log, damaged

KIND = "biqe live graph"
VERSION = 2
GRAPH, LITERALS, LOCK, REJECTED = "graph", "literals", ".lock", "rejected.jsonl"
MAX_LITERALS_BYTES = 1 << 36


@dataclass(frozen=True)
class Base:
    """A version of a live graph as it is stored, and what belongs to the live graph as a whole."""

    version: int
    splits: Splits
    prefixes: Mapping[str, str]
    literals: tuple[Statement, ...]
    known: str
    """The splits that count as known: ``complete`` or ``train``."""
    origin: str
    """Fingerprint of the graph that the live graph was made from."""
    copies: tuple[str, ...] = ()
    """Fingerprints of graphs that runs copied from it."""

    @classmethod
    def first(cls, splits: Splits, known: str, prefixes: Mapping[str, str] | None) -> Base:
        """The base of a new live graph."""
        found = () if splits.literals is None else splits.literals.statements()
        literals = tuple(Statement(subject, relation, Text.of(value)) for subject, relation, value in found)
        bare = replace(splits, literals=None)
        return cls(0, bare, dict(prefixes or {"": ""}), literals, known, splits.fingerprint)


def is_live_folder(folder: str | os.PathLike[str]) -> bool:
    """Whether ``folder`` holds a live graph, of any version of the format."""
    return is_of_kind(Path(folder), KIND)


def read_manifest(folder: Path) -> None:
    """UnreadableFile if it is not a live graph, or of another version of the format."""
    make = "one is made by: biqe serve --live FOLDER"
    other = f"write it anew in this version: biqe restore {folder} --out OTHER"
    read_folder_manifest(folder, kind=KIND, version=VERSION, what="live graph", make=make, other=RESTORE, damaged=other)


def create(folder: Path, base: Base) -> None:
    """Make a live graph unless there is one; of several processes that start together, one makes it."""
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        guard = folder.parent / f".{folder.name}.lock"
        with locked(guard, 60.0):
            try:
                if not is_live_folder(folder):
                    refuse_taken(folder)
                    write(folder, base)
            finally:
                guard.unlink(missing_ok=True)
    except OSError as error:
        raise RunFailed(f"{folder} cannot be made: {error.strerror or error}") from error


def write(folder: Path, base: Base, *, rejected: bytes = b"", replace: bool = True) -> None:
    """Write a live graph with this base and without updates, whole or not at all."""

    def fill(place: Path) -> None:
        (place / LOCK).touch()
        if rejected:
            write_synced(place / REJECTED, lambda stream: stream.write(rejected))
        Log.create(place, write_base(place, base), base.version)
        manifest = json.dumps({"kind": KIND, "version": VERSION}) + "\n"
        write_synced(place / MANIFEST, lambda stream: stream.write(manifest.encode()))
        sync_folder(place)

    write_folder(folder, fill, replace=replace)


def refuse_taken(folder: Path) -> None:
    """InvalidOption if something else is at the path of a live graph."""
    try:
        check_free(folder, kind=KIND, what="live graph", force=False)
    except InvalidOption as error:
        raise InvalidOption(error.message, hint="choose another place with --live") from None


def write_base(folder: Path, base: Base) -> dict[str, Any]:
    """Write a base, and return the state that names it. Writers hold the folder's lock."""
    name = _name(base.version)

    def fill(place: Path) -> None:
        data = encode(Changes(inserted=base.literals), base.version, time.time())
        write_synced(place / LITERALS, lambda stream: stream.write(data))
        # A base says by itself what it is, for the case that its log cannot be read.
        about = {"live_version": base.version, "known": base.known, "origin": base.origin, "literals": _sha256(data)}
        graph_folder.save(base.splits, place / GRAPH, prefixes=base.prefixes, extra=about)
        sync_folder(place)

    try:
        sweep(folder)
        write_folder(folder / name, fill)
        manifest = _sha256(read_regular(folder / name / GRAPH / MANIFEST, MAX_MANIFEST_BYTES))
    except (OSError, RunFailed) as error:
        raise RunFailed(
            f"a new base could not be written to {folder}: {error}; nothing is lost",
            hint="is the disk full? Updates are still written to the log",
        ) from error
    return {"version": base.version, "manifest": manifest, "copies": list(base.copies)}


def read_base(folder: Path, state: Mapping[str, Any], *, verify: bool) -> Base:
    """The base that a log's state names; with ``verify`` all its bytes are compared with their checksums."""
    place = folder / _name(state["version"])
    manifest = place / GRAPH / MANIFEST
    try:
        found = _sha256(read_regular(manifest, MAX_MANIFEST_BYTES))
    except OSError as error:
        raise UnreadableFile(f"{manifest} cannot be read: {error.strerror or error}", hint=RESTORE) from error
    if found != state["manifest"]:
        raise damaged(manifest, "its checksum is not the one in the log")
    return base_in(place, tuple(state["copies"]), verify=verify)


def base_in(place: Path, copies: tuple[str, ...] = (), *, verify: bool = True) -> Base:
    """A base by what it says of itself."""
    path = place / LITERALS
    try:
        splits = graph_folder.load(place / GRAPH, verify=verify)
        manifest = graph_folder.load_manifest(place / GRAPH)
        about = manifest["source"]
        data = read_regular(path, MAX_LITERALS_BYTES)
        if _sha256(data) != about["literals"]:
            raise damaged(path, "its checksum is not the one in the manifest beside it")
        literals = decode(data)[1].inserted
        return Base(
            int(about["live_version"]), splits, manifest["prefixes"], literals, about["known"], about["origin"], copies
        )
    except UnreadableFile as error:
        raise UnreadableFile(error.message, hint=RESTORE) from error
    except OSError as error:
        raise UnreadableFile(f"{path} cannot be read: {error.strerror or error}", hint=RESTORE) from error
    except (KeyError, TypeError, ValueError) as error:
        raise damaged(place / GRAPH / MANIFEST, f"it lacks what the base of a live graph says: {error}") from error


def bases(folder: Path) -> list[Path]:
    """All bases of a folder, the newest first."""
    found = (place for place in folder.iterdir() if place.name.isdigit() and place.is_dir())
    return sorted(found, key=lambda place: int(place.name), reverse=True)


def sweep(folder: Path, *, keep: int | None = None) -> None:
    """Delete what killed writers left behind; with ``keep``, also all bases but that of this version."""
    for place in folder.iterdir():
        if place.name.startswith(".") and place.name.endswith((".new", ".old")):
            shutil.rmtree(place, ignore_errors=True)
    if keep is not None:
        for place in bases(folder):
            if place.name != _name(keep):
                shutil.rmtree(place, ignore_errors=True)


@contextlib.contextmanager
def writing(folder: Path, seconds: float) -> Iterator[None]:
    """Hold the folder's lock, which ends with its process; RunFailed if another process holds it for ``seconds``."""
    try:
        with locked(folder / LOCK, seconds):
            yield
    except OSError as error:
        raise RunFailed(
            f"{folder} cannot be written: {error.strerror or error}", hint="is the disk full, or the place read-only?"
        ) from error


@contextlib.contextmanager
def locked(path: Path, seconds: float) -> Iterator[None]:
    """Hold a lock on a file; RunFailed if another process holds it for ``seconds``."""
    with path.open("a") as file:
        until = time.monotonic() + seconds
        pause = 0.0005
        while True:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if time.monotonic() > until:
                    raise RunFailed(
                        f"another process has been writing to {path.parent} for {seconds:g} s",
                        hint="send the update again",
                    ) from None
                time.sleep(pause)
                pause = min(2 * pause, 0.02)
        yield


def hold(folder: Path, *, alone: bool = False) -> int:
    """A descriptor that marks the folder as in use until it is closed. With ``alone``, RunFailed if it is in use."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        fcntl.flock(handle, (fcntl.LOCK_EX if alone else fcntl.LOCK_SH) | fcntl.LOCK_NB)
    except OSError as error:
        if alone or error.errno is None:
            os.close(handle)
            raise RunFailed(f"{folder} is in use", hint="stop the server that serves it first") from error
        # A file system without locks.
    return handle


def _sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def _name(version: int) -> str:
    return f"{version:012d}"
