"""The folder of a live graph: a base that never changes, the journal of changes since, and a new base at times.

    live/
    ├── manifest.json         kind, version of the format, which triples count as known
    ├── current               name of the current generation
    ├── 000000000120/         a generation, named by the version of the graph that its base holds
    │   ├── graph/            graph folder (biqe.graph.folder), memory-mapped
    │   ├── literals          statements with a literal as object, as one record of a journal
    │   ├── journal           changes since
    │   └── committed         how much of the journal is acknowledged
    ├── copies                fingerprints of graphs that runs copied from here
    └── .lock                 held by the process that writes

A new generation is written beside the others, synced, and then named in ``current``, which is replaced atomically. A
kill at any moment leaves the old generation or the new one. Readers keep an old one open as long as they need it.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import secrets
import shutil
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from biqe.errors import BiqeError, InvalidOption, RunFailed, UnreadableFile
from biqe.graph import folder as graph_folder
from biqe.graph.knowledge_graph import Splits
from biqe.graph.whole_folder import (
    MANIFEST,
    check_free,
    is_of_kind,
    open_regular,
    read_regular,
    sync_folder,
    write_folder,
    write_synced,
)
from biqe.graph.whole_folder import read_manifest as read_folder_manifest
from biqe.serve.live.changes import Changes, Statement, Text, decode, encode
from biqe.serve.live.journal import Journal, framed, records

KIND = "biqe live graph"
VERSION = 1
CURRENT = "current"
COPIES = "copies"
MAX_COPIES_BYTES = 1 << 20
_OPENINGS = 100
"""Attempts to open a folder in which new generations keep appearing."""


@dataclass(frozen=True)
class Generation:
    """A base and its journal, open."""

    folder: Path
    version: int
    """Version of the graph that the base holds."""
    splits: Splits
    prefixes: Mapping[str, str]
    literals: tuple[Statement, ...]
    journal: Journal


def is_live_folder(folder: str | os.PathLike[str]) -> bool:
    """Whether ``folder`` holds a live graph."""
    return is_of_kind(Path(folder), KIND)


def create(folder: Path, splits: Splits, *, known: str, prefixes: Mapping[str, str]) -> None:
    """Make a live graph of ``splits`` unless there is one; of several processes that start together, one makes it."""
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        guard = folder.parent / f".{folder.name}.lock"
        with _locked(guard, 60.0):
            if is_live_folder(folder):
                return
            try:
                refuse_taken(folder)
            except BiqeError:
                guard.unlink(missing_ok=True)
                raise

            def write(place: Path) -> None:
                name = _name(0)
                (place / name).mkdir()
                found = () if splits.literals is None else splits.literals.statements()
                literals = [Statement(subject, relation, Text.of(value)) for subject, relation, value in found]
                _fill(place / name, replace(splits, literals=None), 0, prefixes, literals)
                _write_text(place / CURRENT, name)
                manifest = {"kind": KIND, "version": VERSION, "known": known, "base": splits.fingerprint}
                _write_text(place / MANIFEST, json.dumps(manifest, indent=1))

            write_folder(folder, write)
            guard.unlink(missing_ok=True)
    except OSError as error:
        raise RunFailed(f"{folder} cannot be made: {error.strerror or error}") from error


def refuse_taken(folder: Path) -> None:
    """InvalidOption if something else is at the path of a live graph."""
    try:
        check_free(folder, kind=KIND, what="live graph", force=False)
    except InvalidOption as error:
        raise InvalidOption(error.message, hint="choose another place with --live") from None


def read_manifest(folder: Path) -> dict[str, Any]:
    """The folder's manifest; UnreadableFile if it is not a live graph, or of another version of the format."""
    make = "one is made by: biqe serve --live FOLDER"
    manifest = read_folder_manifest(
        folder,
        kind=KIND,
        version=VERSION,
        what="live graph",
        make=make,
        other=make,
        damaged="restore the folder from a copy",
    )
    if manifest.get("known") not in ("complete", "train"):
        raise UnreadableFile(f"{folder / MANIFEST} is damaged: it does not say which triples count as known")
    return manifest


Mark = tuple[int, int]
"""Identifies the current generation: inode and time of the file ``current``."""


def mark_of(folder: Path) -> Mark:
    """The mark of the current generation; one call of stat, made for every request."""
    try:
        return _mark(os.stat(folder / CURRENT))
    except OSError as error:
        raise UnreadableFile(f"{folder} is no longer a live graph: {error.strerror or error}") from error


def _mark(found: os.stat_result) -> Mark:
    # The inode alone may be used again for a later file.
    return found.st_ino, found.st_mtime_ns


def current(folder: Path) -> tuple[str, Mark]:
    """Name of the current generation, and its mark."""
    path = folder / CURRENT
    try:
        with open(open_regular(path), "rb") as file:
            name = file.read(64).decode("ascii").strip()
            mark = _mark(os.fstat(file.fileno()))
    except (OSError, UnicodeDecodeError) as error:
        raise UnreadableFile(f"{path} cannot be read: {error}") from error
    if not name.isdigit():
        raise UnreadableFile(f"{path} is damaged: it names no generation")
    return name, mark


