"""Write RESULTS.md and the results section of README.md from the files in results/, or check them.

A result is a JSON file anywhere below results/, written by a program of this repository, of one of four kinds:

    table      what ``biqe reproduce`` writes: RESULTS.md has every table, README.md the one figure that stands for
               each row that was run; quick ones are left out
    accuracy   a report of ``biqe evaluate --json``, or ``{"name", "benchmark", "model", "settings", "metrics"}``
               with ``metrics`` holding mrr and hits@k; ``published`` may hold the paper's figures for the same.
               RESULTS.md has them below its tables: single runs and trials, which no table of the paper asks for;
               README.md has a few of them (FIRST)
    speed      the last line of a benchmark: any object with ``ratio``, ours over the alternative; in README.md
    fit        what ``biqe calibrate --json`` prints: in no table, for docs/concepts/probabilities.md quotes it

Run without options to rewrite both, with ``--check`` to compare only (exit code 1 if one differs).
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from biqe.predict.calibration import FORMAT as CALIBRATION
from biqe.reproduce import layout
from biqe.reproduce import view as tables
from biqe.reproduce.result import FORMAT as TABLE_RESULT

ROOT = Path(__file__).resolve().parent.parent
BEGIN, END = "<!-- results:begin -->", "<!-- results:end -->"
METRICS = ("mrr", "hits@1", "hits@3", "hits@10")
FIRST = {
    "fb15k237-cq/biqe-60min-dropout-15-search-4-complete": "FB15k-237",
    "fb15k237-cq/biqe-60min-dropout-15-search-4-split": "FB15k-237",
    "wn18rr-cq/biqe-60min-complete": "WN18RR, patience 3",
    "wn18rr-cq/biqe-60min-split": "WN18RR, patience 3",
}
"""Single runs that README.md shows first: what ``biqe train GRAPH --set SET`` reaches on mined DAGs, and how they
differ from its defaults."""


def figures(result: Mapping[str, Any]) -> Mapping[str, float] | None:
    """MRR and HITS@k of a result, ties realistic; None if it has none."""
    metrics = result.get("overall", result).get("metrics")
    if not isinstance(metrics, Mapping):
        return None
    metrics = metrics.get("realistic", metrics)
    return metrics if "mrr" in metrics else None


def accuracy_row(name: str, result: Mapping[str, Any]) -> list[str]:
    """Cells of one row of the accuracy table."""
    values = figures(result) or {}
    settings = {**result.get("settings", {}), **result.get("notes", {})}
    interval = result.get("overall", {}).get("intervals", {}).get("mrr")
    published = result.get("published", {})
    count = result.get("counts", {}).get("ranked_queries", result.get("queries"))
    return [
        f"[{result.get('name', name)}](results/{name}.json)",
        str(result.get("benchmark", settings.get("benchmark", "-"))),
        str(result.get("model", "-")),
        str(result.get("filter_graph", settings.get("filter_graph", "-"))),
        f"{count:,}" if isinstance(count, int) else "-",
        _figure(values.get("mrr")) + (f" ({_figure(interval[0])} - {_figure(interval[1])})" if interval else ""),
        *(_figure(values.get(metric)) for metric in METRICS[1:]),
        " / ".join(_figure(published[metric]) for metric in METRICS if metric in published) or "-",
    ]


def speed_row(name: str, result: Mapping[str, Any]) -> list[str]:
    """Cells of one row of the speed table."""
    return [
        f"[{name.rpartition('/')[2]}](results/{name}.json)",  # one benchmark may have been run on several things
        f"{result['ratio']:.1f}",
        _rate(result, "ours"),
        _rate(result, "alternative", "pyoxigraph"),
        str(result.get("allocator", "-")),
        str(result.get("threads", "-")),
    ]


def _rate(result: Mapping[str, Any], *sides: str) -> str:
    """What one side reached: as it is told, or its first figure a second."""
    for key, value in result.items():
        side, _, unit = key.partition("_")
        if side in sides and isinstance(value, str):
            return value
        if side in sides and isinstance(value, (int, float)) and (not unit or unit.endswith("_per_second")):
            what = f"{unit.removesuffix('_per_second')}/s" if unit else result.get("unit", "")
            return f"{value:,.0f} {what}".strip()
    return "-"


def _figure(value: float | None) -> str:
    return "-" if value is None else f"{value:.3f}"


def markdown(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A table; nothing if there are no rows."""
    if not rows:
        return ""
    lines = [header, ["---"] * len(header), *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines) + "\n"


def single_results(folder: Path) -> tuple[list[list[str]], list[list[str]]]:
    """Rows of accuracy and of speed, of all results below ``folder`` that belong to no table."""
    accuracy, speed = [], []
    for path in sorted(folder.rglob("*.json")):
        name = path.relative_to(folder).with_suffix("").as_posix()
        result = json.loads(path.read_text("utf-8"))
        if result.get("format") in (TABLE_RESULT, CALIBRATION):
            continue
        if figures(result) is not None:
            accuracy.append(accuracy_row(name, result))
        elif "ratio" in result:
            speed.append(speed_row(name, result))
        else:
            raise SystemExit(f"{path}: neither a report (metrics with mrr) nor a benchmark (ratio)")
    return accuracy, speed


