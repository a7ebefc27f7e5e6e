"""The run folder: what a training run writes, so that it explains itself and can be resumed.

    run.json        model and training settings, graph, query set, versions, git state, command
    trace.jsonl     one line an event: steps, validations, checkpoints, stops
    checkpoints/    the whole state, newest two
    model/          the best model so far, as a model folder
    reports/        what `biqe evaluate` found
    run.svg         the run drawn
    probabilities.svg   how far its probabilities of links can be trusted
    held_out.npy    facts that are held out of training to validate on, where the graph has too few
    graph/          a copy of a live graph, as it was when the run began
    links/          the run of the link predictor that this one began with, if it trained its own
    queries/        the set that a preset trains on, where the user gave none

A lock keeps two processes from training in one folder.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import platform
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from biqe import atlas
from biqe.errors import RunFailed, UnreadableFile, VocabularyMismatch
from biqe.graph import folder as graph_folder
from biqe.graph.knowledge_graph import Splits
from biqe.graph.triples import Triples
from biqe.graph.whole_folder import cannot_be_read, read_json, read_regular
from biqe.models.store import write_whole
from biqe.training import held_out as held_out_file
from biqe.training.config import TrainConfig

FORMAT = "biqe-run"
VERSION = 1
MAX_TRACE_BYTES = 1 << 30
GRAPH = "graph"
"""Folder of a run with a copy of its graph, if that is a live graph, which goes on changing."""
QUERIES = "queries"
"""Folder of a run with the set that was mined for it."""


class Run:
    """A run folder, open for reading and writing."""

    def __init__(self, folder: str | os.PathLike[str], record: dict[str, Any], *, writes: bool = True) -> None:
        """``writes``: whether this process writes the trace; of several ranks, only rank 0 does."""
        self.folder = Path(folder)
        self.record = record
        self._writes = writes

    @property
    def checkpoints(self) -> Path:
        return self.folder / "checkpoints"

    @property
    def model_folder(self) -> Path:
        return self.folder / "model"

    @property
    def links_folder(self) -> Path:
        return self.folder / "links"

    @property
    def train_config(self) -> TrainConfig:
        try:
            return TrainConfig(**self.record["train"])
        except TypeError as error:
            raise UnreadableFile(f"{self.folder / 'run.json'} is damaged: its options of training: {error}") from error

    @classmethod
    def create(
        cls,
        folder: str | os.PathLike[str],
        *,
        model: str,
        model_config: dict[str, Any],
        train: TrainConfig,
        graph: dict[str, Any],
        query_set: dict[str, Any] | None,
        held_out: Triples | None = None,
        start_from: str | None = None,
        continues: str | None = None,
        job: str | None = None,
        preset: str | None = None,
    ) -> Run:
        """A new run in ``folder``, which must be empty, but may hold the run's graph and queries. ``held_out`` are the
        triples to validate on; ``job`` is the torchrun job that started the run."""
        path = Path(folder)
        check_free(path)
        record = {
            "format": FORMAT,
            "version": VERSION,
            "preset": preset,
            "model": model,
            "model_config": model_config,
            "train": asdict(train),
            "graph": graph,
            "set": query_set,
            "held_out": None if held_out is None else len(held_out),
            "start_from": start_from,
            "continues": continues,
            "job": job,
            "versions": versions(),
            "git": git_state(),
            "command": " ".join(sys.argv),
            "started": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        }
        try:
            path.mkdir(parents=True, exist_ok=True)
            if held_out is not None:
                held_out_file.save(path, held_out)
            write_whole(path / "run.json", json.dumps(record, indent=2) + "\n")
        except OSError as error:
            raise RunFailed(f"cannot write to {path}: {error.strerror or error}") from error
        return cls(path, record)

    @classmethod
    def open(cls, folder: str | os.PathLike[str]) -> Run:
        """The run in ``folder``."""
        path = Path(folder) / "run.json"
        try:
            record = read_json(path)
        except (FileNotFoundError, NotADirectoryError) as error:
            raise UnreadableFile(
                f"{folder} is not a run folder: it has no run.json", hint="a run is made by: biqe train GRAPH --out RUN"
            ) from error
        if not isinstance(record, dict) or record.get("format") != FORMAT:
            raise UnreadableFile(f"{path} does not describe a biqe run")
        if record.get("version") != VERSION:
            raise UnreadableFile(f"{path} is of version {record.get('version')}; this program reads version {VERSION}")
        missing = {"model", "model_config", "train", "graph"} - set(record)
        if missing:
            raise UnreadableFile(f"{path} lacks {', '.join(sorted(missing))}")
        for name, kind in (("model", str), ("model_config", dict), ("train", dict), ("graph", dict)):
            if not isinstance(record[name], kind):
                raise UnreadableFile(f"{path} is damaged: {name!r} is {str(record[name])[:60]!r}")
        return cls(folder, record)

    def graph(self, at: str | None = None) -> tuple[Path, Splits]:
        """Where the run's graph lies, and its splits as the folder has them; ``at`` is another place for it.
        VocabularyMismatch if it is not the graph that the run began with."""
        recorded = self.record["graph"]
        place, splits = open_graph(at or ("atlas" if recorded.get("name") == "atlas" else recorded["path"]))
        if splits.fingerprint != recorded["fingerprint"]:
            raise VocabularyMismatch(
                f"the graph at {place} is not the one that {self.folder} was trained on "
                f"(fingerprints {splits.fingerprint} and {recorded['fingerprint']})",
                hint="a run belongs to the graph it began with; start a new run for a changed graph",
            )
        return place, splits

    def splits(self, whole: Splits) -> Splits:
        """``whole`` with the facts that the run holds out moved from train to valid."""
        held = self.record.get("held_out")
        return whole if held is None else held_out_file.load(self.folder, whole, held)

    def discard(self) -> None:
        """Remove a run that was refused before it trained anything, so that the same command can be given again."""
        if any((self.folder / name).exists() for name in ("checkpoints", "model", "links")):
            return
        for name in ("run.json", "trace.jsonl", held_out_file.FILE, ".lock"):
            (self.folder / name).unlink(missing_ok=True)
        with suppress(OSError):  # the folder may hold a copy of a live graph
            self.folder.rmdir()

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Hold the run's lock; RunFailed if another process has it. The system frees it when the process ends."""
        with open(self.folder / ".lock", "w") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError as error:
                raise RunFailed(
                    f"another process is training in {self.folder}", hint="wait for it, or stop it first"
                ) from error
            yield

    def log(self, event: str, **facts: Any) -> None:
        """Append one line to the trace."""
        if not self._writes:
            return
        line = json.dumps({"event": event, "time": round(time.time(), 3), **facts})
        try:
            with open(self.folder / "trace.jsonl", "a", encoding="utf-8") as file:
                file.write(line + "\n")
        except OSError as error:
            raise RunFailed(
                f"cannot write the trace of {self.folder}: {error.strerror or error}",
                hint="free some space, then continue with --resume",
            ) from error

    def trace(self) -> list[dict[str, Any]]:
        """Events in order. A last line that a kill has cut short is left out."""
        path = self.folder / "trace.jsonl"
        if not os.path.lexists(path):
            return []
        try:
            text = read_regular(path, MAX_TRACE_BYTES).decode(errors="replace")
        except OSError as error:
            raise cannot_be_read(path, error) from error
        events = []
        for line in text.splitlines():
            try:
                event = json.loads(line)
            except (ValueError, RecursionError):
                continue
            if isinstance(event, dict):
                events.append(event)
        return events


