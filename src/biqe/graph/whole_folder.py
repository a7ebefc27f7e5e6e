"""Folders that are written whole or not at all: what graph folders and mined sets have in common.

A folder is filled under a temporary name beside its place, synced, and moved into place; a folder that was there is
exchanged with it and deleted last. A kill at any moment leaves the old folder or the new one. A temporary folder that
a killed process leaves behind is deleted when the place is next written.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import fcntl
import glob
import json
import os
import secrets
import shutil
import stat
import tempfile
import threading
import tokenize
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from biqe.errors import InvalidOption, RunFailed, UnreadableFile

MANIFEST = "manifest.json"
MAX_MANIFEST_BYTES = 64 << 20
"""A larger manifest is refused."""
Written = TypeVar("Written")

TEMPORARY = ("biqe-exact-", "biqe-metrics-", "biqe-log-")
"""Prefixes of temporary folders."""

_HEADS = threading.Lock()
_AT_WORKING_FOLDER = -100
_EXCHANGE = 2
"""Arguments of renameat2, as Linux numbers them."""


def write_folder(target: Path, write: Callable[[Path], Written], *, replace: bool = True) -> Written:
    """Let ``write`` fill a new folder, move it to ``target``, and return what ``write`` returned.

    A symbolic link is followed. Without ``replace``, a folder that another process created meanwhile is kept, and
    InvalidOption raised.
    """
    place = Path(os.path.realpath(target))

    def make() -> Path:
        found = place.parent / f".{place.name}.{secrets.token_hex(4)}.new"
        found.mkdir(parents=True)
        return found

    try:
        with _own(make) as temporary:
            _delete_abandoned(place.parent, f".{glob.escape(place.name)}.{8 * '[0-9a-f]'}.new")
            written = write(temporary)
            _move(temporary, place, replace=replace)
    except OSError as error:
        if not replace and error.errno in (errno.ENOTEMPTY, errno.EEXIST):
            raise InvalidOption(
                f"{target} was written by somebody else meanwhile; it is left as it is",
                hint="replace it with --force, or choose another --out",
            ) from error
        # numpy does not say why it could not write an array, only how much of it: "9 requested and 5 written".
        reason = error.strerror or f"not all of it fitted ({error})"
        raise RunFailed(
            f"{target} could not be written: {reason}; what was there before is untouched",
            hint="is the disk full, or the place read-only?",
        ) from error
    return written


@contextlib.contextmanager
def temporary_folder(prefix: str) -> Iterator[Path]:
    """A new folder in the system's temporary directory, for this user only; it is deleted at the end.

    What killed processes left behind is deleted first, under every prefix of TEMPORARY.
    """
    assert prefix in TEMPORARY
    for each in TEMPORARY:
        _delete_abandoned(Path(tempfile.gettempdir()), f"{each}{8 * '[0-9a-z_]'}")
    with _own(lambda: Path(tempfile.mkdtemp(prefix=prefix))) as folder:
        yield folder


@contextlib.contextmanager
def _own(make: Callable[[], Path]) -> Iterator[Path]:
    """A new folder, locked while it is in use and then deleted. A killed process loses its lock."""
    while True:
        folder = make()
        with contextlib.ExitStack() as stack:
            # Another process may take it for abandoned before it is locked.
            try:
                is_free = stack.enter_context(_held(folder))
            except FileNotFoundError:
                continue
            if is_free is False or not folder.is_dir():
                continue
            try:
                yield folder
            finally:
                shutil.rmtree(folder, ignore_errors=True)
            return


@contextlib.contextmanager
def _held(folder: Path) -> Iterator[bool | None]:
    """Lock a folder; yields whether the lock was free, or None where the file system has no locks."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            yield False
        except OSError:
            yield None
        else:
            yield True
    finally:
        os.close(handle)


def _delete_abandoned(parent: Path, pattern: str) -> None:
    """Delete the folders of this user that killed processes left behind, which nobody has locked."""
    for left in parent.glob(pattern):
        with contextlib.suppress(OSError):
            found = left.lstat()
            if stat.S_ISDIR(found.st_mode) and found.st_uid == os.geteuid():
                with _held(left) as is_free:
                    if is_free:
                        shutil.rmtree(left)


def check_free(folder: str | Path, *, kind: str, what: str, force: bool) -> None:
    """InvalidOption unless ``folder`` is free, empty, or holds ``what`` (by ``kind``) that ``force`` may replace."""
    target = Path(folder)
    try:
        if not os.path.lexists(target) or (target.is_dir() and not any(target.iterdir())):
            return
    except OSError as error:
        raise InvalidOption(f"{target} cannot be looked into: {error.strerror or error}") from error
    if not is_of_kind(target, kind):
        raise InvalidOption(
            f"{target} exists and is not a {what} of biqe; it is left as it is", hint="choose another place with --out"
        )
    if not force:
        raise InvalidOption(f"{target} already holds a {what}", hint="replace it with --force, or choose another --out")


def is_of_kind(folder: str | Path, kind: str) -> bool:
    """Whether the folder's manifest says that it is of ``kind``, in any version."""
    path = Path(folder) / MANIFEST
    try:
        manifest = read_json(path)
    except (OSError, UnreadableFile):
        return False
    return isinstance(manifest, dict) and manifest.get("kind") == kind


def elsewhere(folder: Path) -> str | None:
    """Where a folder of this name is kept by default, if it is there."""
    if folder.is_absolute():
        return None
    files = Path("runs") / folder / "run.json", Path("kg") / folder / MANIFEST
    found = [str(file.parent) for file in files if file.is_file()]
    return f"did you mean {' or '.join(found)}?" if found else None


