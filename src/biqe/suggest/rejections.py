"""Suggestions that somebody has rejected: a file to which each verdict appends a line.

Any number of processes may read it and append to it. A line that a crash cut short is skipped.
"""

from __future__ import annotations

import errno
import json
import os
import threading
from pathlib import Path

from biqe.errors import RunFailed
from biqe.graph.vocabulary import Vocabulary
from biqe.graph.whole_folder import cannot_be_read, open_regular

MOST_BYTES = 256 << 20
"""Bytes of the file that are read."""
Names = tuple[str, str, str]
"""Subject, relation and object, as the graph has them."""


class Rejections:
    """The links that were rejected, and not restored since."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._lock = threading.Lock()
        self._read = 0
        self._names: set[Names] = set()

    def add(self, link: Names, *, rejected: bool = True) -> None:
        """Remember that a link was rejected, or restored."""
        line = json.dumps([*link, "rejected" if rejected else "restored"], ensure_ascii=False)
        # It begins a line of its own, whatever a crash left behind; one write is not torn by another process.
        data = f"\n{line}\n".encode()
        try:
            file = open_regular(self.path, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
            try:
                if os.write(file, data) < len(data):
                    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
                os.fsync(file)
            finally:
                os.close(file)
        except OSError as error:
            raise RunFailed(
                f"{self.path} could not be written: {error.strerror or error}; nothing is changed",
                hint="is the disk full, or the place read-only?",
            ) from error

    @property
    def names(self) -> frozenset[Names]:
        """The rejected links."""
        with self._lock:
            self._follow()
            return frozenset(self._names)

    def ids(self, vocabulary: Vocabulary) -> set[tuple[int, int, int]]:
        """The rejected links in ids; without those that the vocabulary does not have."""
        entities, relations = vocabulary.entities, vocabulary.relations
        found = {(entities.find(s), relations.find(r), entities.find(o)) for s, r, o in self.names}
        return {link for link in found if None not in link}  # type: ignore[misc]

    def _follow(self) -> None:
        """Read what was appended since; from the start where the file is another one."""
        try:
            size = self.path.stat().st_size
        except FileNotFoundError:
            size = 0
        if size < self._read:
            self._read, self._names = 0, set()
        if size == self._read:
            return
        try:
            with open(open_regular(self.path), "rb") as file:
                file.seek(self._read)
                new = file.read(min(size, MOST_BYTES) - self._read)
        except OSError as error:
            raise cannot_be_read(self.path, error) from error
        whole = new[: new.rfind(b"\n") + 1]
        self._read += len(whole)
        for line in whole.splitlines():
            try:
                subject, relation, object_, verdict = json.loads(line)
            except (ValueError, TypeError, RecursionError):
                continue
            if all(isinstance(name, str) for name in (subject, relation, object_)):
                change = self._names.add if verdict == "rejected" else self._names.discard
                change((subject, relation, object_))
