"""Our results beside published figures: as text of at most 80 columns, as Markdown, as JSON, and one line a recipe.

Results with equal settings are averaged over their seeds; quick ones stand apart from real ones, and a recipe that
was not run says so.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from biqe.evaluate.text_table import aligned, wrapped
from biqe.reproduce import recipe as recipes
from biqe.reproduce.job import Job, digest
from biqe.reproduce.recipe import Column, Figures, Recipe, Row, Table
from biqe.reproduce.result import Result, of_other_queries, read_all

QUICK = (
    "Rows marked quick are smoke tests: small models, trained for a fraction of a minute, on a sample of the queries. "
    "They show that everything runs, and nothing about accuracy."
)
OTHER_QUERIES = "**on queries mined before, by another rule**"
QUICK_COUNTS = "Rows marked quick are as good as others here: nothing is trained, and everything is counted."


@dataclass(frozen=True)
class Average:
    """Results of one recipe with equal settings: mean and deviation over the seeds."""

    settings: Mapping[str, Any]
    seeds: tuple[int, ...]
    mean: Figures = field(default_factory=dict)
    deviation: Figures = field(default_factory=dict)
    """Standard deviation over the seeds (n - 1); empty with one seed."""
    train_seconds: float = 0.0
    """Mean over the seeds."""
    before_seconds: float | None = None
    """Of the training that each started from."""
    peak_mib: int = 0
    """The largest."""
    filter_negatives: bool | None = None
    """Whether true answers were kept out of sampled negatives; None for models without such an option."""
    finished: str = ""
    """When the last of them was, UTC."""
    failed: tuple[tuple[int, str], ...] = ()
    """Seeds that failed, and why."""
    of_other_queries: bool = False
    """Whether the benchmark's queries have been mined anew, by another rule, since."""
    changed: Mapping[str, Any] = field(default_factory=dict)
    """Options of model and training, but for its length, that are not what the recipe asks for today."""

    @property
    def quick(self) -> bool:
        return bool(self.settings.get("quick"))

    @property
    def budget(self) -> str:
        """How long each was trained, in words."""
        return recipes.budget(self.settings.get("train", {}))

    @property
    def seconds(self) -> float:
        """Of training in all, that of a model it started from included."""
        return self.train_seconds + (self.before_seconds or 0.0)

    @property
    def how(self) -> str:
        """Split, seeds, minutes in all, memory, and what is not as the recipe has it today, in words."""
        counts_all = self.settings.get("job") == "statistics"
        parts = [f"{self.settings['split']} split"] if self.settings.get("split") and not counts_all else []
        parts += [f"{len(self.seeds)} seed{'s' if len(self.seeds) != 1 else ''}"]
        if self.budget:
            parts += [f"{minutes(self.seconds)} in all"]
        if self.before_seconds is not None:
            first = (self.settings.get("start_from") or {}).get("model", "its link predictor")
            parts[-1] += f" ({minutes(self.before_seconds)} of them {first})"
        parts += [f"{self.peak_mib:,} MiB"] if self.peak_mib else []
        if self.settings.get("sample") and not self.quick:
            parts += [f"{self.settings['sample']:,} queries of each shape"]
        if self.filter_negatives is not None:
            parts += [f"filter_negatives={str(self.filter_negatives).lower()}"]
        parts += [OTHER_QUERIES] if self.of_other_queries else []
        return ", ".join(parts + [f"{name}={value}" for name, value in self.changed.items()])


@dataclass(frozen=True)
class RecipeResults:
    """One recipe and what we found, if anything; first what comes closest to the recipe as it stands, its minutes last,
    and the newest of what is equally close."""

    recipe: Recipe
    averages: tuple[Average, ...]

    @property
    def best(self) -> Average | None:
        """The average that stands for the recipe in overviews; None where no real run was made."""
        return next((average for average in self.averages if not average.quick), None)

    @property
    def published_elsewhere(self) -> bool:
        """Whether the published figures are of another benchmark than ours."""
        published = self.recipe.published
        return published is not None and published.benchmark not in (None, self.recipe.benchmark)


@dataclass(frozen=True)
class Comparison:
    """A table with all results of it."""

    table: Table
    rows: tuple[RecipeResults, ...]


