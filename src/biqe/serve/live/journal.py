"""The journal: a file of records, each on disk before it is acknowledged.

    record     "BQJ1"  length  version  checksum of the payload  checksum of this header  payload
    committed  a file beside it with the number of bytes that are acknowledged: other processes read up to there.
               If it is missing, all whole records count.

A kill leaves a whole record or the beginning of one; the next writer cuts off such a beginning at the end of the file.
Everything else that does not fit is damage and raises an error: an acknowledged update is never dropped silently.
Positions in the file are passed to each call (pread, pwrite), so that processes can share a file descriptor.
"""

from __future__ import annotations

import contextlib
import os
import struct
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple
from zlib import crc32

from biqe.errors import InvalidOption, RunFailed, UnreadableFile
from biqe.graph.whole_folder import open_regular

MAGIC = b"BQJ1"
_FACTS = struct.Struct("<4sIQI")  # magic, length, version, checksum of the payload
_CHECKSUM = struct.Struct("<I")
_MARK = struct.Struct("<QI")
HEADER_BYTES = _FACTS.size + _CHECKSUM.size
MAX_PAYLOAD = 1 << 30
"""Most bytes of one update."""
_READ_BYTES = 16 << 20
_LOOKS = 100
"""Times that ``committed`` is read again, a millisecond apart, before a wrong checksum counts as damage."""


class Record(NamedTuple):
    """One update in the journal."""

    version: int
    payload: bytes
    end: int
    """Position of the next record."""


def framed(version: int, payload: bytes) -> bytes:
    """A record's bytes."""
    if len(payload) > MAX_PAYLOAD:
        raise InvalidOption(
            f"the update takes {len(payload):,} bytes; one update may take {MAX_PAYLOAD:,}", hint="send it in parts"
        )
    facts = _FACTS.pack(MAGIC, len(payload), version, crc32(payload))
    return facts + _CHECKSUM.pack(crc32(facts)) + payload


def records(file: int, path: Path, start: int, end: int, version: int | None) -> Iterator[Record]:
    """Records between two positions of an open file; ``version`` is that of the first, the others follow it.

    The iteration ends before a record that is incomplete at the end. UnreadableFile for any other damage.
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
                return  # after a power cut a file can be longer than what was written to it
            raise _damaged(path, at, "its header is not that of a record")
        stop = at + HEADER_BYTES + length
        if stop > end:
            return
        payload = _read(file, at + HEADER_BYTES, length)
        if crc32(payload) != payload_checksum:
            raise _damaged(path, at, "its checksum does not match")
        if version is not None:
            if found != version:
                raise _damaged(path, at, f"it has version {found:,} instead of {version:,}")
            version += 1
        yield Record(found, payload, stop)
        at = stop


def _damaged(path: Path, at: int, what: str) -> UnreadableFile:
    return UnreadableFile(
        f"{path} is damaged at byte {at:,}: a record was expected, but {what}",
        hint=f"restore it from a copy; to give up this record and all later ones, cut the file to {at:,} bytes and "
        "delete the file committed beside it",
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
    """An open journal. Any number of processes may read it; one at a time, which holds a lock, may ``append``."""

    def __init__(self, folder: Path, *, read_only: bool = False) -> None:
        self.path = folder / "journal"
        try:
            # A reader of another user's graph may not be allowed to write.
            writable = not read_only and os.access(self.path, os.W_OK) and os.access(folder, os.W_OK)
            self._file = open_regular(self.path, os.O_RDWR if writable else os.O_RDONLY)
            mark = folder / "committed"
            self._mark: int | None = None
            if writable or mark.exists():
                self._mark = open_regular(mark, os.O_RDWR | os.O_CREAT if writable else os.O_RDONLY)
        except FileNotFoundError:
            raise
        except OSError as error:
            raise UnreadableFile(f"{self.path} cannot be opened: {error.strerror or error}") from error

    @staticmethod
    def create(folder: Path) -> None:
        """Write an empty journal to ``folder``."""
        for name in ("journal", "committed"):
            with (folder / name).open("xb") as file:
                if name == "committed":
                    file.write(_mark(0))
                file.flush()
                os.fsync(file.fileno())

    def close(self) -> None:
        """Close the files."""
        os.close(self._file)
        if self._mark is not None:
            os.close(self._mark)

    @property
    def size(self) -> int:
        """Bytes of the file, including a record that is being written."""
        return os.fstat(self._file).st_size

    @property
    def committed(self) -> int | None:
        """Number of acknowledged bytes; None if nothing says it, as after a power cut: then all whole records count."""
        for _ in range(_LOOKS):
            found = b"" if self._mark is None else os.pread(self._mark, _MARK.size, 0)
            if not found:
                return None
            if len(found) == _MARK.size:
                offset, checksum = _MARK.unpack(found)
                if checksum == crc32(found[:8]):
                    return int(offset)
            time.sleep(0.001)  # it is being written at this moment
        raise UnreadableFile(
            f"{self.path.parent / 'committed'} is damaged: its checksum does not match",
            hint="delete it: all whole records of the journal beside it then count",
        )

    def records(self, start: int, version: int, end: int) -> Iterator[Record]:
        """Records between two positions; ``version`` is that of the first."""
        return records(self._file, self.path, start, end, version)

    def append(self, at: int, version: int, payload: bytes) -> None:
        """Write a record at byte ``at``, wait until it is on disk, and let readers see it.

        RunFailed if it cannot be written; the journal is then unchanged.
        """
        data = framed(version, payload)
        try:
            written = 0
            while written < len(data):
                written += os.pwrite(self._file, memoryview(data)[written:], at + written)
            os.fsync(self._file)
            self.commit(at + len(data))
        except OSError as error:
            # These bytes are not acknowledged. If cutting them off fails too, the next writer does it, unless they are
            # a whole record: then the update was made although its sender got an error.
            with contextlib.suppress(OSError):
                os.ftruncate(self._file, at)
                os.fsync(self._file)
            raise RunFailed(
                f"the update could not be written: {error.strerror or error}; the graph is unchanged",
                hint="is the disk full? Free some space and send it again",
            ) from error

    def cut(self, end: int) -> None:
        """Cut the file to ``end`` bytes: what follows is the beginning of a record whose writer was killed."""
        try:
            os.ftruncate(self._file, end)
            os.fsync(self._file)
        except OSError as error:
            raise RunFailed(f"{self.path} cannot be written: {error.strerror or error}") from error

    def commit(self, end: int) -> None:
        """Acknowledge everything up to byte ``end``, so that readers see it."""
        assert self._mark is not None  # only writers commit
        # One small write: a reader sees all of it, or notices by the checksum that it did not.
        os.pwrite(self._mark, _mark(end), 0)


def _mark(offset: int) -> bytes:
    packed = struct.pack("<Q", offset)
    return packed + _CHECKSUM.pack(crc32(packed))
