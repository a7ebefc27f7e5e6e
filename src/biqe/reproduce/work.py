"""What a job does: train a model, or go on with its training, and then what its recipe says: rank by the benchmark's
protocol, predict one target at a time, look at attention; or, without a model, count a mined set. WORK lists these."""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from biqe import benchmarks
from biqe.benchmarks.anycq import TupleQuestions
from biqe.benchmarks.shaped import ShapedQueries
from biqe.errors import InvalidOption
from biqe.evaluate import pictures
from biqe.evaluate.attention import attention_shares, heat_map, query_attention
from biqe.evaluate.loop import evaluate, evaluate_together, fingerprint
from biqe.evaluate.missing_links import MissingLinks
from biqe.evaluate.one_at_a_time import OneAtATime, one_at_a_time
from biqe.evaluate.protocols import Cq, protocol_named
from biqe.evaluate.qar import QarReport, evaluate_split, exact_figures
from biqe.evaluate.scoring import Progress, sample
from biqe.evaluate.timing import time_per_query
from biqe.graph import folder as graph_folder
from biqe.graph.knowledge_graph import Graph
from biqe.graph.triples import union
from biqe.mine.statistics import split_statistics
from biqe.models import store
from biqe.models._contract import QueryModel, SolvesOtherwise, use_graph
from biqe.models._device import device_named
from biqe.models.store import LoadedModel
from biqe.query.bound import BoundQuery, QuerySet
from biqe.reproduce.job import Job
from biqe.reproduce.result import figures_of
from biqe.training import checkpoint, session
from biqe.training.adapt import adapted
from biqe.training.loop import Listener
from biqe.training.run import Run

if TYPE_CHECKING:
    from biqe.benchmarks import OpenBenchmark
    from biqe.evaluate.report import Report

NOTHING_TO_LEARN = ("betae", "qar")
"""Protocols whose benchmarks have no training queries here."""
TRAINING_SAMPLE = 1000
"""Training queries that are ranked to see how much is memorised."""
TIMED, TIMED_BATCH = 200, 100
"""Queries that are timed one by one, and at most of each shape or kind in batches."""
STATISTICS = ("triples", "paths", "dags", "average_masks", "average_targets", "average_length", "average_characters")


@dataclass
class Outcome:
    """What a job found."""

    figures: dict[str, dict[str, float]] = field(default_factory=dict)
    ties: dict[str, dict[str, Any]] = field(default_factory=dict)
    reports: dict[str, Any] = field(default_factory=dict)
    fingerprints: dict[str, str] = field(default_factory=dict)
    config: dict[str, Any] = field(default_factory=dict)
    seconds: dict[str, float] = field(default_factory=dict)
    parts: int = 1
    peak_mib: int = 0
    """Largest resident size during the training, also where an earlier process did it."""
    files: dict[str, bytes] = field(default_factory=dict)
    """Pictures by file extension; they are written beside the result."""

    def add(self, name: str, report: Report | OneAtATime, prefix: str = "") -> None:
        """Take over the figures of a report; with ``prefix``, its groups are ``prefix`` and ``prefix group``."""
        plain = report.to_json()
        figures, ties = figures_of(plain)
        for target, found in ((self.figures, figures), (self.ties, ties)):
            for group, metrics in found.items():
                key = group if not prefix else prefix if group == "all" else f"{prefix} {group}"
                target[key] = dict(metrics)
        self.reports[name] = plain
        self.fingerprints = {**plain.get("fingerprints", {}), **self.fingerprints}  # the first report's go before


def work(job: Job, desk: Desk) -> Outcome:
    """Train what ``job`` needs and do it."""
    opened = desk.benchmark(job.recipe.benchmark)
    outcome = Outcome(
        fingerprints={
            "benchmark": opened.fingerprint,
            "graph": opened.splits.fingerprint,
            "vocabulary": opened.splits.vocabulary.fingerprint,
        }
    )
    if job.recipe.job in UNTRAINED:
        UNTRAINED[job.recipe.job](job, opened, outcome)
        return outcome
    opened.queries(job.split)  # refused before an hour of training, not after it, where there are none
    trained = train(job, desk)
    outcome.config, outcome.parts, outcome.peak_mib = trained.config, trained.parts, trained.peak_mib
    outcome.seconds["train"] = round(trained.seconds, 1)
    if job.before is not None or trained.before:
        outcome.seconds["before"] = round(trained.before, 1)
    begin = time.perf_counter()
    desk.watcher.doing("evaluating")
    model = solved_as_asked(job, trained.loaded.model)
    if model is not trained.loaded.model:
        trained = replace(trained, loaded=replace(trained.loaded, model=model))
        outcome.config = {**outcome.config, "model": asdict(model.config)}
    use_graph(model, _known(opened, job.split))
    WORK[job.recipe.job](job, opened, trained, outcome, desk.watcher.ranked)
    outcome.seconds["evaluate"] = round(time.perf_counter() - begin, 1)
    return outcome


