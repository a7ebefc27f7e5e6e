"""Which jobs were begun, are done or failed: one small file in the work folder, written whole after every change.

The file is a record, not a source: results and training runs stand for themselves. Where it is lost, what was
done is found again from them.
"""

from __future__ import annotations

import fcntl
import json
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path

from biqe.errors import RunFailed, UnreadableFile

FORMAT = "biqe-queue"
VERSION = 1
STATES = ("waiting", "running", "done", "failed", "not at hand")


@dataclass(frozen=True)
class Entry:
    """What is known about one job."""

    state: str
    digest: str
    """Of the job's settings."""
    reason: str = ""
    """Why it failed, or what is not at hand."""
    changed: str = ""
    """When it came into this state, UTC."""


class Queue:
    """The states of jobs by name, on disk."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / "queue.json"
        self._entries = self._read()

    def __getitem__(self, name: str) -> Entry | None:
        return self._entries.get(name)

    def __iter__(self) -> Iterator[str]:
        return iter(self._entries)

    def set(self, name: str, state: str, digest: str, reason: str = "") -> None:
        """Note that a job came into a state, and write the file."""
        assert state in STATES
        now = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
        self._entries[name] = Entry(state, digest, reason, now)
        self._write()

    def add(self, jobs: list[tuple[str, str]]) -> None:
        """Add jobs, name and digest, that wait; those that are there with the same settings stay as they are."""
        for name, digest in jobs:
            known = self._entries.get(name)
            if known is None or known.digest != digest:
                self._entries[name] = Entry("waiting", digest)
        self._write()

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Hold the work folder; RunFailed where another process has it. The system frees it when we die."""
        self.path.parent.mkdir(parents=True, exist_ok=True)
        with open(self.path.with_name(".queue.lock"), "w") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError as error:
                raise RunFailed(
                    f"another process works in {self.path.parent}",
                    hint="wait for it, or name another folder with --work",
                ) from error
            self._entries = self._read()
            yield

    def _read(self) -> dict[str, Entry]:
        try:
            data = json.loads(self.path.read_text("utf-8"))
        except FileNotFoundError:
            return {}
        except (OSError, ValueError) as error:
            raise self._damaged(str(error)) from error
        if not isinstance(data, dict) or data.get("format") != FORMAT:
            raise self._damaged(f"its format is not {FORMAT}")
        if data.get("version") != VERSION:
            raise self._damaged(f"it is of version {data.get('version')!r}, not {VERSION}")
        try:
            entries = {str(name): Entry(**entry) for name, entry in data["jobs"].items()}
        except (KeyError, TypeError, AttributeError) as error:
            raise self._damaged(str(error)) from error
        for name, entry in entries.items():
            if entry.state not in STATES:
                raise self._damaged(f"job {name} is in state {entry.state!r}")
        return entries

    def _damaged(self, why: str) -> UnreadableFile:
        return UnreadableFile(
            f"{self.path} cannot be read as a queue: {why}",
            hint=f"delete it and say --resume: results and runs in {self.path.parent} are found again",
        )

    def _write(self) -> None:
        from biqe.models.store import write_whole

        jobs = {name: asdict(entry) for name, entry in self._entries.items()}
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            write_whole(self.path, json.dumps({"format": FORMAT, "version": VERSION, "jobs": jobs}, indent=1) + "\n")
        except OSError as error:
            raise RunFailed(
                f"cannot write {self.path}: {error.strerror or error}", hint="free some space, then go on with --resume"
            ) from error
