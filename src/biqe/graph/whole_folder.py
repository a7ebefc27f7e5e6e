"""Folders that are written whole or not at all: what graph folders and mined sets have in common.

A folder is filled beside its place under another name, synced, and moved into place; one that stood there is moved
aside first and deleted last. A kill at any moment leaves the old folder or the new one.
"""

from __future__ import annotations

import contextlib
import json
import os
import secrets
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

from biqe.errors import InvalidOption, RunFailed

MANIFEST = "manifest.json"
Written = TypeVar("Written")


def write_folder(target: Path, write: Callable[[Path], Written]) -> Written:
    """Let ``write`` fill a new folder, put it in the place ``target``, and return what ``write`` returned."""
    temporary = target.parent / f".{target.name}.{secrets.token_hex(4)}.new"
    try:
        temporary.mkdir(parents=True)
        written = write(temporary)
        _move(temporary, target)
    except OSError as error:
        raise RunFailed(
            f"{target} could not be written: {error.strerror or error}; what was there before is untouched",
            hint="is the disk full, or the place read-only?",
        ) from error
    finally:
        shutil.rmtree(temporary, ignore_errors=True)
    return written


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
    try:
        manifest = json.loads((Path(folder) / MANIFEST).read_text("utf-8"))
    except (OSError, ValueError):
        return False
    return isinstance(manifest, dict) and manifest.get("kind") == kind


def write_synced(path: Path, write: Callable[[Any], object]) -> None:
    """Let ``write`` fill the file, and wait until it is on disk."""
    with path.open("wb") as stream:
        write(stream)
        stream.flush()
        os.fsync(stream.fileno())


def _move(temporary: Path, target: Path) -> None:
    if target.is_dir() and any(target.iterdir()):
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
    # The new name itself is on disk only after this; some file systems cannot do it, and lose nothing by it.
    with contextlib.suppress(OSError):
        handle = os.open(target.parent, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)
