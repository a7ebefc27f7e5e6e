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
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from biqe.errors import BiqeError, InvalidOption, RunFailed, UnreadableFile
from biqe.graph import folder as graph_folder
from biqe.graph.knowledge_graph import Splits
from biqe.graph.whole_folder import MANIFEST, check_free, is_of_kind, write_folder, write_synced
from biqe.serve.live.changes import Changes, Statement, decode, encode
from biqe.serve.live.journal import Journal, framed, records

KIND = "biqe live graph"
VERSION = 1
CURRENT = "current"
COPIES = "copies"
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
                _fill(place / name, splits, 0, prefixes, ())
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
    path = folder / MANIFEST
    try:
        manifest = json.loads(path.read_text("utf-8"))
        if manifest["kind"] != KIND or manifest["known"] not in ("complete", "train"):
            raise UnreadableFile(
                f"{folder} is not a live graph of biqe", hint="one is made by: biqe serve --live FOLDER"
            )
        if manifest["version"] != VERSION:
            found = manifest["version"]
            raise UnreadableFile(
                f"{folder} is a live graph of version {found}; this program reads {VERSION}",
                hint="use the biqe that made it",
            )
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise UnreadableFile(f"{folder} is not a live graph of biqe: {error!r}") from error
    return dict(manifest)


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
        with path.open("rb") as file:
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
    place = folder / _name(version)
    temporary = folder / f".{place.name}.{secrets.token_hex(4)}.new"
    try:
        _sweep(folder, keep={current(folder)[0]})
        _fill(temporary, splits, version, prefixes, literals)
        shutil.rmtree(place, ignore_errors=True)
        temporary.rename(place)
        _sync(folder)
        following = folder / f".{CURRENT}.{secrets.token_hex(4)}.new"
        _write_text(following, place.name)
        os.replace(following, folder / CURRENT)
        _sync(folder)
    except (OSError, RunFailed) as error:
        shutil.rmtree(temporary, ignore_errors=True)
        raise RunFailed(
            f"a new base could not be written to {folder}: {error}; nothing is lost",
            hint="is the disk full? Updates are still written to the journal",
        ) from error
    _sweep(folder, keep={place.name})


def read_copies(folder: Path) -> set[str]:
    """Fingerprints of graphs that are copies of a version of this live graph."""
    try:
        return set((folder / COPIES).read_text("ascii", errors="replace").split())
    except OSError:
        return set()


def note_copy(folder: Path, fingerprint: str) -> None:
    """Remember the fingerprint of a copy. The caller holds the lock."""
    known = sorted({*read_copies(folder), fingerprint})
    following = folder / f".{COPIES}.{secrets.token_hex(4)}.new"
    try:
        _write_text(following, "\n".join(known))
        os.replace(following, folder / COPIES)
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
    place.mkdir(parents=True)
    graph_folder.save(splits, place / "graph", prefixes=prefixes, extra={"live_version": version})
    data = framed(version, encode(Changes(inserted=tuple(literals)), version, time.time()))
    write_synced(place / "literals", lambda stream: stream.write(data))
    Journal.create(place)
    _sync(place)


def _read_literals(path: Path) -> tuple[Statement, ...]:
    file = os.open(path, os.O_RDONLY)
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


def _sync(folder: Path) -> None:
    with contextlib.suppress(OSError):  # some file systems do not support it, nor need it
        handle = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)
