"""The record of one evaluation: figures, how they were made, and from what. JSON for programs, a table for people."""

from __future__ import annotations

import dataclasses
import json
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryFile
from typing import Any

from biqe.errors import InvalidOption, RunFailed, UnreadableFile
from biqe.evaluate.protocol import Summary
from biqe.evaluate.scoring import Skipped
from biqe.evaluate.text_table import lines
from biqe.graph.whole_folder import read_json
from biqe.models.store import write_whole

FORMAT = "biqe-report"
VERSION = 1


@dataclass(frozen=True)
class Report:
    """One model on one query set under one protocol. Figures are printed realistic and stored for all tie rules."""

    protocol: str
    """``cq``, ``q2b`` or ``bio``."""
    protocol_version: int
    model: str
    filter_graph: str
    """Where the other true values of a target come from: ``complete``, ``split`` or ``reach`` in ``cq``;
    ``answers``, all other answers of the question, in ``q2b``; ``none`` in ``bio``, which samples negatives."""
    overall: Summary
    """The figure to compare with published ones: over all ranked targets in ``cq``, the mean over ``mean_over`` in
    ``q2b`` and ``bio``."""
    macro: Summary | None = None
    """In ``cq``: each query's mean first, then the mean over queries."""
    by_position: Mapping[str, Summary] = field(default_factory=dict)
    by_kind: Mapping[str, Summary] = field(default_factory=dict)
    by_targets: Mapping[str, Summary] = field(default_factory=dict)
    """By number of ranked targets in the query."""
    by_shape: Mapping[str, Summary] = field(default_factory=dict)
    """In ``q2b`` and ``bio``, in the order of the benchmark's table."""
    by_missing: Mapping[str, Summary] = field(default_factory=dict)
    """By the number of missing links that an answer needs: ``0``, ``1``, ``2``, ``3+``. Empty where no graph said
    which links are stored."""
    mean_over: tuple[str, ...] = ()
    """The entries of ``by_shape`` that ``overall`` is the mean of."""
    counts: Mapping[str, int] = field(default_factory=dict)
    """``queries`` and ``targets`` asked, ``ranked_queries`` and ``ranked_targets``, ``targets_without_gold``."""
    skipped: tuple[Skipped, ...] = ()
    settings: Mapping[str, Any] = field(default_factory=dict)
    fingerprints: Mapping[str, str] = field(default_factory=dict)
    """Of the query set, and of vocabulary, graph and model where the caller gave them."""
    notes: Mapping[str, Any] = field(default_factory=dict)
    """What the caller adds: names of folders, what a reader left out."""
    seconds: float = 0.0
    queries_per_second: float = 0.0
    machine: Mapping[str, Any] = field(default_factory=dict)
    """Processor, threads, allocator, largest memory."""
    versions: Mapping[str, str] = field(default_factory=dict)

    @property
    def metrics(self) -> dict[str, dict[str, float]]:
        """Headline figures by tie rule and metric: ``report.metrics["realistic"]["mrr"]``."""
        return self.overall.metrics

    def value(self, name: str, tie_rule: str = "realistic") -> float:
        """One headline figure by name: ``mrr`` or ``hits@10``, ``auc`` in ``bio``."""
        try:
            return self.overall.metrics[tie_rule][name]
        except KeyError:
            held = ", ".join(self.overall.metrics["realistic"])
            allowed = f"metrics {held}; tie rules {', '.join(self.overall.metrics)}"
            raise InvalidOption(f"a report has no {tie_rule} {name!r}; it has {allowed}") from None

    def to_json(self) -> dict[str, Any]:
        """The report as dicts, lists, strings and numbers only."""
        return {"format": FORMAT, "version": VERSION, **plain(self)}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Report:
        """The report that ``to_json`` wrote."""
        if data.get("format") != FORMAT:
            raise UnreadableFile(f"this is not a report: its format must be {FORMAT!r}. Got {data.get('format')!r}")
        if data.get("version") != VERSION:
            raise UnreadableFile(f"report version must be {VERSION}. Got {data.get('version')!r}")
        values = {key: value for key, value in data.items() if key not in ("format", "version")}
        values["overall"] = _summary(values["overall"])
        if values["macro"] is not None:
            values["macro"] = _summary(values["macro"])
        for name in ("by_position", "by_kind", "by_targets", "by_shape", "by_missing"):
            values[name] = {key: _summary(part) for key, part in values.get(name, {}).items()}
        values["mean_over"] = tuple(values["mean_over"])
        values["skipped"] = tuple(
            Skipped(part["reason"], part["queries"], tuple(part["examples"])) for part in values["skipped"]
        )
        return cls(**values)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write JSON to ``path``; an older report there stays whole until the new one is complete."""
        path = Path(path)
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            write_whole(path, json.dumps(self.to_json(), indent=2, ensure_ascii=False) + "\n")
        except OSError as error:
            raise RunFailed(
                f"the report could not be written to {path}: {error.strerror or error}",
                hint="choose another place with --out, or free some space",
            ) from error

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Report:
        """The report that ``save`` wrote."""
        try:
            data = read_json(Path(path), 1 << 30)
        except OSError as error:
            raise UnreadableFile(f"{path} cannot be read as a report: {error}") from error
        try:
            return cls.from_json(data)
        except UnreadableFile as error:
            raise UnreadableFile(f"{path}: {error.message}") from error
        except (AttributeError, KeyError, TypeError, ValueError) as error:
            raise UnreadableFile(f"{path} is not a whole report: {type(error).__name__} {error}") from error

    def to_table(self) -> str:
        """Plain text of at most 80 columns: realistic figures, what was left out, how it was made."""
        return "\n".join(line.rstrip() for line in lines(self)) + "\n"


def check_target(path: str | os.PathLike[str]) -> None:
    """InvalidOption unless a report may be written to ``path``: a new file, or one that takes an older report's place.

    Asked before the ranking, which may take hours.
    """
    path = Path(path)
    if path.is_dir():
        raise InvalidOption(
            f"the report cannot be written to {path}: it is a folder",
            hint=f"name a file, such as --out {path / 'report.json'}",
        )
    if os.path.lexists(path) and queries_of(path) is None:
        raise InvalidOption(
            f"{path} exists and is not a report of biqe; nothing was overwritten",
            hint="choose another file with --out, or move that one away",
        )
    above = next(folder for folder in path.absolute().parents if os.path.lexists(folder))
    try:
        with TemporaryFile(dir=above):
            pass
    except OSError as error:
        raise InvalidOption(
            f"the report cannot be written to {path}: {above}: {error.strerror or error}",
            hint="choose another place with --out",
        ) from error


def queries_of(path: Path) -> str | None:
    """Fingerprint of the queries that the report in ``path`` is about; None if it is no report."""
    try:
        if not path.is_file():
            return None
        with open(path, encoding="utf-8") as file:
            if not file.read(1000).lstrip().startswith("{"):  # no JSON object: perhaps a large file of another kind
                return None
            file.seek(0)
            data = json.load(file)
    except (OSError, ValueError, RecursionError):
        return None
    if data.get("format") != FORMAT:
        return None
    fingerprints = data.get("fingerprints")
    return str(fingerprints.get("queries", "")) if isinstance(fingerprints, dict) else ""


def plain(value: Any) -> Any:
    """A dataclass, and what it holds, as dicts, lists, strings and numbers only."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {item.name: plain(getattr(value, item.name)) for item in dataclasses.fields(value)}
    if isinstance(value, Mapping):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(item) for item in value]
    if hasattr(value, "tolist"):  # an array, or one number of it
        return value.tolist()
    return value


def _summary(data: Mapping[str, Any]) -> Summary:
    intervals = {metric: (low, high) for metric, (low, high) in data["intervals"].items()}
    return Summary(data["queries"], data["targets"], data["metrics"], intervals)
