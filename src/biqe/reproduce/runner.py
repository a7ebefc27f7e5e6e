"""A table's jobs done one after the other, with a record of their states. A job that fails leaves its reason, and the
others go on; a job that was interrupted is resumed.

The record is one small file in the work folder, written whole after every change. Results and training runs stand
for themselves: where the record is lost, what was done is found again from them.
"""

from __future__ import annotations

import fcntl
import json
import time
import traceback
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path

from biqe import benchmarks
from biqe.benchmarks import download
from biqe.benchmarks.storage import data_folder
from biqe.errors import BiqeError, InvalidOption, RunFailed, UnreadableFile
from biqe.graph.whole_folder import read_json
from biqe.reproduce import recipe as recipes
from biqe.reproduce import result as results
from biqe.reproduce.job import Job
from biqe.reproduce.recipe import Table
from biqe.reproduce.result import Result
from biqe.reproduce.work import Desk, Places, Stopwatch, Watcher, work

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
            data = read_json(self.path)
        except FileNotFoundError:
            return {}
        except (OSError, UnreadableFile) as error:
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


def run_table(table: Table, jobs: Sequence[Job], places: Places, *, resume: bool, watcher: Watcher) -> dict[str, str]:
    """Do ``jobs`` of ``table`` and return the state of each by name.

    Files that are missing are fetched where all of them can be. Refused before anything is done: options that a model
    does not have, a table none of whose data is at hand, and, without ``resume``, jobs that were begun before.
    """
    for job in jobs:
        recipes.check_options(job.recipe, job.model_config)
    queue = Queue(places.work)
    if not resume:
        _refuse_begun(table, jobs, queue, places)
    absent = _absent(
        [job for job in jobs if not results.done_as(results.path_of(places.results, job), job)], places, watcher
    )
    with queue.locked():
        if not resume:  # another process may have been quicker
            _refuse_begun(table, jobs, queue, places)
        queue.add([(job.name, job.digest) for job in jobs])
        desk = Desk(places, watcher)
        for number, job in enumerate(jobs, start=1):
            path = results.path_of(places.results, job)
            if results.done_as(path, job):
                queue.set(job.name, "done", job.digest)
            elif (found := results.made_for_another_row(places.results, job)) is not None:
                results.write(found, path)
                queue.set(job.name, "done", job.digest)
                watcher.ended(job, "done", "")
            elif job.recipe.benchmark in absent:
                reason = absent[job.recipe.benchmark]
                queue.set(job.name, "not at hand", job.digest, reason)
                watcher.ended(job, "not at hand", reason)
            else:
                watcher.began(job, number, len(jobs))
                queue.set(job.name, "running", job.digest)
                state, reason = _do(job, desk)
                queue.set(job.name, state, job.digest, reason)
                watcher.ended(job, state, reason)
        return {job.name: entry.state for job in jobs if (entry := queue[job.name]) is not None}


def _do(job: Job, desk: Desk) -> tuple[str, str]:
    """Do one job and write its result; its state and, where it failed, the reason."""
    places, watch = desk.places, Stopwatch()
    path = results.path_of(places.results, job)
    try:
        outcome = work(job, desk)
        found = _result(
            job,
            places,
            figures=outcome.figures,
            ties=outcome.ties,
            reports=results.without_places(outcome.reports, places.words),
            config=results.without_places(outcome.config, places.words),
            fingerprints=outcome.fingerprints,
            seconds={**outcome.seconds, "total": round(watch.seconds(), 1)},
            parts=outcome.parts,
            peak_mib=max(watch.peak_mib(), outcome.peak_mib),
        )
        results.write(found, path)
        for ending, content in outcome.files.items():
            path.with_suffix(f".{ending}").write_bytes(content)
        return "done", ""
    except (BiqeError, MemoryError) as error:
        reason = error.message if isinstance(error, BiqeError) else "out of memory"
    except Exception as error:
        reason = f"{type(error).__name__}: {(str(error).splitlines() or [''])[0]}"
        faults = places.work / "faults"
        faults.mkdir(parents=True, exist_ok=True)
        (faults / f"{job.name.replace('/', '.')}.txt").write_text(traceback.format_exc(), "utf-8")
    reason = str(results.without_places(reason, places.words))
    failed = _result(
        job,
        places,
        state="failed",
        reason=reason,
        seconds={"total": round(watch.seconds(), 1)},
        peak_mib=watch.peak_mib(),
    )
    if not (path.exists() and results.read(path).state == "done"):  # a good result is not lost to a failure
        results.write(failed, path)
    return "failed", reason