def compare(table: Table, results: Iterable[Result], *, quick: bool | None = None) -> Comparison:
    """The table with all results of it; ``quick`` chooses quick or real ones alone."""
    own = [result for result in results if result.table == table.name and quick in (None, result.quick)]
    return Comparison(
        table,
        tuple(_recipe_results(recipe, [r for r in own if r.recipe == recipe.name]) for recipe in table.recipes),
    )


def compare_all(folder: Path, *, quick: bool | None = None) -> list[Comparison]:
    """All tables with the results below ``folder``."""
    results = read_all(folder)
    return [compare(recipes.load(name), results, quick=quick) for name in recipes.names()]


def mean_and_deviation(values: Sequence[float]) -> tuple[float, float | None]:
    """Mean, and standard deviation of a sample (n - 1); None for a single value.

    >>> mean_and_deviation([1.0, 3.0])
    (2.0, 1.4142135623730951)
    """
    mean = math.fsum(values) / len(values)
    if len(values) < 2:
        return mean, None
    return mean, math.sqrt(math.fsum((value - mean) ** 2 for value in values) / (len(values) - 1))


def _recipe_results(recipe: Recipe, results: Sequence[Result]) -> RecipeResults:
    alike: dict[str, list[Result]] = {}
    for result in sorted(results, key=lambda r: r.seed):
        alike.setdefault(digest({**result.settings, "queries": of_other_queries(result)}), []).append(result)
    averages = [_average(group) for group in alike.values()]
    averages = [replace(average, changed=_changed(recipe, average)) for average in averages]
    averages.sort(key=lambda average: average.finished, reverse=True)
    return RecipeResults(recipe, tuple(sorted(averages, key=lambda average: _distance(recipe, average))))


def _distance(recipe: Recipe, average: Average) -> tuple[float, ...]:
    """What speaks against showing an average first: quick, a sample of the queries, other settings, and minutes of
    training that differ from the recipe's."""
    train = average.settings.get("train", {})
    lengths = {"minutes", "links_minutes"}
    other = any(train.get(name) != value for name, value in recipe.train.items() if name not in lengths)
    off = abs((train.get("minutes") or 0.0) - (recipe.train.get("minutes") or 0.0))
    sampled = bool(average.settings.get("sample"))
    # Single precision takes longer to the same model, so an older row is no stranger for it.
    stale = average.of_other_queries or bool(average.changed.keys() - {"precision"})
    return average.quick, sampled, stale, average.settings.get("split") != "test", other, off


def _changed(recipe: Recipe, average: Average) -> dict[str, Any]:
    if recipe.model is None:
        return {}
    today = Job(recipe, 0, average.quick).settings
    # Results from before this was a setting.
    was = {**average.settings, "train": {"precision": "single", **average.settings.get("train", {})}}
    return {
        name: value
        for part in ("model_config", "train")
        for name, value in sorted(was.get(part, {}).items())
        if name not in ("minutes", "epochs", "links_minutes") and name in today[part] and value != today[part][name]
    }


def _average(results: Sequence[Result]) -> Average:
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
    before = [result.seconds["before"] for result in done if "before" in result.seconds]
    return Average(
        settings=results[0].settings,
        seeds=tuple(result.seed for result in done),
        mean=mean,
        deviation=deviation,
        train_seconds=math.fsum(r.seconds.get("train", 0.0) for r in done) / len(done) if done else 0.0,
        before_seconds=math.fsum(before) / len(before) if before and len(before) == len(done) else None,
        peak_mib=max((r.peak_mib for r in done), default=0),
        finished=max((r.finished for r in done), default=""),
        filter_negatives=(done[0].config.get("model") or {}).get("filter_negatives") if done else None,
        failed=tuple((r.seed, r.reason) for r in results if r.state == "failed"),
        of_other_queries=any(map(of_other_queries, done)),
    )


@dataclass(frozen=True)
class _Line:
    """One line of figures: published ones, or ours."""

    row: str
    who: str
    cells: list[str]
    spread: list[str]
    """Standard deviation of each; '' where there is none."""
    how: str = ""


def _figure_lines(shown: RecipeResults, table: Table) -> Iterator[_Line]:
    published = shown.recipe.published
    for row in table.rows or (None,):
        label = row.label if row else ""
        theirs = [] if published is None else _cells(published.figures, table.columns, row, published=True)
        if any(theirs):
            yield _Line(label, "published*" if shown.published_elsewhere else "published", theirs, [])
        for average in shown.averages:
            cells = _cells(average.mean, table.columns, row)
            if any(cells):
                spread = _cells(average.deviation, table.columns, row) if average.deviation else []
                yield _Line(label, "quick" if average.quick else "ours", cells, spread, average.how)


