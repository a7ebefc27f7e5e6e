"""A report as a text table of at most 80 columns: one row a group, what was left out below."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from biqe.evaluate.protocol import Summary
from biqe.evaluate.protocols import CONJUNCTIVE, PROTOCOLS, Cq

if TYPE_CHECKING:
    from biqe.evaluate.report import Report

WIDTH = 80
_REASONS = 6
"""Reasons for skipping queries that are listed; the JSON has all."""
_FILTERS = {
    "complete": "filters from the complete graph (train + valid + test)",
    "split": "filters from the split's own graph",
    "reach": "filters from the complete graph by reachability from the source alone",
    "answers": "every other answer of a question filtered",
    "none": "sampled negatives of the answer's type",
}


def lines(report: Report) -> Iterator[str]:
    """The table, line by line."""
    protocol = PROTOCOLS.get(report.protocol, Cq)
    filters = _FILTERS.get(report.filter_graph, f"filters from the {report.filter_graph} graph")
    yield from _wrapped(f"{report.model}, protocol {report.protocol} version {report.protocol_version}, {filters}")
    if report.notes.get("limit"):
        yield from _wrapped(f"a sample of at most {report.notes['limit']:,} questions a shape: for a quick look")
    yield ""
    metrics = sorted(report.overall.metrics["realistic"], key=lambda name: name != protocol.headline)
    yield from _shapes(report, protocol.ranked, metrics) if report.by_shape else _targets(report, metrics)
    yield ""
    headline = metrics[0]
    worst, best = (report.overall.metrics[rule][headline] for rule in ("pessimistic", "optimistic"))
    yield from _wrapped(f"ties realistic; {headline.upper()} is {worst:.4f} if every tie is lost and {best:.4f} if won")
    counts = report.counts
    yield from _wrapped(
        f"ranked {counts['ranked_targets']:,} of {counts['targets']:,} {protocol.ranked} in "
        f"{counts['ranked_queries']:,} of {counts['queries']:,} queries, {report.seconds:.1f} s, "
        f"{report.queries_per_second:,.0f} queries/s"
    )
    yield from _left_out(report)


def _targets(report: Report, metrics: Sequence[str]) -> Iterator[str]:
    """Rows of protocol ``cq``."""
    yield _head(report, "", ("targets",), metrics)
    yield _row("all targets", report.overall, (report.overall.targets,), metrics)
    groups = [(f"  {name}", summary) for name, summary in report.by_position.items()]
    if len(report.by_kind) > 1:
        groups += [(f"  {name} queries", summary) for name, summary in report.by_kind.items()]
    if len(report.by_targets) > 1:
        groups += [(f"  {n} target{'s' if n != '1' else ''}", summary) for n, summary in report.by_targets.items()]
    if report.macro is not None:
        groups.append(("mean of query means", report.macro))
    for name, summary in groups:
        yield _row(name, summary, (summary.targets,), metrics)


def _shapes(report: Report, ranked: str, metrics: Sequence[str]) -> Iterator[str]:
    """Rows of protocols ``q2b`` and ``bio``: shapes of the mean, the mean, then shapes that stand apart."""
    yield _head(report, "shape", ("queries", ranked), metrics)

    def row(name: str, summary: Summary) -> str:
        return _row(name, summary, (summary.queries, summary.targets), metrics)

    for name in report.mean_over:
        yield row(name, report.by_shape[name])
    total = f"/{len(CONJUNCTIVE)}" if set(report.mean_over) < set(CONJUNCTIVE) else ""
    yield row(f"mean of {len(report.mean_over)}{total}", report.overall)
    apart = [name for name in report.by_shape if name not in report.mean_over]
    if apart:
        yield "not in the mean"
        for name in apart:
            yield row(name, report.by_shape[name])


def _head(report: Report, name: str, counts: Sequence[str], metrics: Sequence[str]) -> str:
    interval = f"{100 * report.settings.get('level', 0.95):g}% interval"
    first, *rest = (metric.upper() for metric in metrics)
    return (
        f"{name:<{_name_width(counts, metrics)}}{_cells(counts)}{first:>8}  {interval:<14}"
        f"{''.join(f'{cell:>8}' for cell in rest)}"
    )


def _row(name: str, summary: Summary, counts: Sequence[int], metrics: Sequence[str]) -> str:
    figures = summary.metrics["realistic"]
    low, high = summary.intervals.get(metrics[0], (None, None))
    interval = "" if low is None else f"{low:.3f} - {high:.3f}"
    first, *rest = (f"{figures[metric]:>8.3f}" for metric in metrics)
    cells = _cells([f"{count:,}" for count in counts])
    return f"{name:<{_name_width(counts, metrics)}}{cells}{first}  {interval:<14}{''.join(rest)}"


def _name_width(counts: Sequence[object], metrics: Sequence[str]) -> int:
    """What the figures leave: shapes have short names, types of ``bio`` long ones and few figures."""
    return min(24, WIDTH - sum(_count_widths(counts)) - 24 - 8 * (len(metrics) - 1))


def _count_widths(counts: Sequence[object]) -> tuple[int, ...]:
    return (10,) if len(counts) == 1 else (8, 10)


def _cells(counts: Sequence[str]) -> str:
    return "".join(f"{cell:>{width}}" for cell, width in zip(counts, _count_widths(counts), strict=True))


def _left_out(report: Report) -> Iterator[str]:
    if report.counts.get("targets_without_gold"):
        yield from _wrapped(f"not ranked: {report.counts['targets_without_gold']:,} targets without a gold entity")
    for part in report.skipped[:_REASONS]:
        yield from _wrapped(f"skipped: {part.queries:,} queries, {part.reason}")
    if len(report.skipped) > _REASONS:
        rest = sum(part.queries for part in report.skipped[_REASONS:])
        yield f"skipped: {rest:,} queries for {len(report.skipped) - _REASONS:,} more reasons, listed in the JSON"
    for reason, count in report.notes.get("left_out", {}).items():
        yield from _wrapped(f"left out on reading: {count:,} × {reason}")


def _wrapped(text: str) -> list[str]:
    return textwrap.wrap(text, WIDTH, subsequent_indent="  ")