def first_rows(folder: Path) -> list[list[str]]:
    """Rows of the runs in FIRST, of those that there are."""
    rows = []
    for name, graph in FIRST.items():
        path = folder / f"{name}.json"
        if path.exists():
            result = json.loads(path.read_text("utf-8"))
            _, _, _, filters, queries, *metrics, _ = accuracy_row(name, result)
            trained = result["notes"]["trained"]
            rows.append([f"[{graph}](results/{name}.json)", queries, filters, *metrics, trained["budget"]])
    return rows


def section(folder: Path) -> str:
    """The text between the marks of README.md, for all results below ``folder``."""
    _, speed = single_results(folder)
    parts = [
        markdown(["biqe on DAGs of", "queries", "filters", "MRR (95 %)", *SHOWN, "trained for"], first_rows(folder)),
        markdown(["table", "model", "figure", "ours", "published", "seeds", "budget"], headline_rows(folder)),
        markdown(["benchmark", "ratio", "ours", "alternative", "allocator", "threads"], speed),
    ]
    text = "\n".join(part for part in parts if part)
    return text or "No results have been recorded yet.\n"


HEAD = """# Results

Written by `tools/results_table.py` from the files in `results/`, which `biqe reproduce` wrote; do not edit. How each
table is made again: [docs/guides/reproduce.md](docs/guides/reproduce.md).

Before you compare: ours are figures on **validation** queries and published ones on test queries, unless a line says
otherwise. Ours are the mean ± standard deviation over seeds; with one seed there is no deviation. Settings, versions,
machine and fingerprints of every figure are in its file.
"""


SHOWN = ("HITS@1", "HITS@3", "HITS@10")
SINGLE = """## Single runs and trials

What no table asks for, on validation queries: runs under other settings, and whole rows (all unknowns right at once).
"""


def results_page(folder: Path) -> str:
    """RESULTS.md: every table, whether it was run or not, and single runs."""
    views, _ = tables.views(folder, quick=False)
    accuracy, _ = single_results(folder)
    header = ["result", "queries of", "model", "filters", "queries", "MRR (95 %)", *SHOWN, "published"]
    single = [f"{SINGLE}\n{markdown(header, accuracy)}"] if accuracy else []
    return "\n".join([HEAD, *(layout.to_markdown(view) for view in views), *single])


def headline_rows(folder: Path) -> list[list[str]]:
    """The figure that stands for each recipe that was run."""
    rows = []
    for view in tables.views(folder, quick=False)[0]:
        group, metric = view.table.headline
        column = view.table.headline_column
        for block in view.blocks:
            ours = block.real
            if ours is None or not ours.seeds:
                continue
            published = block.recipe.published
            theirs = None if published is None else published.figures.get(group, {}).get(metric)
            spread = ours.deviation.get(group, {}).get(metric)
            mean = layout.format_value(ours.mean.get(group, {}).get(metric), column.format) or "-"
            elsewhere = published is not None and published.benchmark not in (None, block.recipe.benchmark)
            rows.append(
                [
                    f"[{view.table.name}](RESULTS.md#{view.table.name})",
                    block.recipe.label,
                    layout.headline_label(view.table),
                    mean
                    + (f" ({ours.settings['sample']:,} queries of each shape)" if ours.settings.get("sample") else "")
                    + (f" ± {layout.format_value(spread, column.format)}" if spread is not None else ""),
                    (layout.format_value(theirs, column.format, published=True) or "-")
                    + (" (another graph)" if elsewhere and theirs is not None else ""),
                    str(len(ours.seeds)),
                    ours.budget or "-",
                ]
            )
    return rows


def updated(page: str, results: str) -> str:
    """``page`` with the text between the marks replaced."""
    before, begin, rest = page.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not (begin and end):
        raise SystemExit(f"README.md needs the marks {BEGIN} and {END}")
    return f"{before}{BEGIN}\n{results}{END}{after}"


def main(arguments: Sequence[str] | None = None) -> int:
    """Rewrite both pages, or compare them."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--check", action="store_true", help="compare only; exit code 1 if a page is out of date")
    parser.add_argument("--root", type=Path, default=ROOT, help="the checkout")
    options = parser.parse_args(arguments)
    readme, page = options.root / "README.md", options.root / "RESULTS.md"
    folder = options.root / "results"
    wanted = {readme: updated(readme.read_text("utf-8"), section(folder)), page: results_page(folder)}
    late = [path.name for path, text in wanted.items() if not path.exists() or path.read_text("utf-8") != text]
    if options.check and late:
        print(f"out of date with results/: {' and '.join(late)}; run tools/results_table.py")
        return 1
    for path in late:
        (options.root / path).write_text(wanted[options.root / path], "utf-8")
    print("results: README.md and RESULTS.md show what results/ holds")
    return 0


if __name__ == "__main__":
    sys.exit(main())
