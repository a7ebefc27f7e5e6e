"""What jobs share: the opened benchmark, its graph folder, and a training run, begun, resumed or found finished."""

from __future__ import annotations

import shutil
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from biqe import benchmarks
from biqe.graph import folder as graph_folder
from biqe.models import store
from biqe.models.store import LoadedModel
from biqe.reproduce.job import Job
from biqe.train import checkpoint, session
from biqe.train.loop import Listener
from biqe.train.run import Run

if TYPE_CHECKING:
    from biqe.benchmarks import OpenBenchmark


@dataclass(frozen=True)
class Places:
    """The folders of this machine."""

    work: Path
    """Queue, graph folders and training runs."""
    results: Path
    data: Path | None = None
    """Benchmark files; None where the benchmarks find them by themselves."""

    @property
    def words(self) -> dict[Path, str]:
        """What stands for each folder in a result."""
        found = {self.work.resolve(): "WORK", self.results.resolve(): "RESULTS", Path.home(): "~"}
        found |= {Path.cwd(): "."}
        if self.data is not None:
            found[self.data.resolve()] = "DATA"
        given = {self.work: "WORK", self.results: "RESULTS"} | ({} if self.data is None else {self.data: "DATA"})
        return {**found, **{place: word for place, word in given.items() if place.is_absolute()}}


class Watcher(Listener, Protocol):
    """Shows what the queue does, the steps and validations of trainings included."""

    def began(self, job: Job, number: int, total: int) -> None:
        """A job begins."""

    def doing(self, step: str) -> None:
        """What is being done now."""

    def ranked(self, done: int, total: int) -> None:
        """``done`` of ``total`` queries have been ranked."""

    def ended(self, job: Job, state: str, reason: str) -> None:
        """A job is done, failed, or could not begin."""


@dataclass
class Desk:
    """The benchmark that stays open from one job of a queue to the next."""

    places: Places
    watcher: Watcher
    _open: dict[str, OpenBenchmark] = field(default_factory=dict)

    def benchmark(self, name: str) -> OpenBenchmark:
        """The benchmark, opened once; the one before it is closed."""
        if name not in self._open:
            self.watcher.doing(f"opening {name}")
            self._open.clear()
            self._open[name] = benchmarks.open(name, data=self.places.data)
        return self._open[name]

    def graph(self, opened: OpenBenchmark) -> Path:
        """The benchmark's graph as a graph folder of the work folder, made where it is not there."""
        place = self.places.work / "graphs" / f"{opened.name}-{opened.splits.fingerprint}"
        if not graph_folder.is_graph_folder(place):
            self.watcher.doing(f"writing the graph of {opened.name}")
            graph_folder.save(opened.splits, place, extra={"benchmark": opened.name})
        return place


@dataclass(frozen=True)
class Trained:
    """A model at the end of its training."""

    run: Run
    loaded: LoadedModel
    seconds: float
    """Of training, over all parts of the run."""
    parts: int
    before: float = 0.0
    """Seconds of the training that it started from."""
    peak_mib: int = 0
    """Largest resident size of the processes that trained it, of those that recorded it."""

    @property
    def config(self) -> dict[str, Any]:
        """All settings, defaults included, and where training stood when the model was kept."""
        return {
            "model": self.loaded.manifest["config"],
            "train": self.run.record["train"],
            "kept": self.loaded.manifest.get("trained", {}),
        }


def train(job: Job, desk: Desk) -> Trained:
    """The model of ``job``, trained, resumed, or found finished. KeyboardInterrupt if training was stopped."""
    assert job.recipe.model is not None
    before = None if job.before is None else train(job.before, desk)
    opened = desk.benchmark(job.recipe.benchmark)
    graph, folder = desk.graph(opened), desk.places.work / "runs" / job.run_name
    if (folder / "run.json").exists():
        if not is_finished(folder):
            desk.watcher.doing("going on with training")
            _stop_if_interrupted(session.resume(folder, graph=str(graph), listener=desk.watcher).reason)
    else:
        if folder.exists():  # a kill while the folder was being made; nothing was trained in it
            shutil.rmtree(folder)
        desk.watcher.doing("training")
        result = session.start(
            str(graph),
            folder,
            train_config=session.settings(job.recipe.model, seed=job.seed, **job.train),
            query_set=job.recipe.benchmark,
            data=desk.places.data,
            model=job.recipe.model,
            model_options=job.model_config,
            start_from=None if before is None else before.run.folder,
            listener=desk.watcher,
        )
        _stop_if_interrupted(result.reason)
    run = Run.open(folder)
    events = run.trace()
    return Trained(
        run,
        store.load(run.model_folder),
        max((float(event.get("seconds", 0.0)) for event in events), default=0.0),
        1 + sum(event.get("event") == "resumed" for event in events),
        0.0 if before is None else before.seconds,
        max((int(event.get("peak_resident_mib", 0)) for event in events), default=0),
    )


def is_finished(folder: Path) -> bool:
    """Whether the run in ``folder`` came to its end."""
    newest = checkpoint.latest(Run.open(folder).checkpoints)
    return newest is not None and checkpoint.read_place(newest).finished


def _stop_if_interrupted(reason: str) -> None:
    if reason == "interrupted":
        raise KeyboardInterrupt


class Stopwatch:
    """Seconds and memory of one job."""

    def __init__(self) -> None:
        self._begin = time.perf_counter()
        _reset_peak()

    def seconds(self) -> float:
        """Since the beginning."""
        return time.perf_counter() - self._begin

    @staticmethod
    def peak_mib() -> int:
        """Largest resident size since the beginning, or of the whole process where its peak cannot be reset."""
        from biqe.evaluate.machine import peak_resident_bytes

        try:
            lines = Path("/proc/self/status").read_text().splitlines()
            return next(int(line.split()[1]) >> 10 for line in lines if line.startswith("VmHWM:"))
        except (OSError, StopIteration, ValueError):
            return peak_resident_bytes() >> 20


def _reset_peak() -> None:
    """Reset the peak memory that Linux records for this process; does nothing where that is not possible."""
    try:
        Path("/proc/self/clear_refs").write_text("5")
    except OSError:
        return
