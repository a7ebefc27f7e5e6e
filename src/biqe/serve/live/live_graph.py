"""A graph that changes while it is served: on disk, in any number of processes, every version readable to its end."""

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
from biqe.serve.live import generations
from biqe.serve.live.changes import Changes, Receipt, Text, check_names, decode, encode
from biqe.serve.live.history import History
from biqe.serve.live.rdf import check_literals
from biqe.serve.live.update import Ask, Update
from biqe.serve.live.upload import Upload
from biqe.serve.live.view import View


@dataclass(frozen=True)
class LiveConfig:
    """When the journal becomes a new base, and how long a writer waits for another."""

    compact_records: int = 10_000
    """Updates in the journal after which a new base is written."""
    compact_bytes: int = 64 << 20
    """Bytes of the journal after which a new base is written."""
    lock_seconds: float = 30.0
    """Time that an update waits for other processes to finish theirs."""

    def __post_init__(self) -> None:
        for name in ("compact_records", "compact_bytes"):
            if getattr(self, name) < 1:
                raise InvalidOption(f"{name!r} must be at least 1. Got {getattr(self, name)}")
        if not self.lock_seconds > 0:
            raise InvalidOption(f"'lock_seconds' must be above 0. Got {self.lock_seconds}")


class LiveGraph:
    """A live graph on disk. Any number of processes may open one folder; updates take turns.

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
    ) -> None:
        """Open the live graph in ``folder``; where there is none, make one of ``base``.

        ``known`` says which splits of ``base`` count as known, ``complete`` or ``train``; ``prefixes`` are those that
        updates may use without declaring them. Both are kept in the folder, and a folder that is there has its own.
        """
        self.folder = Path(folder)
        self.config = config or LiveConfig()
        if not generations.is_live_folder(self.folder):
            if base is None:
                raise UnreadableFile(f"{self.folder} is not a live graph", hint="make one of a graph folder first")
            generations.check_known(known)
            splits = base if isinstance(base, Splits) else Splits(base.vocabulary, base.triples)
            generations.create(self.folder, splits, known=known, prefixes=prefixes or {"": ""})
        manifest = generations.read_manifest(self.folder)
        self.known: str = manifest["known"]
        """The splits of the base that count as known: ``complete`` or ``train``."""
        self.base_fingerprint = str(manifest.get("base", ""))
        """Fingerprint of the graph that the live graph was made of."""
        self._turn = threading.RLock()
        """Whose turn it is to write, among the threads of this process."""
        self._lock = threading.RLock()
        """Held while the journal is followed: never for long."""
        self.compaction_error: str | None = None
        """Why the last try at a new base failed; the journal goes on meanwhile."""
        self._view: View | None = None
        self._generation, self._mark = generations.open_generation(self.folder)
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

    def apply(self, update: str | Update | Upload | Changes | Sequence[Changes], *, ask: Ask | None = None) -> Receipt:
        """Change the graph: a text of SPARQL Update, an uploaded file, or changes in names. All of it, or nothing.

        It is on disk when the receipt is handed out. An update that changes nothing makes no new version. ``ask`` finds
        what WHERE stands for, instead of this process.
        """
        start = time.monotonic()
        if isinstance(update, str):
            update = Update(update)
        uploaded = update.read() if isinstance(update, Upload) else None  # without the lock: it may take its time
        with self._writing():
            view = self.snapshot()
            state = self._history.state
            facts: dict[str, int] = {}

            def is_taken(name: str) -> bool:
                return state.entity(name) is not None

            if uploaded is not None:
                steps, facts = uploaded.steps(view.version + 1, is_taken), uploaded.facts
            elif isinstance(update, Update):
                steps = update.steps(view, self.prefixes, is_taken, ask)
            else:
                steps = [update] if isinstance(update, Changes) else list(update)  # type: ignore[arg-type]
            for step in steps:
                check_names(step.inserted)
                check_literals(step.inserted)
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
                **facts,
                seconds=round(time.monotonic() - start, 6),
            )
            if self._is_long:
                self._try_compacting()
        return receipt

    def compact(self) -> None:
        """Write a new base with all changes in it, and begin a new journal. Readers do not notice."""
        with self._writing():
            self._compact()

    def is_of(self, fingerprint: str) -> bool:
        """Whether this is a live graph of the graph with that fingerprint: it was made of it, or the other is a copy
        that a run has learnt from."""
        return fingerprint == self.base_fingerprint or fingerprint in generations.read_copies(self.folder)

    def copied(self, fingerprint: str) -> None:
        """Remember that a copy was made, whose fingerprint this is."""
        with self._writing():
            generations.note_copy(self.folder, fingerprint)

    def close(self) -> None:
        """Let the files go. Views that were taken stay as they are, but none can be taken any more."""
        with self._lock:
            self._generation.journal.close()

    # Reading

    def _restart(self) -> None:
        """Begin with the base of the generation that is open."""
        generation = self._generation
        self._history = History(generation.splits, self.known, generation.literals, generation.version)
        self._view = None
        self._at = 0

    def _catch_up(self) -> None:
        """Take in what was acknowledged since the last look, here or in another process."""
        # In this order: once a new generation counts, the journal of the old one is complete.
        while self._has_moved():
            self._replay()
            following, mark = generations.open_generation(self.folder)
            known = self._history.moment.version
            if following.version < known:
                following.journal.close()
                raise UnreadableFile(
                    f"{self.folder} was replaced by an older copy while it was in use", hint="start again"
                )
            self._generation.journal.close()
            self._generation, self._mark, self._at = following, mark, 0
            if following.version > known:
                # Several new bases came while nobody looked here, and the journals between them have gone.
                self._restart()
            else:
                self._history.rebase(following.splits)
        self._replay()

    def _has_moved(self) -> bool:
        return generations.mark_of(self.folder) != self._mark

    def _replay(self, end: int | None = None) -> None:
        """Take in records of the journal, up to what is acknowledged or to byte ``end``."""
        journal = self._generation.journal
        if end is None and journal.committed <= self._at:
            return
        for record in journal.records(self._at, self._history.moment.version + 1, end=end):
            try:
                _, changes = decode(record.payload)
            except UnreadableFile as error:
                raise UnreadableFile(
                    f"{journal.path} is damaged: the record of version {record.version:,}, {error.message}",
                    hint="restore the folder from a copy",
                ) from error
            self._history.apply(changes)
            self._at = record.end

    # Writing

    def _recover(self) -> None:
        """Read what there is. Where a machine lost its power, more may be on disk than was noted as acknowledged."""
        try:
            with self._writing(0.0):
                pass
        except RunFailed:
            # Somebody writes, who has done this; or only reading is allowed here.
            with self._lock:
                self._catch_up()

    @contextmanager
    def _writing(self, seconds: float | None = None) -> Iterator[None]:
        """The turn of this thread and this process, with everything read that there is."""
        with self._turn, generations.writing(self.folder, self.config.lock_seconds if seconds is None else seconds):
            with self._lock:
                self._catch_up()
                journal = self._generation.journal
                size = journal.size
                if size != self._at or journal.committed != size:
                    # A writer was killed: a whole record counts, though nobody was told; the beginning of one does not.
                    self._replay(size)
                    if self._at < size:
                        journal.cut(self._at)
                    journal.commit(self._at)
            yield

    def _committed(self, view: View, changes: Changes) -> View:
        version = view.version + 1
        self._generation.journal.append(self._at, version, encode(changes, version, time.time()))
        # From the journal, as every other process takes it in.
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
            # The update itself is on disk, and the journal can grow further.
            self.compaction_error = error.message

    def _compact(self) -> None:
        view, state = self.snapshot(), self._history.state
        splits = view.splits
        whole = Splits(state.base_vocabulary, splits.train, splits.valid, splits.test)
        generations.write_generation(self.folder, whole, view.version, self.prefixes, state.literals)
        self.snapshot()
