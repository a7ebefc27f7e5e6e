"""Results beside published figures: means and deviations over seeds, and the rows that nobody has run.

Only results with equal settings and by the same version of a protocol are averaged; quick ones stand apart from real
ones.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from biqe.reproduce import recipe as recipes
from biqe.reproduce.job import Job, digest
from biqe.reproduce.recipe import Recipe, Table
from biqe.reproduce.result import Result, figures_of, read_all


@dataclass(frozen=True)
class Ours:
    """Results of one recipe with equal settings, one a seed."""

    settings: Mapping[str, Any]
    seeds: tuple[int, ...]
    mean: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
    deviation: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
    """Standard deviation over the seeds (n - 1); empty with one seed."""
    train_seconds: float = 0.0
    """Mean over the seeds."""
    before_seconds: float | None = None
    """Of the training that each started from."""
    peak_mib: int = 0
    """The largest."""
    filter_negatives: bool | None = None
    """Whether true answers were kept out of sampled negatives; None for models without such an option."""
    failed: tuple[tuple[int, str], ...] = ()
    """Seeds that failed, and why."""
    older_protocols: tuple[str, ...] = ()
    """Protocols that have changed since, each with the version that the figures are by."""
    changed: Mapping[str, Any] = field(default_factory=dict)
    """Options of model and training, but for its length, that are not what the recipe asks for today."""

    @property
    def quick(self) -> bool:
        return bool(self.settings.get("quick"))

    @property
    def budget(self) -> str:
        """How long each was trained, in words."""
        return recipes.budget(self.settings.get("train", {}))


@dataclass(frozen=True)
class Block:
    """One recipe: what was published, and what we found, if anything, by the recipe as it stands first."""

    recipe: Recipe
    ours: tuple[Ours, ...]

    @property
    def real(self) -> Ours | None:
        """Our figures by the recipe as it stands, or, where there are none, by other defaults, budget or split."""
        # Where all queries were ranked, a sample of them says nothing more.
        done = sorted(
            (ours for ours in self.ours if not ours.quick), key=lambda ours: bool(ours.settings.get("sample"))
        )
        if len(done) < 2:
            return next(iter(done), None)
        today, given = Job(self.recipe, 0).run_settings.items(), dict(self.recipe.train).items()
        current = [ours for ours in done if all(ours.settings.get(key) == value for key, value in today)]
        plain = [ours for ours in done if all(ours.settings.get("train", {}).get(k) == v for k, v in given)]
        return min([*current, *plain, *done], key=lambda ours: bool(ours.older_protocols))


@dataclass(frozen=True)
class View:
    """A table with its blocks."""

    table: Table
    blocks: tuple[Block, ...]


@dataclass(frozen=True)
class Lone:
    """A report of ``biqe evaluate`` that belongs to no table."""

    name: str
    model: str
    filter_graph: str
    figures: Mapping[str, float]
    queries: int | None
    budget: str
    train_seconds: float | None


def view(table: Table, results: Iterable[Result], *, quick: bool | None = None) -> View:
    """The table with all results of it; ``quick`` chooses real or quick ones alone."""
    own = [r for r in results if r.table == table.name and (quick is None or r.quick == quick)]
    return View(table, tuple(_block(recipe, [r for r in own if r.recipe == recipe.name]) for recipe in table.recipes))


def views(folder: Path, *, quick: bool | None = None) -> tuple[list[View], list[Lone]]:
    """All tables with the results below ``folder``, and the reports that stand alone."""
    results, reports = read_all(folder)
    return (
        [view(recipes.load(name), results, quick=quick) for name in recipes.names()],
        [_lone(name, report) for name, report in reports.items()],
    )


def mean_and_deviation(values: Sequence[float]) -> tuple[float, float | None]:
    """Mean, and standard deviation of a sample (n - 1); None for a single value.

    >>> mean_and_deviation([1.0, 3.0])
    (2.0, 1.4142135623730951)
    """
    mean = math.fsum(values) / len(values)
    if len(values) < 2:
        return mean, None
    return mean, math.sqrt(math.fsum((value - mean) ** 2 for value in values) / (len(values) - 1))


def _block(recipe: Recipe, results: Sequence[Result]) -> Block:
    found = tuple(replace(ours, changed=_changed(recipe, ours)) for ours in _groups(results))
    real = Block(recipe, found).real
    return Block(recipe, tuple(sorted(found, key=lambda ours: ours is not real)))


def _changed(recipe: Recipe, ours: Ours) -> dict[str, Any]:
    if recipe.model is None:
        return {}
    today = Job(recipe, 0, ours.quick).settings
    return {
        name: value
        for part in ("model_config", "train")
        for name, value in sorted(ours.settings.get(part, {}).items())
        if name not in ("minutes", "epochs") and value != today[part].get(name)
    }


def _groups(results: Sequence[Result]) -> tuple[Ours, ...]:
    """Results by settings, defaults included, and versions of protocols; real ones first."""
    alike: dict[tuple[str, ...], tuple[Mapping[str, Any], list[Result]]] = {}
    for result in sorted(results, key=lambda r: (r.quick, r.seed)):
        settings = result.all_settings
        alike.setdefault((digest(settings), *result.older_protocols), (settings, []))[1].append(result)
    return tuple(_average(settings, group) for settings, group in alike.values())


def _average(settings: Mapping[str, Any], results: Sequence[Result]) -> Ours:
    done = [result for result in results if result.state == "done"]
    mean: dict[str, dict[str, float]] = {}
    deviation: dict[str, dict[str, float]] = {}
    for group, metric in dict.fromkeys((g, m) for r in done for g, metrics in r.figures.items() for m in metrics):
        # A figure that one of the seeds lacks would be a mean over fewer of them than the table says.
        values = [r.figures[group][metric] for r in done if metric in r.figures.get(group, {})]
        if len(values) < len(done):
            continue
        centre, spread = mean_and_deviation(values)
        mean.setdefault(group, {})[metric] = centre
        if spread is not None:
            deviation.setdefault(group, {})[metric] = spread
    return Ours(
        settings=settings,
        seeds=tuple(result.seed for result in done),
        mean=mean,
        deviation=deviation,
        train_seconds=math.fsum(r.seconds.get("train", 0.0) for r in done) / len(done) if done else 0.0,
        before_seconds=math.fsum(r.seconds["before"] for r in done) / len(done)
        if done and all("before" in r.seconds for r in done)
        else None,
        peak_mib=max((r.peak_mib for r in done), default=0),
        filter_negatives=(done[0].config.get("model") or {}).get("filter_negatives") if done else None,
        failed=tuple((r.seed, r.reason) for r in results if r.state == "failed"),
        older_protocols=results[0].older_protocols,
    )


def _lone(name: str, report: Mapping[str, Any]) -> Lone:
    figures, _ = figures_of(report)
    notes = report.get("notes") or {}
    training = notes.get("training") or {}
    return Lone(
        name,
        str(report.get("model", "-")),
        str(report.get("filter_graph") or "-"),
        figures.get("all", {}),
        (report.get("counts") or {}).get("ranked_queries"),
        recipes.budget(training.get("settings") or {}),
        training.get("seconds"),
    )