def _result(job: Job, places: Places, **facts: object) -> Result:
    from biqe.evaluate.machine import machine
    from biqe.links.softmax import processor_multiplies_bfloat16
    from biqe.training.run import git_state, versions

    about = {key: value for key, value in machine().items() if key != "peak_resident_mib"}
    about["device"] = places.device
    about["bfloat16"] = processor_multiplies_bfloat16()  # what precision=auto came to
    return Result(
        table=job.recipe.table,
        recipe=job.recipe.name,
        seed=job.seed,
        settings=job.settings,
        versions=versions(),
        git=git_state(),
        machine=about,
        finished=time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        **facts,  # type: ignore[arg-type]
    )


def _absent(jobs: Sequence[Job], places: Places, watcher: Watcher) -> dict[str, str]:
    """Why benchmarks cannot be opened, by name, for lack of files. Refused where no job could run at all."""
    wanted = dict.fromkeys(job.recipe.benchmark for job in jobs)
    absent = {name: why for name in wanted if (why := _get(name, places, watcher))}
    if absent and len(absent) == len(wanted):
        first = next(iter(absent))
        fetch = f"biqe benchmarks {first} --fetch gets what has an address; " if download.remote_files(first) else ""
        raise UnreadableFile(
            "; ".join(absent.values()),
            hint=f"{fetch}biqe benchmarks {first} says where they come from; --data DIR or BIQE_DATA names the folder",
        )
    return absent


def _get(name: str, places: Places, watcher: Watcher) -> str:
    """Fetch the missing files of a benchmark if all have an address; returns why it cannot be opened, or ''."""
    missing = benchmarks.missing(name, data=places.data)
    if not missing:
        return ""
    remotes = {data_folder(places.data) / remote.place: remote for remote in download.remote_files(name)}
    if not remotes.keys() >= set(missing):
        # What has an address is not worth fetching as long as the rest is not there.
        folders: dict[Path, list[str]] = {}
        for path in missing:
            folders.setdefault(path.parent, []).append(path.name)
        wanted = "; ".join(f"{', '.join(files)} must be put into {folder}" for folder, files in folders.items())
        return f"the files of {name} are not at hand: {wanted}"
    told: set[str] = set()

    def show(file: str, done: int, size: int) -> None:
        if file not in told:
            told.add(file)
            watcher.doing(f"fetching {file}, {size / 1e6:.1f} MB, {len(told)} of at most {len(remotes)}")

    try:
        download.fetch(name, data=places.data, on_progress=show)
    except BiqeError as error:
        return f"the files of {name} are not at hand: {error.message}" + (f"; {error.hint}" if error.hint else "")
    return ""


def _refuse_begun(table: Table, jobs: Sequence[Job], queue: Queue, places: Places) -> None:
    begun = [
        job
        for job in jobs
        if results.path_of(places.results, job).exists()
        or ((entry := queue[job.name]) is not None and entry.state in ("running", "done", "failed"))
    ]
    if begun:
        raise InvalidOption(
            f"{len(begun)} of {len(jobs)} jobs of {table.name} were begun before, such as {begun[0].name}",
            hint="go on with --resume: what is done stays, what failed is tried again. For a fresh start name other "
            "folders with --work and --results",
        )