def read_manifest(
    folder: Path, *, kind: str, version: int, what: str, make: str, other: str, damaged: str
) -> dict[str, Any]:
    """The manifest of a ``what``, such as a mined set; UnreadableFile if there is none of this kind and version.

    Hints: how to ``make`` one where nothing is there, what to do with the ``other`` thing that is, or with a
    ``damaged`` one.
    """
    path = folder / MANIFEST
    try:
        manifest = json.loads(read_regular(path, MAX_MANIFEST_BYTES))
    except (FileNotFoundError, NotADirectoryError) as error:
        if not os.path.lexists(folder):
            raise UnreadableFile(f"{what} {folder} does not exist", hint=elsewhere(folder) or make) from error
        raise UnreadableFile(f"{folder} is not a {what} of biqe: it has no {MANIFEST}", hint=other) from error
    except OSError as error:
        raise cannot_be_read(path, error) from error
    except (ValueError, RecursionError) as error:
        raise UnreadableFile(f"{path} is damaged: {error}", hint=damaged) from error
    if not isinstance(manifest, dict):
        raise UnreadableFile(f"{folder} is not a {what} of biqe: its {MANIFEST} holds no JSON object", hint=other)
    if manifest.get("kind") != kind:
        found = repr(manifest.get("kind"))[:60]
        raise UnreadableFile(
            f"{folder} is not a {what} of biqe: its manifest says kind {found}, not {kind!r}", hint=make
        )
    if manifest.get("version") != version:
        found = repr(manifest.get("version"))[:60]
        raise UnreadableFile(
            f"{folder} is a {what} of version {found}; this program reads version {version}", hint=damaged
        )
    return manifest


def read_regular(path: Path, most: int) -> bytes:
    """The bytes of a regular file of at most ``most`` bytes; UnreadableFile for a larger one, a pipe or a device."""
    with open(open_regular(path), "rb") as file:
        # As much memory is taken as is asked for, so a little more is asked for than there is.
        data = file.read(min(most, os.fstat(file.fileno()).st_size) + 1)
    if len(data) > most:
        raise UnreadableFile(f"{path} has more than {most:,} bytes, the most that is read", hint="is it the right one?")
    return data


def read_json(path: Path, most: int = MAX_MANIFEST_BYTES) -> Any:
    """The JSON document in a regular file of at most ``most`` bytes. UnreadableFile for anything else, except that a
    file that is missing is a FileNotFoundError."""
    try:
        return json.loads(read_regular(path, most))
    except (FileNotFoundError, NotADirectoryError):
        raise
    except OSError as error:
        raise cannot_be_read(path, error) from error
    except (ValueError, RecursionError) as error:
        raise UnreadableFile(
            f"{path} cannot be read: {error}", hint="copy it again from where it came from, or have it written anew"
        ) from error


def open_regular(path: Path, flags: int = os.O_RDONLY) -> int:
    """A descriptor of a regular file; UnreadableFile for a pipe or a device, which might never end or answer."""
    file = os.open(path, flags | os.O_NONBLOCK, 0o644)
    if not stat.S_ISREG(os.fstat(file).st_mode):
        os.close(file)
        raise UnreadableFile(f"{path} is not a regular file", hint="a pipe or a device cannot stand in for it")
    return file


def read_array(path: Path, *, damaged: str) -> NDArray[Any]:
    """The array in ``path``, memory-mapped; UnreadableFile, with the hint ``damaged``, if it is none."""
    try:
        os.close(open_regular(path))
        # One at a time: numpy reads the head of a file as Python, and two threads that do so at once may get a
        # SystemError (CPython 3.11). Copy-on-write: numba compiles every kernel once more for read-only arrays.
        with _HEADS, np.errstate(over="raise"):
            return np.asarray(np.load(path, mmap_mode="c", allow_pickle=False))
    except OSError as error:
        raise cannot_be_read(path, error) from error
    except (
        ValueError,
        TypeError,
        EOFError,
        SyntaxError,
        ArithmeticError,
        RecursionError,
        tokenize.TokenError,
    ) as error:
        raise UnreadableFile(f"{path} is damaged: {error}", hint=damaged) from error


def cannot_be_read(path: Path, error: OSError) -> UnreadableFile:
    """The error for a file that the system refuses to open or read."""
    return UnreadableFile(f"{path} cannot be read: {error.strerror or error}", hint="are you allowed to read it?")


def write_synced(path: Path, write: Callable[[Any], object]) -> None:
    """Let ``write`` fill the file, and wait until it is on disk."""
    with path.open("wb") as stream:
        write(stream)
        stream.flush()
        os.fsync(stream.fileno())


def _move(temporary: Path, target: Path, *, replace: bool) -> None:
    if replace and target.is_dir() and any(target.iterdir()):
        if not _exchange(temporary, target):
            aside = target.parent / f".{target.name}.{secrets.token_hex(4)}.old"
            target.rename(aside)
            try:
                temporary.rename(target)
            except OSError:
                aside.rename(target)
                raise
            shutil.rmtree(aside, ignore_errors=True)
    else:
        temporary.rename(target)
    sync_folder(target.parent)


def sync_folder(folder: Path) -> None:
    """Wait until the names in a folder are on disk; some file systems cannot do it, and lose nothing by it."""
    with contextlib.suppress(OSError):
        handle = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


def _exchange(one: Path, other: Path) -> bool:
    """Exchange two folders atomically; False where the system or the file system cannot."""
    try:
        swap = ctypes.CDLL(None).renameat2
    except (OSError, AttributeError):
        return False
    return swap(_AT_WORKING_FOLDER, os.fsencode(one), _AT_WORKING_FOLDER, os.fsencode(other), _EXCHANGE) == 0
