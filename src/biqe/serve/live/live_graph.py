"""A live graph on disk: updates by any number of processes, and versions that stay readable while in use."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from biqe.errors import BiqeError, InvalidOption, RunFailed, UnreadableFile
from biqe.graph.knowledge_graph import Graph, Splits
from biqe.graph.literals import LiteralBook, Literals
from biqe.serve.live import generations
from biqe.serve.live.changes import Changes, Receipt, Text, check_statements, decode, encode
from biqe.serve.live.update import Ask, update_steps
from biqe.serve.live.upload import Upload, UploadedStatements
from biqe.serve.live.versions import History, View


@dataclass(frozen=True)
class LiveConfig:
    """When a new base is written, and how long a writer waits for another."""

    compact_records: int = 10_000
    """Number of updates in the journal after which a new base is written."""
    compact_bytes: int = 64 << 20
    """Bytes of the journal after which a new base is written."""
    lock_seconds: float = 30.0
    """Time that an update waits for updates of other processes."""

    def __post_init__(self) -> None:
        for name in ("compact_records", "compact_bytes"):
            if getattr(self, name) < 1:
                raise InvalidOption(f"{name!r} must be at least 1. Got {getattr(self, name)}")
        if not self.lock_seconds > 0:
            raise InvalidOption(f"'lock_seconds' must be above 0. Got {self.lock_seconds}")


class LiveGraph:
    """A live graph on disk. Any number of processes may open one folder; updates are made one at a time.

    Every method may be called from any thread.
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
        With ``read_only`` nothing is written to the folder, not even the repair of an interrupted update.
        """
        self.folder = Path(folder)
        self.config = config or LiveConfig()
        self.read_only = read_only
        if not generations.is_live_folder(self.folder):
            if base is None or read_only:
                raise UnreadableFile(f"{self.folder} is not a live graph", hint="make one of a graph folder first")
            if known not in ("complete", "train"):
                raise InvalidOption(f"'known' must be complete or train. Got {known!r}")
            splits = base if isinstance(base, Splits) else Splits(base.vocabulary, base.triples, literals=base.literals)
            generations.create(self.folder, splits, known=known, prefixes=prefixes or {"": ""})
        manifest = generations.read_manifest(self.folder)
        self.known: str = manifest["known"]
        """The splits of the base that count as known: ``complete`` or ``train``."""
        self.base_fingerprint = str(manifest.get("base", ""))
        """Fingerprint of the graph that the live graph was made from."""
        self._turn = threading.RLock()
        """Held by the thread of this process that writes."""
        self._lock = threading.RLock()
        """Held while the journal is read; never for long."""
        self.compaction_error: str | None = None
        """Why the last attempt to write a new base failed; updates still go to the journal."""
        self._view: View | None = None
        self._generation, self._mark = generations.open_generation(self.folder, read_only=read_only)
        self._restart()
        self._recover()

    @property
    def prefixes(self) -> Mapping[str, str]:
        """Prefixes that updates may use without declaring them."""
        return self._generation.prefixes

    @property
    def version(self) -> int:
        """Number of updates since the live graph was made."""
        return self.snapshot().version

    def snapshot(self) -> View:
        """The newest version, with every update that any process has acknowledged."""
        with self._lock:
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
            update = update.read()  # before the lock is taken: it may take long
        with self._writing():
            view = self.snapshot()
            state = self._history.state
            counts: dict[str, int] = {}

            def is_taken(name: str) -> bool:
                return state.entity(name) is not None

            if isinstance(update, UploadedStatements):
                steps, counts = update.steps(view.version + 1, is_taken), update.counts
            elif isinstance(update, str):
                steps = update_steps(update, view, self.prefixes, is_taken, ask)
            else:
                steps = [update] if isinstance(update, Changes) else list(update)
            for step in steps:
                check_statements(step.inserted)
            changes, unchanged = state.effect(steps)
            after = self._committed(view, changes) if changes else view
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
        """Write a new base with all changes in it, and begin a new journal. Readers are not affected."""
        with self._writing():
            self._compact()

    def is_of(self, fingerprint: str) -> bool:
        """Whether it was made from the graph with that fingerprint, or that graph is a copy which a run made of it."""
        return fingerprint == self.base_fingerprint or fingerprint in generations.read_copies(self.folder)

    def copied(self, fingerprint: str) -> None:
        """Remember the fingerprint of a copy that was made."""
        with self._writing():
            generations.note_copy(self.folder, fingerprint)

    def close(self) -> None:
        """Close the files. Existing views stay usable; no new ones can be taken."""
        with self._lock:
            self._generation.journal.close()

    # Reading

    def _restart(self) -> None:
        """Begin with the base of the open generation."""
        generation = self._generation
        self._history = History(generation.splits, self.known, generation.literals, generation.version)
        self._view = None
        self._at = 0

    def _catch_up(self) -> None:
        """Read what was acknowledged since the last call, by this or another process."""
        # The old journal is read to its end first: it is complete once there is a new generation.
        while generations.mark_of(self.folder) != self._mark:
            self._replay()
            following, mark = generations.open_generation(self.folder, read_only=self.read_only)
            known = self._history.moment.version
            if following.version < known:
                following.journal.close()
                raise UnreadableFile(
                    f"{self.folder} was replaced by an older copy while it was in use", hint="restart the server"
                )
            self._generation.journal.close()
            self._generation, self._mark, self._at = following, mark, 0
            if following.version > known:
                # Several new bases were written since the last call, and the journals between them are deleted.
                self._restart()
            else:
                self._history.rebase(following.splits)
        self._replay()

    def _replay(self, *, whole: bool = False) -> None:
        """Apply records of the journal: all that are acknowledged, or with ``whole`` all that are complete."""
        journal = self._generation.journal
        acknowledged = None if whole else journal.committed
        stop = journal.size if acknowledged is None else acknowledged
        if stop <= self._at:
            return
        for record in journal.records(self._at, self._history.moment.version + 1, stop):
            try:
                self._history.apply(decode(record.payload)[1])
            except UnreadableFile as error:
                raise UnreadableFile(
                    f"{journal.path} is damaged: the record of version {record.version:,}, {error.message}",
                    hint="restore the folder from a copy",
                ) from error
            self._at = record.end
        if acknowledged is not None and self._at < stop:
            raise UnreadableFile(
                f"{journal.path} is damaged: {stop:,} bytes were acknowledged, but only {self._at:,} can be read",
                hint="restore the folder from a copy; to give up later updates, delete the file committed beside it",
            )

    # Writing

    def _recover(self) -> None:
        """Read the journal. After a power cut there may be more on disk than was noted as acknowledged."""
        try:
            with self._writing(0.0):
                return
        except RunFailed:
            pass  # another process is writing, and has recovered it before; or this one may only read
        with self._lock:
            self._catch_up()

    @contextmanager
    def _writing(self, seconds: float | None = None) -> Iterator[None]:
        """Hold the locks of this process and of the folder, with the journal read to its end."""
        if self.read_only:
            raise RunFailed(f"{self.folder} was opened for reading only")
        with self._turn, generations.writing(self.folder, self.config.lock_seconds if seconds is None else seconds):
            with self._lock:
                self._catch_up()
                journal = self._generation.journal
                size = journal.size
                if size != self._at or journal.committed != size:
                    # A writer was killed. A whole record counts, though it was not acknowledged; a partial one is cut.
                    self._replay(whole=True)
                    if self._at < size:
                        journal.cut(self._at)
                    journal.commit(self._at)
            yield

    def _committed(self, view: View, changes: Changes) -> View:
        version = view.version + 1
        self._generation.journal.append(self._at, version, encode(changes, version, time.time()))
        # Read from the journal, as in every other process.
        return self.snapshot()

    @property
    def _is_long(self) -> bool:
        records = self._history.moment.version - self._generation.version
        return records >= self.config.compact_records or self._at >= self.config.compact_bytes

    def _try_compacting(self) -> None:
        try:
            self._compact()
            self.compaction_error = None
        except BiqeError as error:
            # The update is on disk, and the journal can grow further.
            self.compaction_error = error.message

    def _compact(self) -> None:
        view, state = self.snapshot(), self._history.state
        splits = view.splits
        whole = Splits(state.base_vocabulary, splits.train, splits.valid, splits.test)
        generations.write_generation(self.folder, whole, view.version, self.prefixes, state.literals)
        self.snapshot()