def solved_as_asked(job: Job, model: Any) -> Any:
    """``model`` with the recipe's options of solving. The end of a training chooses what ranks held-out questions best,
    links alone perhaps; a row is what its recipe says. What ``biqe train GRAPH`` makes is left as it came out."""
    if not isinstance(model, SolvesOtherwise) or job.train.get("links_minutes"):
        return model
    asked = job.settings["model_config"]
    own = {name: asked[name] for name in model.solving_options if name in asked}
    return model.solving(**{**own, **job.recipe.solving})


def _rank(job: Job, opened: OpenBenchmark, trained: Trained, outcome: Outcome, progress: Progress) -> None:
    """Rank the split's queries by the benchmark's own protocol."""
    model, asked = trained.loaded.model, opened.queries(job.split)
    if isinstance(asked, TupleQuestions):
        _add_tuples(evaluate_split(model, _asked(job, opened), opened, job.split, progress=progress), outcome)
        return
    if isinstance(asked, ShapedQueries):
        questions = _asked(job, opened)
        missing = MissingLinks.of_split(opened.splits, job.split) if opened.protocol == "betae" else None
        protocol = protocol_named(opened.protocol, candidates=opened.candidates, missing=missing)
        outcome.add(opened.protocol, evaluate(model, questions, protocol, progress=progress))
        if opened.protocol != "betae":  # fourteen shapes: timing them would take as long as ranking
            _time(job, sample(questions, TIMED_BATCH), model, outcome, "all")
        return
    queries = _targets(job, opened)
    protocols = [Cq(filter_graph) for filter_graph in job.recipe.filters]
    for found in evaluate_together(model, queries, protocols, progress=progress):
        outcome.add(f"cq-{found.filter_graph}", found, found.filter_graph)
    _time(job, sample(queries, TIMED_BATCH), model, outcome, job.recipe.filters[0])
    learnt = opened.train_queries()
    if isinstance(learnt, QuerySet) and "complete" in learnt.filters:
        learnt = sample(learnt, min(TRAINING_SAMPLE, job.sample or TRAINING_SAMPLE))
        outcome.add("training", evaluate(model, learnt, Cq("complete")), "training")


def _time(job: Job, queries: QuerySet | ShapedQueries, model: QueryModel, outcome: Outcome, group: str) -> None:
    """Milliseconds a query, alone and in a batch, as figures of ``group``."""
    singles = TIMED if job.sample is None else min(TIMED, job.sample)
    timing = time_per_query(model, queries, singles=singles)
    outcome.figures[group] |= {"ms_per_query": timing.single_mean_ms, "ms_in_batch": timing.batched_ms}
    outcome.reports["timing"] = timing.to_json()


def _one_at_a_time(job: Job, opened: OpenBenchmark, trained: Trained, outcome: Outcome, progress: Progress) -> None:
    """Rank targets from the source on, each with the predictions before it filled in."""
    queries = _targets(job, opened)
    for filter_graph in job.recipe.filters:
        found = one_at_a_time(trained.loaded.model, queries, filter_graph=filter_graph, progress=progress)
        outcome.add(f"one-at-a-time-{filter_graph}", found, filter_graph)
    outcome.fingerprints["queries"] = fingerprint(queries)


def _attention(job: Job, opened: OpenBenchmark, trained: Trained, outcome: Outcome, progress: Progress) -> None:
    """Share of attention on what is neither ancestor nor descendant, and a picture of one query."""
    queries = _targets(job, opened)
    model = trained.loaded.model
    found = attention_shares(model, queries)
    outcome.figures["all"] = {
        name: getattr(found, name) for name in ("outside", "outside_where_any", "uniform", "uniform_where_any")
    }
    outcome.fingerprints["queries"] = fingerprint(queries)
    outcome.reports["attention"] = found.to_json()
    if pictures.installed():
        shown = query_attention(model, _most_targets(queries), opened.splits.vocabulary)
        title = f"attention of {', '.join(shown.targets)}"
        outcome.files = {form: pictures.render(lambda: heat_map(shown), form, title) for form in pictures.FORMATS}


def _most_targets(queries: QuerySet) -> BoundQuery:
    """The first query with the most targets among the first few: a picture of one target shows little."""
    few = range(min(100, len(queries)))
    return max((queries[row] for row in few), key=lambda query: len(query.targets))


def _add_tuples(report: QarReport, outcome: Outcome) -> None:
    """Take over the figures of protocol qar."""
    for name, group in report.groups.items():
        outcome.figures[name] = dict(group["ours"])
    outcome.figures["all"]["ms_per_query"] = 1000 * report.median_seconds
    outcome.reports["qar"] = report.to_json()
    outcome.fingerprints = {**report.fingerprints, **outcome.fingerprints}


