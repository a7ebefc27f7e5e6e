"""The record of one job: figures, settings, versions, fingerprints, time, memory, machine. Written by program only.

Host names and paths stay out of it: it is made to be shared.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from biqe.benchmarks import registry
from biqe.errors import RunFailed, UnreadableFile
from biqe.graph.whole_folder import cannot_be_read, read_json
from biqe.reproduce.job import Job

FORMAT = "biqe-result"
VERSION = 1


@dataclass(frozen=True)
class Result:
    """What one job found, or why it failed."""

    table: str
    recipe: str
    seed: int
    settings: Mapping[str, Any]
    """The job's own: what decides the figures, defaults included, apart from the seed."""
    state: str = "done"
    """``done`` or ``failed``."""
    reason: str = ""
    figures: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
    """Group, metric, value; ties realistic."""
    ties: Mapping[str, Mapping[str, tuple[float, float]]] = field(default_factory=dict)
    """Group, metric: the value if every tie is lost, and if every tie is won. Where a metric knows ties."""
    reports: Mapping[str, Any] = field(default_factory=dict)
    """What the evaluation wrote, whole."""
    config: Mapping[str, Any] = field(default_factory=dict)
    """All settings of model and training, defaults included."""
    fingerprints: Mapping[str, str] = field(default_factory=dict)
    seconds: Mapping[str, float] = field(default_factory=dict)
    """``train`` over all parts of the run, ``before`` of the training that it started from, ``evaluate``, and
    ``total`` of this process."""
    peak_mib: int = 0
    """Largest resident size of the process during the job, and of an earlier one that did its training."""
    parts: int = 1
    """Parts that the training was done in: 1 if it was never interrupted."""
    versions: Mapping[str, str] = field(default_factory=dict)
    git: Mapping[str, Any] | None = None
    machine: Mapping[str, Any] = field(default_factory=dict)
    finished: str = ""
    """UTC."""

    @property
    def quick(self) -> bool:
        return bool(self.settings.get("quick"))

    def to_json(self) -> dict[str, Any]:
        """Dicts, lists, strings and numbers only."""
        return {"format": FORMAT, "version": VERSION, **asdict(self)}

    @classmethod
    def from_json(cls, data: Any) -> Result:
        """The result that ``to_json`` wrote."""
        if not isinstance(data, dict) or data.get("format") != FORMAT:
            raise UnreadableFile(f"this is not a result: its format must be {FORMAT!r}")
        if data.get("version") != VERSION:
            raise UnreadableFile(f"result version must be {VERSION}. Got {data.get('version')!r}")
        values = {key: value for key, value in data.items() if key not in ("format", "version")}
        try:
            values["ties"] = {
                group: {metric: (float(low), float(high)) for metric, (low, high) in metrics.items()}
                for group, metrics in values.get("ties", {}).items()
            }
            found = cls(**values)
            for name in ("settings", "reports", "config", "seconds"):
                if not isinstance(getattr(found, name), Mapping):
                    raise TypeError(f"{name} must be an object. Got {getattr(found, name)!r:.40}")
            for metrics in found.figures.values():
                for value in metrics.values():
                    float(value)
        except (TypeError, ValueError, AttributeError) as error:
            raise UnreadableFile(f"this is not a whole result: {error}") from error
        if found.state not in ("done", "failed"):
            raise UnreadableFile(f"a result is done or failed. Got {found.state!r}")
        return found


def path_of(results: Path, job: Job) -> Path:
    """Where the result of ``job`` stands."""
    return results / f"{job.name}.json"


def write(result: Result, path: Path) -> None:
    """Write whole or not at all."""
    from biqe.models.store import write_whole

    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        write_whole(path, json.dumps(result.to_json(), indent=1, ensure_ascii=False, allow_nan=False) + "\n")
    except OSError as error:
        raise RunFailed(
            f"cannot write the result to {path}: {error.strerror or error}",
            hint="free some space, then go on with --resume",
        ) from error


