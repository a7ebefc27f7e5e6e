"""Live graphs of version 1 of the format, which kept updates in a journal of biqe's own; read to be written anew."""

from __future__ import annotations

import json
import struct
from pathlib import Path
from typing import Any
from zlib import crc32

from biqe.errors import UnreadableFile
from biqe.graph import folder as graph_folder
from biqe.graph.whole_folder import MANIFEST, read_regular
from biqe.serve.live.changes import Changes, decode
from biqe.serve.live.generations import KIND, LOCK, Base, is_live_folder, locked

_HEADER = struct.Struct("<4sIQII")
"""Of a record: magic, length, version, checksum of the payload, checksum of what is before."""
_MARK = struct.Struct("<QI")
"""The file committed: bytes that were acknowledged, and a checksum."""
_MAX_BYTES = 1 << 36


def is_one(folder: Path) -> bool:
    """Whether it is a live graph of version 1."""
    return is_live_folder(folder) and _json(folder / MANIFEST).get("version") == 1


def read(folder: Path) -> tuple[Base, list[tuple[int, Changes]]]:
    """Its base, and the updates since. UnreadableFile unless all of it can be read."""
    manifest = _json(folder / MANIFEST)
    try:
        with locked(folder / LOCK, 30.0):
            place = folder / read_regular(folder / "current", 64).decode("ascii").strip()
            ((_, data),) = _records(place / "literals", None)
            splits = graph_folder.load(place / "graph", verify=True)
            prefixes = graph_folder.load_manifest(place / "graph")["prefixes"]
            mark = read_regular(place / "committed", 64)
            acknowledged = _MARK.unpack(mark)[0] if mark else None
            if mark and crc32(mark[:8]) != _MARK.unpack(mark)[1]:
                raise UnreadableFile(f"{place / 'committed'} is damaged: its checksum does not match")
            updates = [(version, decode(record)[1]) for version, record in _records(place / "journal", acknowledged)]
        copies = (folder / "copies").read_text("ascii").split() if (folder / "copies").is_file() else ()
        literals = decode(data)[1].inserted
        base = Base(int(place.name), splits, prefixes, literals, manifest["known"], manifest["base"], tuple(copies))
    except OSError as error:
        raise UnreadableFile(f"{error.filename} cannot be read: {error.strerror or error}") from error
    except (KeyError, ValueError, TypeError, struct.error) as error:
        raise UnreadableFile(f"{folder} is damaged: {error}", hint="restore it from a back-up") from error
    if [version for version, _ in updates] != list(range(base.version + 1, base.version + 1 + len(updates))):
        raise UnreadableFile(f"{place / 'journal'} is damaged: an update is missing", hint="restore it from a back-up")
    return base, updates


def _records(path: Path, acknowledged: int | None) -> list[tuple[int, bytes]]:
    """Version and payload of each whole record; all that were acknowledged must be whole."""
    data = read_regular(path, _MAX_BYTES)
    found, at = [], 0
    while at + _HEADER.size <= len(data):
        magic, length, version, checksum, own = _HEADER.unpack_from(data, at)
        stop = at + _HEADER.size + length
        payload = data[at + _HEADER.size : stop]
        if magic != b"BQJ1" or crc32(data[at : at + _HEADER.size - 4]) != own or crc32(payload) != checksum:
            break
        found.append((version, payload))
        at = stop
    if at < (len(data) if acknowledged is None else acknowledged):
        raise UnreadableFile(f"{path} is damaged at byte {at:,}", hint="restore it from a back-up")
    return found


def _json(path: Path) -> dict[str, Any]:
    try:
        found = json.loads(read_regular(path, 1 << 20))
    except (OSError, ValueError, RecursionError) as error:
        raise UnreadableFile(f"{path} cannot be read: {error}") from error
    return found if isinstance(found, dict) and found.get("kind") == KIND else {}
