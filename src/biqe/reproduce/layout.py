"""A view as text of at most 80 columns, as Markdown, and as plain values for JSON."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from typing import Any

from biqe.reproduce.recipe import Column, Row, Table
from biqe.reproduce.view import Block, Lone, Ours, View

WIDTH = 80
QUICK = (
    "Rows marked quick are smoke tests: small models, trained for a fraction of a minute, on a sample of the queries. "
    "They say that the road is open, and nothing about accuracy."
)
QUICK_COUNTS = "Rows marked quick are as good as others here: nothing is trained, and everything is counted."


def to_text(view: View, *, states: Mapping[str, str] | None = None) -> str:
    """The table in full: published figures, ours, their deviation, and what they cost.

    ``states`` are reasons why recipes could not be run, by recipe.
    """
    return "\n".join(line.rstrip() for line in _lines(view, states or {})) + "\n"


def _lines(view: View, states: Mapping[str, str]) -> Iterator[str]:
    table = view.table
    rows: Sequence[Row | None] = table.rows or (None,)
    first = max(len(block.recipe.label) for block in view.blocks)
    second = max(len(row.label) for row in table.rows) if table.rows else 0
    widths = [max(len(column.label), 5 if column.format == "share" else 7) for column in table.columns]
    yield from _wrap(f"{table.name}: {table.title}")
    yield ""

    def line(label: str, row: str, who: str, cells: Sequence[str]) -> str:
        start = f"{label:<{first}}" + (f" {row:<{second}}" if second else "") + f" {who:<10}"
        return start + "".join(f" {cell:>{width}}" for cell, width in zip(cells, widths, strict=True))

    yield line("", "", "", [column.label for column in table.columns])
    for block in view.blocks:
        label = block.recipe.label
        for row in rows:
            published = _published(block, table.columns, row)
            if any(published):
                yield line(label, row.label if row else "", _published_word(block), [cell or "-" for cell in published])
                label = ""
            for ours in block.ours:
                if not ours.seeds:
                    continue
                values = _cells(ours.mean, table.columns, row)
                if not any(values):
                    continue
                name = "" if row is None or any(published) else row.label
                yield line(label, name, "quick" if ours.quick else "ours", [cell or "-" for cell in values])
                label = ""
                if ours.deviation:
                    spread = _cells(ours.deviation, table.columns, row)
                    yield line("", "", "± sd", [cell or "-" for cell in spread])
        room = " " * (first + 1)
        for remark in remarks(block, states.get(block.recipe.name)):
            yield from _wrap(remark, indent=room, first=f"{label:<{first}} ")
            label = ""
    yield ""
    for note in notes(view):
        yield from _wrap(note)


def remarks(block: Block, reason: str | None = None) -> list[str]:
    """What stands under a block: what each row of ours cost, what failed, that nothing was run."""
    found = []
    for ours in block.ours:
        if ours.seeds:
            found.append(cost(ours))
        for seed, why in ours.failed:
            found.append(f"{'quick, ' if ours.quick else ''}seed {seed} failed: {why}")
    if not block.ours:
        found.append("not run" + (f": {reason}" if reason else ""))
    elif block.real is None:
        found.append("no real run yet")
    return found


def cost(ours: Ours) -> str:
    """Seeds, budget, time, memory, split, and what is not as the recipe has it today, in words."""
    parts = [f"{len(ours.seeds)} seed{'s' if len(ours.seeds) != 1 else ''}"]
    if ours.budget:
        parts += [f"budget {ours.budget}", f"trained {minutes(ours.train_seconds)}"]
    if ours.before_seconds is not None:
        first = (ours.settings.get("start_from") or {}).get("model", "another model")
        parts += [f"after {minutes(ours.before_seconds)} of {first}"]
    parts += [f"{ours.peak_mib:,} MiB"] if ours.peak_mib else []
    parts += [f"{ours.settings['split']} split"] if ours.settings.get("split") and ours.budget else []
    if ours.settings.get("sample") and not ours.quick:
        parts += [f"{ours.settings['sample']:,} queries of each shape"]
    if ours.filter_negatives is not None:
        parts += [f"filter_negatives={str(ours.filter_negatives).lower()}"]
    parts += [f"protocol {name}" for name in ours.older_protocols]
    parts += [f"{name}={value}" for name, value in ours.changed.items()]
    return ("quick: " if ours.quick else "ours: ") + ", ".join(parts)


def minutes(seconds: float) -> str:
    """A time in words.

    >>> minutes(1834.0), minutes(12.3)
    ('30.6 min', '12 s')
    """
    return f"{seconds / 60:.1f} min" if seconds >= 60 else f"{seconds:.0f} s"


def notes(view: View) -> list[str]:
    """What a reader must know before comparing."""
    found = list(view.table.notes)
    elsewhere = {}
    for block in view.blocks:
        published, benchmark = block.recipe.published, block.recipe.benchmark
        if published is not None and published.benchmark not in (None, benchmark):
            elsewhere[published.benchmark] = benchmark
    for theirs, own in elsewhere.items():
        found.append(f"* ANOTHER GRAPH: published on {theirs}, ours is {own}. The two are not comparable.")
    found += [f"{block.recipe.label}: {block.recipe.note}" for block in view.blocks if block.recipe.note]
    found += _sources(view)
    quick = [ours for block in view.blocks for ours in block.ours if ours.quick]
    if quick:
        found.append(QUICK if any(ours.settings.get("model") for ours in quick) else QUICK_COUNTS)
    return found


def _sources(view: View) -> list[str]:
    """A line for each paper that figures were published in, with those that it took from others."""
    taken: dict[str, dict[str, list[str]]] = {}
    for block in view.blocks:
        published = block.recipe.published
        if published is not None:
            others = taken.setdefault(f"{published.source}, {published.split} split", {})
            if published.taken_from:
                label = block.recipe.label.partition(",")[0]
                labels = others.setdefault(published.taken_from, [])
                labels += [label] if label not in labels else []
    return [
        f"Published: {source}"
        + "".join(f"; {', '.join(labels)} there from {who}" for who, labels in others.items())
        + "."
        for source, others in taken.items()
    ]


def overview(views: Sequence[View]) -> str:
    """One line a recipe, with the figure that stands for its table."""
    lines = []
    for view in views:
        column, (group, metric) = view.table.headline_column, view.table.headline
        row = next((row for row in view.table.rows if row.group == group), None)
        title = f"{view.table.name}, {headline_label(view.table)}"
        lines += [_overview_line(title, "published", "ours", "seeds", "budget", "trained")]
        for block in view.blocks:
            published = _published(block, [column], row)[0] or "-"
            published += "*" if _published_word(block).endswith("*") else " "
            ours, cells = block.real, ["not run", "", "", ""]
            if ours is not None and ours.seeds:
                mean = format_value(ours.mean.get(group, {}).get(metric), column.format) or "-"
                spread = ours.deviation.get(group, {}).get(metric)
                mean += f" ± {format_value(spread, column.format)}" if spread is not None else ""
                trained = minutes(ours.train_seconds) if ours.budget else ""
                cells = [mean, str(len(ours.seeds)), ours.budget, trained]
            elif ours is not None:
                cells[0] = "failed"
            lines.append(_overview_line(f"  {block.recipe.name}", published, *cells))
        lines.append("")
    if any("*" in line for line in lines):
        lines += _wrap("* published on another graph, so not comparable") + [""]
    return "\n".join(line.rstrip() for line in lines)


def headline_label(table: Table) -> str:
    """The figure that stands for each recipe of a table, in words."""
    column, (group, metric) = table.headline_column, table.headline
    rows = [row.label for row in table.rows if row.group == group]
    return " ".join([*rows, column.label, *([metric.upper()] if column.group is not None else [])])


def _overview_line(title: str, published: str, ours: str, seeds: str, budget: str, trained: str) -> str:
    return f"{title:<30}{published:>9} {ours:>15}{seeds:>6}{budget:>9}{trained:>10}"


def lone_reports(lone: Sequence[Lone]) -> str:
    """Reports of ``biqe evaluate`` that belong to no table: name, then figures below it."""
    lines = ["reports of biqe evaluate          MRR  HITS@1  HITS@3 HITS@10   budget   trained"]
    for report in lone:
        shown = [format_value(report.figures.get(m), "share") or "-" for m in ("mrr", "hits@1", "hits@3", "hits@10")]
        trained = minutes(report.train_seconds) if report.train_seconds else "-"
        figures = f"{shown[0]:>7}" + "".join(f"{value:>8}" for value in shown[1:])
        lines += [f"  {report.name}", f"    {report.model}, filters {report.filter_graph}"]
        lines[-1] = f"{lines[-1]:<30}{figures}{report.budget or '-':>9}{trained:>10}"
    return "\n".join(lines) + "\n"


def to_json(view: View) -> dict[str, Any]:
    """The view as plain values."""
    return {
        "table": view.table.name,
        "title": view.table.title,
        "headline": dict(zip(("group", "metric"), view.table.headline, strict=True)),
        "notes": notes(view),
        "recipes": [
            {
                "recipe": block.recipe.name,
                "benchmark": block.recipe.benchmark,
                "model": block.recipe.model,
                "published": None if block.recipe.published is None else asdict(block.recipe.published),
                "state": "not run" if block.real is None else "done" if block.real.seeds else "failed",
                "ours": [asdict(ours) | {"quick": ours.quick, "budget": ours.budget} for ours in block.ours],
            }
            for block in view.blocks
        ],
    }


def to_markdown(view: View) -> str:
    """A section of RESULTS.md: real results only."""
    table = view.table
    rows: Sequence[Row | None] = table.rows or (None,)
    header = ["", *([""] if table.rows else []), "", *(column.label for column in table.columns), "how"]
    lines = []
    for block in view.blocks:
        real = [ours for ours in block.ours if not ours.quick]
        for row in rows:
            start = [block.recipe.label, *([row.label] if row else [])]
            published = _published(block, table.columns, row)
            if any(published):
                lines.append([*start, _published_word(block), *(cell or "-" for cell in published), ""])
            for ours in real:
                values = _cells(ours.mean, table.columns, row)
                if any(values):
                    spread = _cells(ours.deviation, table.columns, row) if ours.deviation else [""] * len(values)
                    cells = [f"{v or '-'}{f' ± {s}' if s else ''}" for v, s in zip(values, spread, strict=True)]
                    lines.append([*start, "ours", *cells, cost(ours).removeprefix("ours: ")])
        for remark in remarks(Block(block.recipe, tuple(real))):
            if not remark.startswith("ours: "):
                remark = remark.replace("|", "\\|")
                lines.append(
                    [block.recipe.label, *([""] if table.rows else []), remark, *[""] * len(table.columns), ""]
                )
    text = [f"## {table.name}", "", f"{table.title}. Again with `biqe reproduce {table.name}`.", ""]
    text += ["| " + " | ".join(cells) + " |" for cells in (header, ["---"] * len(header), *lines)]
    remarks_ = notes(View(table, tuple(Block(b.recipe, tuple(o for o in b.ours if not o.quick)) for b in view.blocks)))
    text += ["", *(f"- {note}" for note in remarks_)] if remarks_ else []
    return "\n".join(text) + "\n"


def format_value(value: float | None, kind: str, *, published: bool = False) -> str:
    """One figure; '' for none. Published percentages are stored as printed, ours as shares.

    >>> format_value(0.24649, "share"), format_value(0.91, "percent"), format_value(91.0, "percent", published=True)
    ('0.246', '91.00', '91.00')
    """
    if value is None:
        return ""
    if kind == "percent":
        return f"{value if published else 100 * value:.2f}"
    if kind == "count":
        return f"{value:,.0f}"
    return f"{value:.2f}" if kind == "number" else f"{value:.3f}"


def _published_word(block: Block) -> str:
    published = block.recipe.published
    elsewhere = published is not None and published.benchmark not in (None, block.recipe.benchmark)
    return "published*" if elsewhere else "published"


def _published(block: Block, columns: Sequence[Column], row: Row | None) -> list[str]:
    if block.recipe.published is None:
        return [""] * len(columns)
    return _cells(block.recipe.published.figures, columns, row, published=True)


def _cells(
    figures: Mapping[str, Mapping[str, float]], columns: Sequence[Column], row: Row | None, *, published: bool = False
) -> list[str]:
    found = []
    for column in columns:
        group = column.group if column.group is not None else row.group if row is not None else "all"
        found.append(format_value(figures.get(group, {}).get(column.metric), column.format, published=published))
    return found


def _wrap(text: str, *, indent: str = "  ", first: str = "") -> list[str]:
    return textwrap.wrap(text, WIDTH, initial_indent=first, subsequent_indent=indent) or [first.rstrip()]