def _remarks(shown: RecipeResults, reason: str | None) -> list[str]:
    """What failed, and that nothing was run."""
    found = [
        f"{'quick, ' if average.quick else ''}seed {seed} failed: {why}"
        for average in shown.averages
        for seed, why in average.failed
    ]
    if not shown.averages:
        found.append("not run" + (f": {reason}" if reason else ""))
    elif shown.best is None:
        found.append("no real run yet")
    return found


def to_text(shown: Comparison, *, reasons: Mapping[str, str] | None = None) -> str:
    """The table in full: published figures, ours, their deviation, and what they cost.

    ``reasons`` say why recipes could not be run, by recipe.
    """
    return "\n".join(line.rstrip() for line in _text_lines(shown, reasons or {})) + "\n"


def _text_lines(shown: Comparison, reasons: Mapping[str, str]) -> Iterator[str]:
    table = shown.table
    first = max(len(results.recipe.label) for results in shown.rows)
    rows: list[list[str]] = []

    def add(label: str, row: str, who: str, cells: Sequence[str]) -> None:
        # A table with one line of figures a recipe has no column of their names.
        rows.append([f"{label:<{first}}", *([row] if table.rows else []), f"{who:<9}", *cells])

    add("", "", "", [column.label for column in table.columns])
    for results in shown.rows:
        label, last_row = results.recipe.label, ""
        for found in _figure_lines(results, table):
            row = found.row if found.row != last_row else ""
            add(label, row, found.who, [cell or "-" for cell in found.cells])
            if found.spread:
                add("", "", "± sd", [cell or "-" for cell in found.spread])
            label, last_row = "", found.row
        costs = [f"{'quick' if one.quick else 'ours'}: {one.how}" for one in results.averages if one.seeds]
        for remark in costs + _remarks(results, reasons.get(results.recipe.name)):
            rows += [[line] for line in wrapped(f"{label:<{first}} {remark}", indent=" " * (first + 1))]
            label = ""
    yield from wrapped(f"{table.name}: {table.title}")
    yield ""
    yield from aligned(rows, left=2 + bool(table.rows), gap=1)
    yield ""
    for note in notes(shown):
        yield from wrapped(note)


def to_markdown(shown: Comparison) -> str:
    """The table as a section of RESULTS.md."""
    table = shown.table
    row_column = [""] if table.rows else []
    header = ["", *row_column, "", *(column.label for column in table.columns), "how"]
    lines = []
    for results in shown.rows:
        for found in _figure_lines(results, table):
            spread = found.spread or [""] * len(found.cells)
            cells = [f"{v or '-'}{f' ± {s}' if s else ''}" for v, s in zip(found.cells, spread, strict=True)]
            row = [found.row] if table.rows else []
            lines.append([results.recipe.label, *row, found.who, *cells, found.how])
        for remark in _remarks(results, None):
            empty = [""] * (len(table.columns) + 1)
            lines.append([results.recipe.label, *row_column, remark.replace("|", "\\|"), *empty])
    text = [f"## {table.name}", "", f"{table.title}. Again with `biqe reproduce {table.name}`.", ""]
    text.append(markdown_table(header, lines))
    return "\n".join([*text, *(f"- {note}" for note in notes(shown))]) + "\n"


def markdown_table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Lines of a Markdown table."""
    return "".join("| " + " | ".join(cells) + " |\n" for cells in (header, ["---"] * len(header), *rows))


def to_json(shown: Comparison) -> dict[str, Any]:
    """The table as plain values."""
    return {
        "table": shown.table.name,
        "title": shown.table.title,
        "headline": dict(zip(("group", "metric"), shown.table.headline, strict=True)),
        "notes": notes(shown),
        "recipes": [
            {
                "recipe": results.recipe.name,
                "benchmark": results.recipe.benchmark,
                "model": results.recipe.model,
                "published": None if results.recipe.published is None else asdict(results.recipe.published),
                "state": "not run" if results.best is None else "done" if results.best.seeds else "failed",
                "ours": [asdict(one) | {"quick": one.quick, "budget": one.budget} for one in results.averages],
            }
            for results in shown.rows
        ],
    }


@dataclass(frozen=True)
class Headline:
    """The one figure that stands for a recipe in overviews."""

    ours: str
    """'' where it was not run."""
    published: str
    """'' where nothing is published."""


def headline(results: RecipeResults, table: Table) -> Headline:
    """The recipe's headline figure, ours and published."""
    (group, metric), kind = results.recipe.headline or table.headline, table.headline_column.format
    best, published = results.best, results.recipe.published
    ours = theirs = ""
    if best is not None and best.seeds:
        spread = format_value(best.deviation.get(group, {}).get(metric), kind)
        ours = (format_value(best.mean.get(group, {}).get(metric), kind) or "-") + (f" ± {spread}" if spread else "")
        ours += f" {metric.upper()}" if results.recipe.headline else ""
    if published is not None:
        theirs = format_value(published.figures.get(group, {}).get(metric), kind, published=True)
    return Headline(ours, theirs)