def open_generation(folder: Path, *, read_only: bool = False) -> tuple[Generation, Mark]:
    """The current generation, and its mark."""
    for _ in range(_OPENINGS):
        name, mark = current(folder)
        place = folder / name
        try:
            journal = Journal(place, read_only=read_only)
            splits = graph_folder.load(place / "graph")
            manifest = graph_folder.load_manifest(place / "graph")
            literals = _read_literals(place / "literals")
        except (FileNotFoundError, UnreadableFile) as error:
            if current(folder)[1] != mark:
                continue  # it was replaced by a newer one while it was being opened
            if isinstance(error, UnreadableFile):
                raise
            raise UnreadableFile(f"{place} is incomplete: {error.filename} is missing") from error
        return Generation(place, int(name), splits, manifest.get("prefixes") or {}, literals, journal), mark
    raise UnreadableFile(f"{folder} changes too fast to be opened", hint="try again in a moment")


def write_generation(
    folder: Path, splits: Splits, version: int, prefixes: Mapping[str, str], literals: Sequence[Statement]
) -> None:
    """Write a new generation and make it the current one; older ones are deleted. The caller holds the lock."""
    name = _name(version)
    try:
        _sweep(folder, keep={current(folder)[0]})
        write_folder(folder / name, lambda place: _fill(place, splits, version, prefixes, literals))
        _replace_text(folder / CURRENT, name)
    except (OSError, RunFailed) as error:
        raise RunFailed(
            f"a new base could not be written to {folder}: {error}; nothing is lost",
            hint="is the disk full? Updates are still written to the journal",
        ) from error
    _sweep(folder, keep={name})


def read_copies(folder: Path) -> set[str]:
    """Fingerprints of graphs that are copies of a version of this live graph."""
    try:
        return set(read_regular(folder / COPIES, MAX_COPIES_BYTES).decode("ascii", errors="replace").split())
    except FileNotFoundError:
        return set()
    except OSError as error:
        raise UnreadableFile(f"{folder / COPIES} cannot be read: {error.strerror or error}") from error


def note_copy(folder: Path, fingerprint: str) -> None:
    """Remember the fingerprint of a copy. The caller holds the lock."""
    known = sorted({*read_copies(folder), fingerprint})
    try:
        _replace_text(folder / COPIES, "\n".join(known))
    except OSError as error:
        raise RunFailed(f"{folder} cannot be written: {error.strerror or error}") from error


@contextlib.contextmanager
def writing(folder: Path, seconds: float) -> Iterator[None]:
    """Hold the folder's lock, which ends with its process; RunFailed if another process holds it for ``seconds``."""
    try:
        with _locked(folder / ".lock", seconds):
            yield
    except OSError as error:
        raise RunFailed(
            f"{folder} cannot be written: {error.strerror or error}", hint="is the disk full, or the place read-only?"
        ) from error


@contextlib.contextmanager
def _locked(path: Path, seconds: float) -> Iterator[None]:
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


def _fill(
    place: Path, splits: Splits, version: int, prefixes: Mapping[str, str], literals: Sequence[Statement]
) -> None:
    graph_folder.save(splits, place / "graph", prefixes=prefixes, extra={"live_version": version})
    data = framed(version, encode(Changes(inserted=tuple(literals)), version, time.time()))
    write_synced(place / "literals", lambda stream: stream.write(data))
    Journal.create(place)
    sync_folder(place)


def _read_literals(path: Path) -> tuple[Statement, ...]:
    file = open_regular(path)
    try:
        size = os.fstat(file).st_size
        found = list(records(file, path, 0, size, None))
        if len(found) != 1 or found[0].end != size:
            raise UnreadableFile(f"{path} is damaged: it is cut short", hint="restore the folder from a copy")
        try:
            return decode(found[0].payload)[1].inserted
        except UnreadableFile as error:
            raise UnreadableFile(
                f"{path} is damaged: {error.message}", hint="restore the folder from a copy"
            ) from error
    finally:
        os.close(file)


def _name(version: int) -> str:
    return f"{version:012d}"


def _sweep(folder: Path, keep: set[str]) -> None:
    """Delete old generations, and what killed writers left behind."""
    for place in folder.iterdir():
        leftover = place.name.startswith(".") and place.name.endswith(".new")
        if leftover or (place.name.isdigit() and place.is_dir() and place.name not in keep):
            if place.is_dir():
                shutil.rmtree(place, ignore_errors=True)
            else:
                place.unlink(missing_ok=True)


def _write_text(path: Path, text: str) -> None:
    write_synced(path, lambda stream: stream.write(f"{text}\n".encode()))


def _replace_text(path: Path, text: str) -> None:
    """Write a file anew; a kill leaves the old text or the new one."""
    following = path.with_name(f".{path.name}.{secrets.token_hex(4)}.new")
    _write_text(following, text)
    os.replace(following, path)
    sync_folder(path.parent)