def _json(path: Path) -> Any:
    try:
        return read_json(path)
    except OSError as error:
        raise cannot_be_read(path, error) from error


def read(path: Path) -> Result:
    """The result at ``path``."""
    try:
        return Result.from_json(_json(path))
    except ValueError as error:
        raise UnreadableFile(f"{path} cannot be read: {error}") from error
    except UnreadableFile as error:
        raise UnreadableFile(f"{path}: {error.message}") from error


def done_as(path: Path, job: Job) -> bool:
    """Whether ``path`` holds the result of ``job``, made with its settings."""
    if not path.exists():
        return False
    return _is_of(read(path), job)


def made_for_another_row(folder: Path, job: Job) -> Result | None:
    """The result of a row of another table that ranks the same queries with the same model, as one of ``job``."""
    if job.recipe.job != "rank":  # others leave pictures, too
        return None
    for path in sorted(folder.glob(f"*/*/{path_of(folder, job).name}")):
        found = read(path)
        if found.seed == job.seed and _is_of(found, job):
            return replace(found, table=job.recipe.table, recipe=job.recipe.name)
    return None


def _is_of(found: Result, job: Job) -> bool:
    return found.state == "done" and found.settings == job.settings and not of_other_queries(found)


def of_other_queries(result: Result) -> bool:
    """Whether a result of a set that is mined here is of another set than today's."""
    own, today = result.fingerprints.get("benchmark"), registry.queries_of_today(result.settings.get("benchmark", ""))
    return None not in (own, today) and own != today


def read_all(folder: Path) -> list[Result]:
    """All results below ``folder``; other JSON files, such as those of the speed benchmarks, are left out."""
    results: list[Result] = []
    for path in sorted(folder.rglob("*.json")):
        data = _json(path)
        if not isinstance(data, dict):
            raise UnreadableFile(f"{path} is not a result")
        if data.get("format") == FORMAT:
            results.append(read(path))
    return results


def figures_of(report: Mapping[str, Any]) -> tuple[dict[str, dict[str, float]], dict[str, dict[str, Any]]]:
    """Figures and ties of a report in its JSON form: ``all``, and each shape or position by name."""
    figures: dict[str, dict[str, float]] = {}
    ties: dict[str, dict[str, Any]] = {}
    for group, summary in _groups(report):
        metrics = summary["metrics"]
        plain = metrics.get("realistic", metrics)
        figures[group] = {name: float(value) for name, value in plain.items() if value is not None}
        if "pessimistic" in metrics and "optimistic" in metrics:
            lost, won = metrics["pessimistic"], metrics["optimistic"]
            ties[group] = {name: (lost[name], won[name]) for name in figures[group] if name in lost and name in won}
    return figures, ties


def _groups(report: Mapping[str, Any]) -> Iterator[tuple[str, Mapping[str, Any]]]:
    if _is_summary(report.get("overall")):
        yield "all", report["overall"]
    for key in ("by_shape", "by_position"):
        parts = report.get(key)
        for name, part in parts.items() if isinstance(parts, Mapping) else ():
            if _is_summary(part):
                yield name, part


def _is_summary(value: Any) -> bool:
    return isinstance(value, Mapping) and isinstance(value.get("metrics"), Mapping)


def without_places(value: Any, places: Mapping[Path, str]) -> Any:
    """``value`` with the folders of this machine replaced by words, in all strings; long folders first."""
    if isinstance(value, str):
        for place in sorted(places, key=lambda path: -len(str(path))):
            if len(place.parts) > 1:  # not the root of the file system; and no folder whose name only begins alike
                value = re.sub(re.escape(str(place)) + r"(?![\w.-])", places[place], value)
        return value
    if isinstance(value, Mapping):
        return {key: without_places(item, places) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [without_places(item, places) for item in value]
    return value
