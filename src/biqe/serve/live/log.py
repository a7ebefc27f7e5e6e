"""The log of a live graph: every update since its base, in SQLite, on disk before it is acknowledged.

    updates.sqlite   in WAL mode with synchronous=FULL
        state        one row: the current base, and what else the folder has to remember
        updates      one row for each update, numbered without gaps
    acknowledged     number of the last acknowledged update

SQLite takes care of kills, power cuts and full disks. It does not notice every damage: its pages have no checksums, and
a damaged WAL ends, without a word, where the damage begins. So each row has a checksum, and the file ``acknowledged``
says which update must be there. Other processes also learn from it, at the price of one small read, that there is
something new.

Updates and checkpoints are made under a lock of the folder (``generations.writing``). SQLite before 3.51.3 can damage a
database if one process commits while another makes a checkpoint at the same moment.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import sqlite3
import stat
import threading
import time
import weakref
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple
from zlib import crc32

from biqe.errors import InvalidOption, RunFailed, UnreadableFile
from biqe.graph.whole_folder import open_regular, temporary_folder, write_synced

NAME, ACKNOWLEDGED = "updates.sqlite", "acknowledged"
MAX_PAYLOAD = 900_000_000
"""Most bytes of one update; SQLite takes a billion."""
RESTORE = "restore the folder from a back-up, or save what can be read: biqe restore FOLDER --out OTHER --repair"
SCHEMA = (
    "CREATE TABLE state (one INTEGER PRIMARY KEY, document TEXT NOT NULL, checksum INTEGER NOT NULL)",
    "CREATE TABLE updates (version INTEGER PRIMARY KEY, changes BLOB NOT NULL, checksum INTEGER NOT NULL)",
)
DAMAGE = (sqlite3.Error, ValueError, TypeError, OverflowError)
"""What a damaged database makes of its parts: also an error message that is not text, for one."""
_TRIES = 200
"""Times that a file which others write is read again, some milliseconds apart, before it counts as damaged."""


class Row(NamedTuple):
    """One update."""

    version: int
    changes: bytes


class Log:
    """An open log. Every method may be called from any thread; writers hold the folder's lock."""

    def __init__(self, folder: Path, *, read_only: bool = False) -> None:
        """With ``read_only`` nothing in the folder is touched, not even SQLite's own files beside the log: each time
        that there is something new, a copy of the log is read."""
        self.path = folder / NAME
        self.lock = threading.RLock()
        """Held while the log is used, and while this process forks."""
        self._read_only = read_only
        self._connection: sqlite3.Connection | None = None
        self._inode = self._look()
        self._mark = _open(folder / ACKNOWLEDGED, os.O_RDONLY if read_only else os.O_RDWR)
        _OPEN.add(self)

    @staticmethod
    def create(folder: Path, state: Mapping[str, Any], version: int) -> None:
        """Write a log without updates to ``folder``."""
        with contextlib.closing(sqlite3.connect(folder / NAME, isolation_level=None)) as connection:
            connection.execute("PRAGMA journal_mode=WAL")
            connection.execute("PRAGMA synchronous=FULL")
            for table in SCHEMA:
                connection.execute(table)
            _write_state(connection, state)
        write_synced(folder / ACKNOWLEDGED, lambda stream: stream.write(_mark(version)))

    def close(self) -> None:
        """Close the files."""
        with self.lock:
            _OPEN.discard(self)
            self._disconnect()
            if self._mark >= 0:
                os.close(self._mark)
            self._mark = -1

    @property
    def acknowledged(self) -> int:
        """Number of the last acknowledged update. UnreadableFile if the folder was replaced by another one."""
        if self._look() != self._inode:
            raise UnreadableFile(f"{self.path.parent} was replaced while it was in use", hint="restart the server")
        for _ in range(_TRIES):
            found = version_of(os.pread(self._mark, 64, 0))
            if found is not None:
                return found
            time.sleep(0.001)  # it is being written at this moment
        raise UnreadableFile(
            f"{self.path.parent / ACKNOWLEDGED} is damaged: it does not hold a number and its checksum", hint=RESTORE
        )

    def read(self, after: int | None = None) -> tuple[dict[str, Any], list[Row]]:
        """State, and the updates after version ``after``, both of one moment; without ``after``, or where some of these
        were dropped because they are in a newer base, the updates since the base."""
        with self.lock, self._connected() as connection:
            connection.execute("BEGIN")
            try:
                state = read_state(connection)
                base: int = state["version"]
                if after is None or (after < base and not _has(connection, after + 1)):
                    after = base
                return state, list(_rows(connection, after))
            finally:
                connection.execute("ROLLBACK")

    def append(self, version: int, changes: bytes) -> None:
        """Write an update, wait until it is on disk, and let readers see it. RunFailed if it cannot be written."""
        if len(changes) > MAX_PAYLOAD:
            raise InvalidOption(
                f"the update takes {len(changes):,} bytes; one update may take {MAX_PAYLOAD:,}", hint="send it in parts"
            )

        def insert(connection: sqlite3.Connection) -> None:
            connection.execute("INSERT INTO updates VALUES (?, ?, ?)", (version, changes, crc32(changes)))

        self._commit(insert)
        self.acknowledge(version)

    def acknowledge(self, version: int) -> None:
        """Let readers see all updates up to this one. It may be on disk later than the update, which is enough."""
        os.pwrite(self._mark, _mark(version), 0)

    def write_state(self, state: Mapping[str, Any], *, drop: int = 0) -> None:
        """Replace the state, and drop updates up to version ``drop``."""

        def replace(connection: sqlite3.Connection) -> None:
            _write_state(connection, state)
            connection.execute("DELETE FROM updates WHERE version <= ?", (drop,))

        self._commit(replace)
        with self.lock, self._connected() as connection:
            # Fails while others read, or without room on disk; a later checkpoint then does it.
            with contextlib.suppress(sqlite3.Error):
                connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")

    def _commit(self, change: Callable[[sqlite3.Connection], object]) -> None:
        with self.lock, self._connected() as connection:
            try:
                connection.execute("BEGIN IMMEDIATE")
                change(connection)
                connection.execute("COMMIT")
            except (sqlite3.Error, OSError) as error:
                with contextlib.suppress(sqlite3.Error):
                    connection.execute("ROLLBACK")
                if is_damage(error):
                    raise damaged(self.path, str(error)) from error
                raise RunFailed(
                    f"the update could not be written: {error}; the graph is unchanged",
                    hint="is the disk full? Free some space and send it again",
                ) from error

    @contextlib.contextmanager
    def _connected(self) -> Iterator[sqlite3.Connection]:
        try:
            if self._read_only:
                with copied(self.path) as copy, contextlib.closing(connect(copy)) as connection:
                    yield connection
                return
            if self._connection is None:
                self._connection = connect(self.path)
            yield self._connection
        except DAMAGE as error:
            raise damaged(self.path, str(error)) from error

    def _disconnect(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            with contextlib.suppress(sqlite3.Error):
                connection.close()

    def _look(self) -> tuple[int, int]:
        """What identifies the log's file; a look at it also comes before SQLite opens pipes and devices."""
        for path in (self.path, _beside(self.path, "-wal"), _beside(self.path, "-shm")):
            try:
                found = path.stat()
            except FileNotFoundError:
                if path is self.path:
                    raise UnreadableFile(f"{path} is missing", hint=RESTORE) from None
                continue
            except OSError as error:
                raise UnreadableFile(f"{path} cannot be read: {error.strerror or error}") from error
            if not stat.S_ISREG(found.st_mode):
                raise UnreadableFile(f"{path} is not a regular file", hint="a pipe or a device cannot stand in for it")
            if path is self.path:
                inode = found.st_dev, found.st_ino
                if self._connection is not None:
                    break  # SQLite has looked
        return inode


def connect(path: Path) -> sqlite3.Connection:
    """A connection to a log that has the tables of a log and nothing else; sqlite3.Error for any other file."""
    connection = sqlite3.connect(
        f"{path.absolute().as_uri()}?mode=rw", uri=True, isolation_level=None, check_same_thread=False, timeout=10.0
    )
    try:
        for setting in ("synchronous=FULL", "trusted_schema=OFF", "cell_size_check=ON"):
            connection.execute(f"PRAGMA {setting}")
        found = connection.execute("SELECT sql FROM sqlite_master ORDER BY name").fetchall()
        if tuple(sql for (sql,) in found) != SCHEMA:
            raise sqlite3.DatabaseError("it does not have the tables of a log")
        if connection.execute("PRAGMA journal_mode").fetchone() != ("wal",):
            raise sqlite3.DatabaseError("it is not in WAL mode")
    except BaseException:
        connection.close()
        raise
    return connection


def damaged(path: Path, what: str) -> UnreadableFile:
    """The error for a file of a live graph that cannot be trusted."""
    return UnreadableFile(f"{path} is damaged: {what}", hint=RESTORE)


def is_damage(error: BaseException) -> bool:
    """Whether SQLite says that a file is damaged, and not that it cannot be written, say."""
    code = getattr(error, "sqlite_errorcode", 0) or 0
    return code & 0xFF in (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB)


def checked(version: Any, changes: Any, checksum: Any) -> Row:
    """A row of the updates; sqlite3.DatabaseError if it is not as it was written."""
    if type(changes) is not bytes or crc32(changes) != checksum:
        raise sqlite3.DatabaseError(f"the checksum of update {version:,} does not match")
    return Row(version, changes)


def _has(connection: sqlite3.Connection, version: int) -> bool:
    return connection.execute("SELECT 1 FROM updates WHERE version = ?", (version,)).fetchone() is not None


def _rows(connection: sqlite3.Connection, after: int) -> Iterator[Row]:
    """Updates after a version, which follow each other without gaps."""
    found = connection.execute("SELECT version, changes, checksum FROM updates WHERE version > ? ORDER BY 1", (after,))
    for version, changes, checksum in found:
        after += 1
        if version != after:
            raise sqlite3.DatabaseError(f"update {after:,} is missing: the next one that can be read is {version:,}")
        yield checked(version, changes, checksum)


def read_state(connection: sqlite3.Connection) -> dict[str, Any]:
    """The state in a log; sqlite3.DatabaseError if it is not as it was written."""
    rows = connection.execute("SELECT document, checksum FROM state").fetchall()
    if len(rows) != 1 or type(rows[0][0]) is not str or crc32(rows[0][0].encode()) != rows[0][1]:
        raise sqlite3.DatabaseError("the checksum of its state does not match")
    state: dict[str, Any] = json.loads(rows[0][0])
    return state


def _write_state(connection: sqlite3.Connection, state: Mapping[str, Any]) -> None:
    document = json.dumps(state, sort_keys=True)
    connection.execute("INSERT OR REPLACE INTO state VALUES (0, ?, ?)", (document, crc32(document.encode())))


@contextlib.contextmanager
def copied(path: Path) -> Iterator[Path]:
    """A copy of a log, as it is at one moment, in a temporary folder."""
    with temporary_folder("biqe-log-") as place:
        files = [(path, place / NAME), (_beside(path, "-wal"), _beside(place / NAME, "-wal"))]
        for _ in range(_TRIES):
            before = [_stamp(source) for source, _ in files]
            for source, target in files:
                target.unlink(missing_ok=True)
                with contextlib.suppress(FileNotFoundError):
                    with open(_open(source, os.O_RDONLY), "rb") as reading, target.open("wb") as writing:
                        shutil.copyfileobj(reading, writing)
            if [_stamp(source) for source, _ in files] == before:
                break
            time.sleep(0.005)  # somebody wrote meanwhile
        yield place / NAME


def _stamp(path: Path) -> tuple[int, ...] | None:
    try:
        found = path.stat()
    except FileNotFoundError:
        return None
    return found.st_ino, found.st_size, found.st_mtime_ns


def _beside(path: Path, ending: str) -> Path:
    return path.with_name(path.name + ending)


def _open(path: Path, flags: int) -> int:
    try:
        return open_regular(path, flags)
    except FileNotFoundError:
        raise
    except OSError as error:
        raise UnreadableFile(f"{path} cannot be opened: {error.strerror or error}") from error


def _mark(version: int) -> bytes:
    number = b"%020d" % version
    return b"%s %08x\n" % (number, crc32(number))


def version_of(mark: bytes) -> int | None:
    """The number in the file ``acknowledged``; None if it is damaged."""
    number = mark[:20]
    return int(number) if number.isdigit() and mark == _mark(int(number)) else None


# A connection of SQLite must not be carried into another process: the new one would rely on locks that it does not
# hold. So all are closed before a fork, and opened again on their next use.
_OPEN: weakref.WeakSet[Log] = weakref.WeakSet()
_forking = threading.local()


def _before_fork() -> None:
    _forking.held = sorted(_OPEN, key=id)
    for log in _forking.held:
        log.lock.acquire()
        log._disconnect()


def _after_fork() -> None:
    for log in _forking.__dict__.pop("held", ()):
        log.lock.release()


os.register_at_fork(before=_before_fork, after_in_parent=_after_fork, after_in_child=_after_fork)
