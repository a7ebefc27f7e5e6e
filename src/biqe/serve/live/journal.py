"""The journal: records on disk, one behind the other, each written whole before it is acknowledged.

    record     "BQJ1"  length  version  checksum of the payload  checksum of this header  payload
    committed  beside it, how many bytes of it are acknowledged: what other processes may read

A record is written in one piece and synced. A kill leaves a whole record or the beginning of one; such a beginning at
the end of the file is cut off by the next writer. Whatever else does not add up is damage, and said to be so: nothing
that was acknowledged is ever dropped in silence. Places in the file are passed, never sought, so that processes which
share a file descriptor do not disturb each other.
"""

from __future__ import annotations

import contextlib
import os
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple
from zlib import crc32

from biqe.errors import InvalidOption, RunFailed, UnreadableFile

MAGIC = b"BQJ1"
_FACTS = struct.Struct("<4sIQI")  # magic, length, version, checksum of the payload
_CHECKSUM = struct.Struct("<I")
_MARK = struct.Struct("<QI")
HEADER_BYTES = _FACTS.size + _CHECKSUM.size
MAX_PAYLOAD = 1 << 30
"""Bytes of one update at most."""
_READ_BYTES = 16 << 20


class Record(NamedTuple):
    """One update, as it lies in the journal."""

    version: int
    payload: bytes
    end: int
    """Where the next record begins."""


def framed(version: int, payload: bytes) -> bytes:
    """A record's bytes."""
    if len(payload) > MAX_PAYLOAD:
        raise InvalidOption(
            f"the update takes {len(payload):,} bytes; one update may take {MAX_PAYLOAD:,}", hint="send it in parts"
        )
    facts = _FACTS.pack(MAGIC, len(payload), version, crc32(payload))
    return facts + _CHECKSUM.pack(crc32(facts)) + payload


def records(file: int, path: Path, start: int, end: int, version: int | None) -> Iterator[Record]:
    """Records between two places of an open file, the first of them with this version, the others counting on.

    The iteration ends before a record that the file does not hold to its end. UnreadableFile for any other damage.
    """
    at = start
    while at < end:
        header = _read(file, at, min(HEADER_BYTES, end - at))
        if len(header) < HEADER_BYTES:
            return
        facts, (checksum,) = header[: _FACTS.size], _CHECKSUM.unpack(header[_FACTS.size :])
        magic, length, found, payload_checksum = _FACTS.unpack(facts)
        if magic != MAGIC or crc32(facts) != checksum:
            if _is_blank(file, at, end):
                return  # a power cut can leave a file longer than what was written to it
            raise _damaged(path, at, "this is not the beginning of a record")
        stop = at + HEADER_BYTES + length
        if stop > end:
            return
        payload = _read(file, at + HEADER_BYTES, length)
        if crc32(payload) != payload_checksum:
            raise _damaged(path, at, "its checksum is not that of its bytes")
        if version is not None:
            if found != version:
                raise _damaged(path, at, f"it is of version {found:,}, and version {version:,} should stand here")
            version += 1
        yield Record(found, payload, stop)
        at = stop


def _damaged(path: Path, at: int, what: str) -> UnreadableFile:
    return UnreadableFile(
        f"{path} is damaged: of the record at byte {at:,}, {what}",
        hint=f"restore it from a copy; or, to go on with what was changed before that record, cut it to {at:,} bytes",
    )


def _is_blank(file: int, start: int, end: int) -> bool:
    return all(not any(_read(file, at, min(_READ_BYTES, end - at))) for at in range(start, end, _READ_BYTES))


def _read(file: int, start: int, count: int) -> bytes:
    found = os.pread(file, count, start)
    while len(found) < count:
        more = os.pread(file, count - len(found), start + len(found))
        if not more:
            break
        found += more
    return found


class Journal:
    """An open journal. One process at a time may ``append``, and holds a lock meanwhile; any number may read."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / "journal"
        try:
            # Readers of another user's graph cannot write, and need not.
            writable = os.access(self.path, os.W_OK) and os.access(folder, os.W_OK)
            self._file = os.open(self.path, os.O_RDWR if writable else os.O_RDONLY)
            flags = os.O_RDWR | os.O_CREAT if writable else os.O_RDONLY
            self._mark = os.open(folder / "committed", flags, 0o644)
        except FileNotFoundError:
            raise
        except OSError as error:
            raise UnreadableFile(f"{self.path} cannot be opened: {error.strerror or error}") from error

    @staticmethod
    def create(folder: Path) -> None:
        """An empty journal in ``folder``, on disk."""
        for name in ("journal", "committed"):
            with (folder / name).open("xb") as file:
                if name == "committed":
                    file.write(_mark(0))
                file.flush()
                os.fsync(file.fileno())

    def close(self) -> None:
        """Let the files go."""
        os.close(self._file)
        os.close(self._mark)

    @property
    def size(self) -> int:
        """Bytes of the file, a record that is being written included."""
        return os.fstat(self._file).st_size

    @property
    def committed(self) -> int:
        """Bytes that are acknowledged."""
        while True:
            found = os.pread(self._mark, _MARK.size, 0)
            if len(found) < _MARK.size:
                return 0
            offset, checksum = _MARK.unpack(found)
            if checksum == crc32(found[:8]):
                return int(offset)
            # It is being written at this moment; the next look sees it whole.

    def records(self, start: int, version: int, *, end: int | None = None) -> Iterator[Record]:
        """Records from ``start`` on, the first of them with this version; up to what is acknowledged, or ``end``."""
        return records(self._file, self.path, start, self.committed if end is None else end, version)

    def append(self, at: int, version: int, payload: bytes) -> int:
        """Write a record behind byte ``at``, wait until it is on disk, and tell the readers; returns its end.

        RunFailed where it cannot be written; the journal is as it was then.
        """
        data = framed(version, payload)
        try:
            written = 0
            while written < len(data):
                written += os.pwrite(self._file, memoryview(data)[written:], at + written)
            os.fsync(self._file)
            self.commit(at + len(data))
        except OSError as error:
            # Nobody was told of these bytes. Should this fail too, the next writer cuts them off, or they are a whole
            # record: an update that was made although its sender could not be told.
            with contextlib.suppress(OSError):
                os.ftruncate(self._file, at)
                os.fsync(self._file)
            raise RunFailed(
                f"the update could not be written: {error.strerror or error}; the graph is as it was before",
                hint="is the disk full? Free some space and send it again",
            ) from error
        return at + len(data)

    def cut(self, end: int) -> None:
        """Drop what lies behind byte ``end``: the beginning of a record whose writer was killed."""
        try:
            os.ftruncate(self._file, end)
            os.fsync(self._file)
        except OSError as error:
            raise RunFailed(f"{self.path} cannot be written: {error.strerror or error}") from error

    def commit(self, end: int) -> None:
        """Tell the readers that everything up to byte ``end`` is acknowledged."""
        # One write of a few bytes: a reader sees all of it, or sees by the checksum that it did not.
        os.pwrite(self._mark, _mark(end), 0)


def _mark(offset: int) -> bytes:
    packed = struct.pack("<Q", offset)
    return packed + _CHECKSUM.pack(crc32(packed))