def open_graph(name: str) -> tuple[Path, Splits]:
    """The folder of a graph, and its splits; ``atlas`` is the embedded one."""
    place = atlas.path() if name == "atlas" else Path(name)
    return place.resolve(), graph_folder.load(place)


def check_free(folder: Path) -> None:
    """RunFailed unless a new run may be made in ``folder``, which may hold a graph and queries for it."""
    ours = GRAPH, QUERIES
    if folder.exists() and (not folder.is_dir() or any(entry.name not in ours for entry in folder.iterdir())):
        hint = f"continue it with: biqe train --resume {folder}" if is_run_folder(folder) else "choose another --out"
        raise RunFailed(f"{folder} exists and is not empty; nothing was overwritten", hint=hint)


def is_run_folder(folder: str | os.PathLike[str]) -> bool:
    """Whether ``folder`` holds a run."""
    try:
        Run.open(folder)
    except UnreadableFile:
        return False
    return True


def versions() -> dict[str, str]:
    """Versions of Python and of the packages that a result depends on."""
    found = {"python": platform.python_version()}
    for package in ("biqe", "torch", "numpy", "numba"):
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            found[package] = "unknown"
    return found


def source_fingerprint() -> str:
    """Sixteen hex digits over the program's own files: the same on two machines if the program is the same."""
    here = Path(__file__).resolve().parents[1]
    digest = hashlib.sha256()
    for path in sorted(here.rglob("*.py")):
        digest.update(path.relative_to(here).as_posix().encode() + b"\0" + path.read_bytes() + b"\0")
    return digest.hexdigest()[:16]


def git_state() -> dict[str, Any] | None:
    """Commit of the git checkout that this program runs from, and whether it has changes; None outside of git."""

    def git(*words: str) -> str:
        here = Path(__file__).parent
        return subprocess.run(["git", *words], cwd=here, capture_output=True, text=True, check=True, timeout=10).stdout

    try:
        return {"commit": git("rev-parse", "HEAD").strip(), "changed": bool(git("status", "--porcelain").strip())}
    except (OSError, subprocess.SubprocessError):
        return None
