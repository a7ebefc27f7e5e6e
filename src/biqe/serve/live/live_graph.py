"""A live graph on disk: updates by any number of processes, and versions that stay readable while in use."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from biqe.errors import BiqeError, InvalidOption, RunFailed, UnreadableFile
from biqe.graph.knowledge_graph import Graph, Splits
from biqe.graph.literals import LiteralBook, Literals
from biqe.serve.live import generations
from biqe.serve.live.changes import Changes, Receipt, Text, check_statements, decode, encode
from biqe.serve.live.generations import Base
from biqe.serve.live.log import Log, Row, damaged
from biqe.serve.live.update import Ask, update_steps
from biqe.serve.live.upload import Upload, UploadedStatements
from biqe.serve.live.versions import History, View


@dataclass(frozen=True)
class LiveConfig:
    """When a new base is written, and how long a writer waits for another."""

    compact_records: int = 10_000
    """Number of updates since the base after which a new base is written."""
    compact_bytes: int = 64 << 20
    """Bytes of these updates after which a new base is written."""
    lock_seconds: float = 30.0
    """Time that an update waits for updates of other processes."""

    def __post_init__(self) -> None:
        for name in ("compact_records", "compact_bytes"):
            if getattr(self, name) < 1:
                raise InvalidOption(f"{name!r} must be at least 1. Got {getattr(self, name)}")
        if not self.lock_seconds > 0:
            raise InvalidOption(f"'lock_seconds' must be above 0. Got {self.lock_seconds}")


_OPENINGS = 100
"""Attempts to open a folder in which new bases keep appearing."""


class LiveGraph:
    """A live graph on disk. Any number of processes may open one folder; updates are made one at a time.

    Every method may be called from any thread, and an open graph may be carried into a forked process.
    """

    def __init__(
        self,
        folder: str | os.PathLike[str],
        base: Splits | Graph | None = None,
        *,
        known: str = "complete",
        prefixes: Mapping[str, str] | None = None,
        config: LiveConfig | None = None,
        read_only: bool = False,
    ) -> None:
        """Open the live graph in ``folder``; if there is none, make one from ``base``.

        ``known`` names the splits of ``base`` that count as known, ``complete`` or ``train``; ``prefixes`` are those
        that updates may use without declaring them. Both are stored in a new folder; an existing one has its own.
        With ``read_only`` nothing in the folder is touched.
        """
        self.folder = Path(folder)
        self.config = config or LiveConfig()
        self.read_only = read_only
        if not generations.is_live_folder(self.folder):
            if base is None or read_only:
                raise UnreadableFile(f"{self.folder} is not a live graph", hint="make one of a graph folder first")
            if known not in ("complete", "train"):
                raise InvalidOption(f"'known' must be complete or train. Got {known!r}")
            splits = base if isinstance(base, Splits) else base.as_splits()
            generations.create(self.folder, Base.first(splits, known, prefixes))
        generations.read_manifest(self.folder)
        # A user who may only read the folder reads it.
        self.read_only = read_only or not os.access(self.folder, os.W_OK)
        self.compaction_error: str | None = None
        """Why the last attempt to write a new base failed; updates still go to the log."""
        self._in_use = -1 if self.read_only else generations.hold(self.folder)
        self._turn = threading.RLock()
        """Held by the thread of this process that writes."""
        self._log = Log(self.folder, read_only=self.read_only)
        self._lock = self._log.lock
        """Held while the log is read; never for long."""
        self._view: View | None = None
        try:
            acknowledged = self._log.acknowledged
            self._open(verify=True)
            if self.version < acknowledged:
                raise damaged(
                    self._log.path,
                    f"update {self.version + 1:,} is missing; {acknowledged:,} updates were acknowledged",
                )
        except BaseException:
            self.close()
            raise

    @property
    def base(self) -> Base:
        """The newest version, as a base of its own."""
        with self._lock:
            copies = self._log.read(self.version)[0]["copies"]
            return replace(base_at(self._history, self._base), copies=tuple(copies))

    @property
    def known(self) -> str:
        """The splits of the base that count as known: ``complete`` or ``train``."""
        return self._base.known

    @property
    def prefixes(self) -> Mapping[str, str]:
        """Prefixes that updates may use without declaring them."""
        return self._base.prefixes

    @property
    def origin(self) -> str:
        """Fingerprint of the graph that the live graph was made from."""
        return self._base.origin

    @property
    def version(self) -> int:
        """Number of updates since the live graph was made."""
        return self.snapshot().version

    def snapshot(self) -> View:
        """The newest version, with every update that any process has acknowledged."""
        with self._lock:
            if self._log.acknowledged != self._seen:
                self._catch_up()
            if self._view is None or self._view.version != self._history.moment.version:
                self._view = View(self._history)
            return self._view

    @property
    def literals(self) -> Literals | None:
        """Statements of the newest version with a literal as object."""
        book = LiteralBook()
        for subject, relation, value in self._history.state.literals:
            assert isinstance(value, Text)
            book.add(subject, relation, str(value.literal))
        return book.finished()

    def apply(
        self, update: str | Upload | UploadedStatements | Changes | Sequence[Changes], *, ask: Ask | None = None
    ) -> Receipt:
        """Make an update completely or not at all: a SPARQL Update, an uploaded file, or changes in names.

        It is on disk when the receipt is returned. An update without effect makes no new version. ``ask`` evaluates
        the WHERE parts; by default this process does.
        """
        start = time.monotonic()
        if isinstance(update, Upload):
            update = update.read()
        with self._writing():
            view = self.snapshot()
            steps, counts = self._steps(update, view, ask)
            for step in steps:
                check_statements(step.inserted)
            changes, unchanged = self._history.state.effect(steps)
            after = view
            if changes:
                version = view.version + 1
                self._log.append(version, encode(changes, version, time.time()))
                after = self.snapshot()  # read from the log, as in every other process
            receipt = Receipt(
                after.version,
                len(changes.inserted),
                len(changes.deleted),
                unchanged,
                len(after.vocabulary.entities) - len(view.vocabulary.entities),
                len(after.vocabulary.relations) - len(view.vocabulary.relations),
                sum(isinstance(statement.object, Text) for statement in changes.inserted),
                **counts,
                seconds=round(time.monotonic() - start, 6),
            )
            if self._is_long:
                self._try_compacting()
        return receipt

    def compact(self) -> None:
        """Write a new base with all updates in it. Readers are not affected."""
        with self._writing():
            self._compact()

    def is_of(self, fingerprint: str) -> bool:
        """Whether it was made from the graph with that fingerprint, or that graph is a copy which a run made of it."""
        return fingerprint == self.origin or fingerprint in self._log.read(self.version)[0]["copies"]

    def copied(self, fingerprint: str) -> None:
        """Remember the fingerprint of a copy that was made."""
        with self._writing():
            state = self._log.read(self.version)[0]
            self._log.write_state({**state, "copies": sorted({*state["copies"], fingerprint})})

    def close(self) -> None:
        """Close the files. Existing views stay usable; no new ones can be taken."""
        with self._lock:
            self._log.close()
            if self._in_use >= 0:
                os.close(self._in_use)
            self._in_use = -1

    # Reading

    def _open(self, *, verify: bool) -> None:
        """Begin with the current base."""
        for _ in range(_OPENINGS):
            state, rows = self._log.read()
            try:
                self._base = generations.read_base(self.folder, state, verify=verify)
                break
            except UnreadableFile:
                if self._log.read()[0] == state:
                    raise  # otherwise it was replaced by a newer one while it was being opened
        else:
            raise UnreadableFile(f"{self.folder} changes too fast to be opened", hint="try again in a moment")
        self._history = History(self._base.splits, self.known, self._base.literals, self._base.version)
        self._view = None
        self._bytes = 0
        self._replay(rows)

    def _catch_up(self) -> None:
        """Read what this or another process wrote since the last call."""
        for _ in range(_OPENINGS):
            known = self._history.moment.version
            state, rows = self._log.read(known)
            base = state["version"]
            if base == self._base.version:
                return self._replay(rows)
            if base > known and (not rows or rows[0].version != known + 1):
                # Several new bases were written since the last call, and updates between them are gone.
                return self._open(verify=False)
            # The history continues on a new base when it is at the base's version.
            self._replay([row for row in rows if row.version <= base])
            try:
                self._base = generations.read_base(self.folder, state, verify=False)
            except UnreadableFile:
                if self._log.read(known)[0] == state:
                    raise
                continue  # there is a newer one already
            self._history.rebase(self._base.splits)
            self._bytes = 0
            return self._replay([row for row in rows if row.version > base])
        raise UnreadableFile(f"{self.folder} changes too fast to be read", hint="try again in a moment")

    def _replay(self, rows: Sequence[Row]) -> None:
        for row in rows:
            try:
                version, changes = decode(row.changes)
                if version != row.version:
                    raise UnreadableFile(f"it says that it is update {version:,}")
                self._history.apply(changes)
            except UnreadableFile as error:
                raise damaged(self._log.path, f"update {row.version:,}: {error.message}") from error
            self._bytes += len(row.changes)
        self._seen = self._history.moment.version

    # Writing

    @contextmanager
    def _writing(self) -> Iterator[None]:
        """Hold the locks of this process and of the folder, with the log read to its end."""
        if self.read_only:
            raise RunFailed(f"{self.folder} was opened for reading only")
        with self._turn, generations.writing(self.folder, self.config.lock_seconds):
            with self._lock:
                acknowledged = self._log.acknowledged
                self._catch_up()
                if self._seen != acknowledged:
                    if self._seen < acknowledged:
                        raise damaged(self._log.path, f"update {acknowledged:,} is missing, which was acknowledged")
                    # A writer was killed between its update and its acknowledgement. The update counts.
                    self._log.acknowledge(self._seen)
            yield

    def _steps(
        self, update: str | UploadedStatements | Changes | Sequence[Changes], view: View, ask: Ask | None
    ) -> tuple[list[Changes], dict[str, int]]:
        """What an update deletes and inserts in this version, step by step, and counts for its receipt."""
        state = self._history.state

        def is_taken(name: str) -> bool:
            return state.entity(name) is not None

        if isinstance(update, UploadedStatements):
            return update.steps(view.version + 1, is_taken), update.counts
        if isinstance(update, str):
            return update_steps(update, view, self.prefixes, is_taken, ask), {}
        return [update] if isinstance(update, Changes) else list(update), {}

    @property
    def _is_long(self) -> bool:
        updates = self._history.moment.version - self._base.version
        return updates >= self.config.compact_records or self._bytes >= self.config.compact_bytes

    def _try_compacting(self) -> None:
        try:
            self._compact()
            self.compaction_error = None
        except BiqeError as error:
            # The update is on disk, and the log can grow further.
            self.compaction_error = error.message

    def _compact(self) -> None:
        before, base = self._base.version, self.base
        if base.version == before:
            return
        state = generations.write_base(self.folder, base)
        # Updates since the base before stay, for processes that still have to read them.
        self._log.write_state(state, drop=before)
        with self._lock:
            self._catch_up()
        generations.sweep(self.folder, keep=base.version)


def base_at(history: History, base: Base) -> Base:
    """The newest version of ``history``, which began with ``base``, as a base of its own."""
    view, state = View(history), history.state
    splits = view.splits
    whole = Splits(state.base_vocabulary, splits.train, splits.valid, splits.test)
    return replace(base, version=view.version, splits=whole, literals=state.literals)
