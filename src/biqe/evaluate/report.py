"""The record of one evaluation: figures, how they were made, and from what. JSON for programs, a table for people."""

from __future__ import annotations

import dataclasses
import json
import os
import textwrap
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from biqe.errors import InvalidOption, RunFailed, UnreadableFile
from biqe.evaluate.metrics import METRICS
from biqe.evaluate.protocols import Summary
from biqe.models.store import write_whole

FORMAT = "biqe-report"
VERSION = 1
WIDTH = 80
_REASONS = 6


@dataclass(frozen=True)
class Skipped:
    """Queries that were not ranked, for one reason."""

    reason: str
    queries: int
    examples: tuple[int, ...]
    """Numbers of the first few, from 0."""


@dataclass(frozen=True)
class Report:
    """One model on one query set under one protocol. Figures are printed realistic and stored for all tie rules."""

    protocol: str
    protocol_version: int
    model: str
    filter_graph: str
    """Where the other true values of a target come from: ``complete``, ``split`` or ``reach``."""
    overall: Summary
    """Over all ranked targets: the figure to compare with published ones."""
    macro: Summary
    """Each query's mean first, then the mean over queries."""
    by_position: Mapping[str, Summary]
    by_kind: Mapping[str, Summary]
    by_targets: Mapping[str, Summary]
    """By number of ranked targets in the query."""
    counts: Mapping[str, int]
    """``queries`` and ``targets`` asked, ``ranked_queries`` and ``ranked_targets``, ``targets_without_gold``."""
    skipped: tuple[Skipped, ...] = ()
    settings: Mapping[str, Any] = field(default_factory=dict)
    fingerprints: Mapping[str, str] = field(default_factory=dict)
    """Of the query set, and of vocabulary, graph and model where the caller gave them."""
    notes: Mapping[str, Any] = field(default_factory=dict)
    """What the caller adds: names of folders, what a reader left out."""
    seconds: float = 0.0
    queries_per_second: float = 0.0
    versions: Mapping[str, str] = field(default_factory=dict)

    @property
    def metrics(self) -> dict[str, dict[str, float]]:
        """Figures over all targets by tie rule and metric: ``report.metrics["realistic"]["mrr"]``."""
        return self.overall.metrics

    def value(self, name: str, tie_rule: str = "realistic") -> float:
        """One figure over all targets: ``mrr``, ``hits@1``, ``hits@3`` or ``hits@10``."""
        try:
            return self.overall.metrics[tie_rule][name]
        except KeyError:
            allowed = f"metrics {', '.join(METRICS)}; tie rules {', '.join(self.overall.metrics)}"
            raise InvalidOption(f"a report has no {tie_rule} {name!r}; it has {allowed}") from None

    def to_json(self) -> dict[str, Any]:
        """The report as dicts, lists, strings and numbers only."""
        return {"format": FORMAT, "version": VERSION, **_plain(self)}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Report:
        """The report that ``to_json`` wrote."""
        if data.get("format") != FORMAT:
            raise UnreadableFile(f"this is not a report: its format must be {FORMAT!r}. Got {data.get('format')!r}")
        if data.get("version") != VERSION:
            raise UnreadableFile(f"report version must be {VERSION}. Got {data.get('version')!r}")
        values = {key: value for key, value in data.items() if key not in ("format", "version")}
        for name in ("overall", "macro"):
            values[name] = _summary(values[name])
        for name in ("by_position", "by_kind", "by_targets"):
            values[name] = {key: _summary(part) for key, part in values[name].items()}
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
            data = json.loads(Path(path).read_text(encoding="utf-8"))
        except (OSError, ValueError) as error:
            raise UnreadableFile(f"{path} cannot be read as a report: {error}") from error
        try:
            return cls.from_json(data)
        except UnreadableFile as error:
            raise UnreadableFile(f"{path}: {error.message}") from error
        except (AttributeError, KeyError, TypeError, ValueError) as error:
            raise UnreadableFile(f"{path} is not a whole report: {type(error).__name__} {error}") from error

    def to_table(self) -> str:
        """Plain text of at most 80 columns: realistic figures, what was left out, how it was made."""
        return "\n".join(line.rstrip() for line in self._lines()) + "\n"

    def _lines(self) -> Iterator[str]:
        level = self.settings.get("level", 0.95)
        interval = f"{100 * level:g}% interval"
        yield from _wrapped(
            f"{self.model}, protocol {self.protocol} version {self.protocol_version}, filters from the "
            f"{_FILTERS.get(self.filter_graph, self.filter_graph)}"
        )
        yield ""
        yield f"{'':<20}{'targets':>9}{'MRR':>8}  {interval:<14}{'HITS@1':>8}{'HITS@3':>8}{'HITS@10':>9}"
        yield _row("all targets", self.overall)
        for name, summary in self.by_position.items():
            yield _row(f"  {name}", summary)
        if len(self.by_kind) > 1:
            for name, summary in self.by_kind.items():
                yield _row(f"  {name} queries", summary)
        if len(self.by_targets) > 1:
            for name, summary in self.by_targets.items():
                yield _row(f"  {name} target{'s' if name != '1' else ''}", summary)
        yield _row("mean of query means", self.macro)
        yield ""
        worst, best = (self.overall.metrics[rule]["mrr"] for rule in ("pessimistic", "optimistic"))
        yield from _wrapped(f"ties realistic; MRR is {worst:.4f} if every tie is lost and {best:.4f} if won")
        yield from _wrapped(
            f"ranked {self.counts['ranked_targets']:,} of {self.counts['targets']:,} targets in "
            f"{self.counts['ranked_queries']:,} of {self.counts['queries']:,} queries, {self.seconds:.1f} s, "
            f"{self.queries_per_second:,.0f} queries/s"
        )
        if self.counts.get("targets_without_gold"):
            yield from _wrapped(f"not ranked: {self.counts['targets_without_gold']:,} targets without a gold entity")
        for part in self.skipped[:_REASONS]:
            yield from _wrapped(f"skipped: {part.queries:,} queries, {part.reason}")
        if len(self.skipped) > _REASONS:
            rest = sum(part.queries for part in self.skipped[_REASONS:])
            yield f"skipped: {rest:,} queries for {len(self.skipped) - _REASONS:,} more reasons, listed in the JSON"
        for reason, count in self.notes.get("left_out", {}).items():
            yield from _wrapped(f"left out on reading: {count:,} × {reason}")


_FILTERS = {
    "complete": "complete graph (train + valid + test)",
    "split": "split's own graph",
    "reach": "complete graph by reachability from the source alone",
}


def _row(name: str, summary: Summary) -> str:
    figures = summary.metrics["realistic"]
    low, high = summary.intervals.get("mrr", (None, None))
    interval = "" if low is None else f"{low:.3f} - {high:.3f}"
    return (
        f"{name:<20}{summary.targets:>9,}{figures['mrr']:>8.3f}  {interval:<14}"
        f"{figures['hits@1']:>8.3f}{figures['hits@3']:>8.3f}{figures['hits@10']:>9.3f}"
    )


def _wrapped(text: str) -> list[str]:
    return textwrap.wrap(text, WIDTH, subsequent_indent="  ")


def _plain(value: Any) -> Any:
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {item.name: _plain(getattr(value, item.name)) for item in dataclasses.fields(value)}
    if isinstance(value, Mapping):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(item) for item in value]
    return value


def _summary(data: Mapping[str, Any]) -> Summary:
    intervals = {metric: (low, high) for metric, (low, high) in data["intervals"].items()}
    return Summary(data["queries"], data["targets"], data["metrics"], intervals)
