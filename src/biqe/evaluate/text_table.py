"""Text tables of at most 80 columns, and a report as one of them: a row a group, what was left out below."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from biqe.evaluate.protocol import Summary
from biqe.evaluate.protocols import CONJUNCTIVE, PROTOCOLS, Cq

if TYPE_CHECKING:
    from biqe.evaluate.report import Report

WIDTH = 80
_REASONS = 6
"""Reasons for skipping queries that are listed; the JSON has all."""
_FILTERS = {
    "complete": "filters from the complete graph (train + valid + test)",
    "seen": "filters from train and valid",
    "split": "filters from the split's own graph",
    "reach": "filters from the complete graph by reachability from the source alone",
    "answers": "every other answer of a question filtered",
    "none": "sampled negatives of the answer's type",
}


def aligned(rows: Sequence[Sequence[str]], *, left: int = 1, gap: int = 2) -> list[str]:
    """Lines in which the cells of all rows stand under each other: those of the first ``left`` columns to the left,
    all others to the right. A row of one cell is a line of its own, however long it is.

    >>> aligned([["", "MRR"], ["all targets", "0.25"], ["not ranked:"], ["tail", "0.125"]])
    ['               MRR', 'all targets   0.25', 'not ranked:', 'tail         0.125']
    """
    columns = zip(*(row for row in rows if len(row) > 1), strict=True)
    widths = [max(map(len, cells)) for cells in columns]
    lines = []
    for row in rows:
        if len(row) > 1:
            cells = zip(row, widths, strict=True)
            padded = [f"{cell:<{size}}" if n < left else f"{cell:>{size}}" for n, (cell, size) in enumerate(cells)]
            lines.append((" " * gap).join(padded).rstrip())
        else:
            lines.append(row[0])
    return lines


def wrapped(text: str, *, indent: str = "  ") -> list[str]:
    """``text`` in lines of at most WIDTH characters, all but the first indented."""
    return textwrap.wrap(text, WIDTH, subsequent_indent=indent)


def lines(report: Report) -> Iterator[str]:
    """The report, line by line."""
    protocol = PROTOCOLS.get(report.protocol, Cq)
    filters = _FILTERS.get(report.filter_graph, f"filters from the {report.filter_graph} graph")
    yield from wrapped(f"{report.model}, protocol {report.protocol} version {report.protocol_version}, {filters}")
    if report.notes.get("limit"):
        yield from wrapped(f"a sample of at most {report.notes['limit']:,} questions a shape: for a quick look")
    yield ""
    if "hidden_facts" in report.notes:
        yield from _hidden_facts(report.notes["hidden_facts"])
        yield ""
    if report.notes.get("held_out_shapes"):
        yield from _held_out_shapes(report.notes["held_out_shapes"])
        yield ""
        yield "queries that the run was validated on"
    metrics = sorted(report.overall.metrics["realistic"], key=lambda name: name != protocol.headline)
    yield from aligned(_shapes(report, protocol.ranked, metrics) if report.by_shape else _targets(report, metrics))
    yield ""
    headline = metrics[0]
    worst, best = (report.overall.metrics[rule][headline] for rule in ("pessimistic", "optimistic"))
    yield from wrapped(f"ties realistic; {headline.upper()} is {worst:.4f} if every tie is lost and {best:.4f} if won")
    if report.by_missing:
        yield from wrapped("missing: links that an answer needs and that were not stored when it was asked for")
    counts = report.counts
    yield from wrapped(
        f"ranked {counts['ranked_targets']:,} of {counts['targets']:,} {protocol.ranked} in "
        f"{counts['ranked_queries']:,} of {counts['queries']:,} queries, {report.seconds:.1f} s, "
        f"{report.queries_per_second:,.0f} queries/s"
    )
    yield from _left_out(report)


def _hidden_facts(found: Mapping[str, Any]) -> Iterator[str]:
    """How single held-out links are found, and whether their probabilities are right."""
    figures = [found[name] for name in ("mrr", "hits_1", "hits_3", "hits_10")]
    rows = [["hidden facts, both directions", "questions", "MRR", "HITS@1", "HITS@3", "HITS@10"]]
    rows.append(["found", f"{found['questions']:,}", *(f"{value:.3f}" for value in figures)])
    if found.get("guess_1") is not None:
        guesses = ["", f"{found['guess_1']:.3f}", "", f"{found['guess_10']:.3f}"]
        rows.append(["guessing the most frequent", "", *guesses])
    yield from aligned(rows)
    if found.get("calibration_error") is not None:
        yield f"probabilities of links: calibrated, expected error {found['calibration_error']:.3f}"
    else:
        yield "links have scores, not calibrated probabilities"


def _held_out_shapes(shapes: Mapping[str, Any]) -> list[str]:
    """Held-out questions of each shape; at the right, the first metric by the number of missing links."""
    metrics = list(next(iter(shapes.values()))["metrics"])
    numbers = sorted({number for found in shapes.values() for number in found["by_missing"]})
    rows = [["held-out, shape", "questions", *(metric.upper() for metric in metrics), *numbers]]
    for shape, found in shapes.items():
        by_missing = [found["by_missing"].get(number, {}).get(metrics[0]) for number in numbers]
        figures = [*(found["metrics"][metric] for metric in metrics), *by_missing]
        rows.append([shape, f"{found['questions']:,}", *("-" if x is None else f"{x:.3f}" for x in figures)])
    last = f"the last {len(numbers)} columns: {metrics[0].upper()} of answers that need so many missing links"
    return aligned(rows) + ([last] if numbers else [])


def _targets(report: Report, metrics: Sequence[str]) -> list[list[str]]:
    """Rows of protocol ``cq``."""
    groups = [("all targets", report.overall)]
    groups += [(f"  {name}", summary) for name, summary in report.by_position.items()]
    if len(report.by_kind) > 1:
        groups += [(f"  {name} queries", summary) for name, summary in report.by_kind.items()]
    if len(report.by_targets) > 1:
        groups += [(f"  {n} target{'s' if n != '1' else ''}", summary) for n, summary in report.by_targets.items()]
    groups += [(f"  {n} missing", summary) for n, summary in report.by_missing.items()]
    if report.macro is not None:
        groups.append(("mean of query means", report.macro))
    rows = [_row(name, summary, (summary.targets,), metrics) for name, summary in groups]
    return [_head(report, "", ("targets",), metrics), *rows]


def _shapes(report: Report, ranked: str, metrics: Sequence[str]) -> list[list[str]]:
    """Rows of protocols ``q2b`` and ``bio``: shapes of the mean, the mean, then what stands apart."""

    def row(name: str, summary: Summary) -> list[str]:
        return _row(name, summary, (summary.queries, summary.targets), metrics)

    rows = [_head(report, "shape", ("queries", ranked), metrics)]
    rows += [row(name, report.by_shape[name]) for name in report.mean_over]
    total = f"/{len(CONJUNCTIVE)}" if set(report.mean_over) < set(CONJUNCTIVE) else ""
    rows.append(row(f"mean of {len(report.mean_over)}{total}", report.overall))
    apart = [name for name in report.by_shape if name not in report.mean_over]
    if apart:
        rows += [["not in the mean"], *(row(name, report.by_shape[name]) for name in apart)]
    if report.by_missing:
        rows.append(["questions of all shapes together"])
        rows += [row(f"{number} missing", summary) for number, summary in report.by_missing.items()]
    return rows


def _head(report: Report, name: str, counts: Sequence[str], metrics: Sequence[str]) -> list[str]:
    first, *rest = (metric.upper() for metric in metrics)
    return [name, *counts, first, f"{100 * report.settings.get('level', 0.95):g}% interval", *rest]


def _row(name: str, summary: Summary, counts: Sequence[int], metrics: Sequence[str]) -> list[str]:
    first, *rest = (f"{summary.metrics['realistic'][metric]:.3f}" for metric in metrics)
    low, high = summary.intervals.get(metrics[0], (None, None))
    interval = "" if low is None else f"{low:.3f} - {high:.3f}"
    return [name, *(f"{count:,}" for count in counts), first, interval, *rest]


def _left_out(report: Report) -> Iterator[str]:
    if report.counts.get("targets_without_gold"):
        yield from wrapped(f"not ranked: {report.counts['targets_without_gold']:,} targets without a gold entity")
    for part in report.skipped[:_REASONS]:
        yield from wrapped(f"skipped: {part.queries:,} queries, {part.reason}")
    if len(report.skipped) > _REASONS:
        rest = sum(part.queries for part in report.skipped[_REASONS:])
        yield f"skipped: {rest:,} queries for {len(report.skipped) - _REASONS:,} more reasons, listed in the JSON"
    for reason, count in report.notes.get("left_out", {}).items():
        yield from wrapped(f"left out on reading: {count:,} × {reason}")