def _exact(job: Job, opened: OpenBenchmark, outcome: Outcome) -> None:
    """What the graph that is given answers by itself, without a prediction."""
    asked = _asked(job, opened)
    if not isinstance(asked, TupleQuestions):
        raise InvalidOption(f"job exact returns tuples; {opened.name} ranks answers that the graph does not hold")
    outcome.figures = exact_figures(_known(opened, job.split), asked)
    outcome.fingerprints["queries"] = fingerprint(asked)


def _statistics(job: Job, opened: OpenBenchmark, outcome: Outcome) -> None:
    """Count the mined queries of every split."""
    found = {"train": opened.train_queries(), "valid": opened.queries("valid"), "test": opened.queries("test")}
    for split, queries in found.items():
        if not isinstance(queries, QuerySet):
            raise InvalidOption(f"{opened.name} has no mined queries in its {split} split to count")
        triples = opened.splits.train if split == "train" else None
        counted = split_statistics(queries, opened.splits.vocabulary, triples).to_dict()
        outcome.figures[split] = {
            name: float(counted[name])  # type: ignore[arg-type]
            for name in STATISTICS
            # A zero in the first three rows is a dash in the paper.
            if counted[name] or name.startswith("average")
        }
        outcome.reports[split] = counted


WORK: dict[str, Callable[[Job, OpenBenchmark, Trained, Outcome, Progress], None]] = {
    "rank": _rank,
    "one-at-a-time": _one_at_a_time,
    "attention": _attention,
}
UNTRAINED: dict[str, Callable[[Job, OpenBenchmark, Outcome], None]] = {"exact": _exact, "statistics": _statistics}
"""By the recipe's ``job``."""


def _asked(job: Job, opened: OpenBenchmark) -> Any:
    found = opened.queries(job.split)
    return found if job.sample is None else sample(found, job.sample)


def _targets(job: Job, opened: OpenBenchmark) -> QuerySet:
    queries = _asked(job, opened)
    if not isinstance(queries, QuerySet):
        raise InvalidOption(
            f"job {job.recipe.job} needs queries with several targets; {opened.name} has none",
            hint="name a CQ or Paths benchmark in the recipe",
        )
    return queries


def _known(opened: OpenBenchmark, split: str) -> Graph:
    """The triples that are known when the questions of ``split`` are asked: those of the splits before it, which also
    decide which answers are hard. ``biqe evaluate`` does the same."""
    if split == "valid":
        return opened.splits["train"]
    return Graph(opened.splits.vocabulary, union(opened.splits.train, opened.splits.valid))


# Folders, benchmarks and trainings that jobs share


@dataclass(frozen=True)
class Places:
    """The folders of this machine."""

    work: Path
    """Queue, graph folders and training runs."""
    results: Path
    data: Path | None = None
    """Benchmark files; None where the benchmarks find them by themselves."""

    device: str = "cpu"
    """Where models compute."""

    @property
    def words(self) -> dict[Path, str]:
        """Words that stand for the folders of this machine in a result."""
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
    """Seconds of training, over all parts of the run."""
    parts: int
    before: float = 0.0
    """Seconds of the training that it started from, or of its own link predictor."""
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
            rest = session.resume(folder, graph=str(graph), device=desk.places.device, listener=desk.watcher)
            _stop_if_interrupted(rest.reason)
    else:
        if folder.exists():  # a kill while the folder was being made; nothing was trained in it
            shutil.rmtree(folder)
        desk.watcher.doing("training")
        options, settings = job.model_config, job.train
        if settings.get("links_minutes"):  # the plain command
            own_options, own_settings = adapted(job.recipe.model, len(opened.splits.train), settings["minutes"])
            options, settings = {**own_options, **options}, {**own_settings, **settings}
        result = session.start(
            str(graph),
            folder,
            train_config=session.settings(job.recipe.model, seed=job.seed, **settings),
            # Benchmarks that bring nothing to learn from are trained for as any graph is.
            query_set=None if opened.protocol in NOTHING_TO_LEARN else job.recipe.benchmark,
            data=desk.places.data,
            model=job.recipe.model,
            model_options=options,
            start_from=None if before is None else before.run.folder,
            device=desk.places.device,
            listener=desk.watcher,
        )
        _stop_if_interrupted(result.reason)
    run = Run.open(folder)
    events = run.trace()
    first = [] if not run.links_folder.is_dir() else Run.open(run.links_folder).trace()  # the plain command's own links
    return Trained(
        run,
        store.load(run.model_folder, device_named(desk.places.device)),
        _seconds(events),
        1 + sum(event.get("event") == "resumed" for event in events),
        _seconds(first) if before is None else before.seconds,
        max((int(event.get("peak_resident_mib", 0)) for event in [*first, *events]), default=0),
    )


def _seconds(events: Sequence[Mapping[str, Any]]) -> float:
    return max((float(event.get("seconds", 0.0)) for event in events), default=0.0)


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