def headline_label(table: Table) -> str:
    """What the headline figures of a table are, in words."""
    column, (group, metric) = table.headline_column, table.headline
    rows = [row.label for row in table.rows if row.group == group]
    return " ".join([*rows, column.label, *([metric.upper()] if column.group is not None else [])])


def overview(comparisons: Sequence[Comparison]) -> str:
    """One line a recipe, with the figure that stands for it."""

    rows: list[list[str]] = []
    for shown in comparisons:
        title = f"{shown.table.name}, {headline_label(shown.table)}"
        rows.append([title, "published ", "ours", "split", "seeds", "in all"])
        for results in shown.rows:
            found, best = headline(results, shown.table), results.best
            published = (found.published or "-") + ("*" if results.published_elsewhere else " ")
            if best is None or not found.ours:
                cells = ["not run" if best is None else "failed", "", "", ""]
            else:
                split, time = (best.settings.get("split", ""), minutes(best.seconds)) if best.budget else ("", "")
                cells = [found.ours, split, str(len(best.seeds)), time]
            rows.append([f"  {results.recipe.name}", published, *cells])
        rows.append([""])
    lines = aligned(rows)
    if any(results.published_elsewhere for shown in comparisons for results in shown.rows):
        lines += ["* published on another graph, so not comparable", ""]
    return "\n".join(lines)


def notes(shown: Comparison) -> list[str]:
    """What a reader must know before comparing."""
    found = list(shown.table.notes)
    elsewhere = {
        results.recipe.published.benchmark: results.recipe.benchmark
        for results in shown.rows
        if results.published_elsewhere and results.recipe.published is not None
    }
    for theirs, own in elsewhere.items():
        found.append(f"* ANOTHER GRAPH: published on {theirs}, ours is {own}. The two are not comparable.")
    for recipe in (results.recipe for results in shown.rows):
        found += [f"{recipe.label}: {recipe.note}"] if recipe.note else []
        found += [f"{recipe.label} departs from the original: {recipe.departs}"] if recipe.departs else []
    found += _sources([results.recipe for results in shown.rows])
    quick = [average for results in shown.rows for average in results.averages if average.quick]
    if quick:
        found.append(QUICK if any(average.settings.get("model") for average in quick) else QUICK_COUNTS)
    return found


def _sources(listed: Sequence[Recipe]) -> list[str]:
    """A line for each paper that figures were published in, with those that it took from others."""
    taken: dict[str, dict[str, list[str]]] = {}
    for recipe in listed:
        if (published := recipe.published) is not None:
            others = taken.setdefault(f"{published.source}, {published.split} split", {})
            if published.taken_from:
                label = recipe.label.partition(",")[0]
                labels = others.setdefault(published.taken_from, [])
                labels += [label] if label not in labels else []
    return [
        f"Published: {source}"
        + "".join(f"; {', '.join(labels)} there from {who}" for who, labels in others.items())
        + "."
        for source, others in taken.items()
    ]


def minutes(seconds: float) -> str:
    """A time in words.

    >>> minutes(1834.0), minutes(12.3)
    ('30.6 min', '12 s')
    """
    return f"{seconds / 60:.1f} min" if seconds >= 60 else f"{seconds:.0f} s"


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


def _cells(figures: Figures, columns: Sequence[Column], row: Row | None, *, published: bool = False) -> list[str]:
    found = []
    for column in columns:
        group = column.group if column.group is not None else row.group if row is not None else "all"
        found.append(format_value(figures.get(group, {}).get(column.metric), column.format, published=published))
    return found
