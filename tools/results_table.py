"""Write RESULTS.md and the results section of README.md from the files in results/, or check them.

results/TABLE/RECIPE/   what ``biqe reproduce`` wrote: RESULTS.md has every table, README.md a few rows (README_ROWS)
results/speed/          the last line of a speed benchmark, an object with ``ratio``, ours over the alternative: a
                        table at the end of RESULTS.md

Run without options to rewrite both pages, with ``--check`` to compare only (exit code 1 if one differs).
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from biqe.reproduce import tables
from biqe.reproduce.tables import Average, Comparison

ROOT = Path(__file__).resolve().parent.parent
BEGIN, END = "<!-- results:begin -->", "<!-- results:end -->"
README_ROWS = (
    ("q2b-fb15k237", "cqd"),
    ("q2b-fb15k237", "hybrid"),
    ("cq-fb15k237", "gqe-distmult-mp"),
    ("cq-fb15k237", "gqe-transe-mp"),
    ("cq-fb15k237", "cqd"),
    ("cq-fb15k237", "biqe"),
    ("cq-fb15k237", "hybrid"),
    ("cq-fb15k237", "hybrid-search"),
)
"""Table and recipe of the rows that README.md shows: those that were run, or of which a figure is published."""

CAVEAT = """Before you compare: ours are one seed each, trained for the minutes of one core that are shown, and on the
split that is named; **validation** queries also chose the models. Compare rows of equal minutes: rows of 2 minutes say
which model learns faster, not how far it comes. Published figures are on test queries. A row
named *Hybrid* is BiQE's encoder with a link predictor inside, not the paper's model. The queries of cq-fb15k237 were
mined by us as the paper mines them, and other true answers are filtered as in its authors' release, not as its text
says.
"""

HEAD = """# Results

## What is compared with what

- **Published** figures are copied from the papers named under each table, and are on test queries. **Ours** were
  trained and ranked here. The last column says on which split, with how many seeds, and how many minutes of processor
  time the training took *in all*, that of a link predictor which a model begins with included. Models are kept by
  validation queries, so ours on the validation split are a little too good.
- **CQ and Paths are a first round**: every model of a table had the same minutes in all, 2 on FB15k-237 and 1 on
  WN18RR, of one core; one seed; every figure on the test split. On cq-fb15k237, BiQE and GQE-DistMult-MP also had
  15 minutes, BiQE in single precision. So little time says which model learns faster, not
  how far it comes: the commands above the tables train 30 and 15 minutes. The processor multiplies bfloat16, so
  training did ([what that is worth](docs/decisions/0023-bfloat16.md)); ranking is in single precision. Compare rows
  of equal minutes; those that say `precision=single` are older. Times a query (ms/query) are by the clock on the
  wall, and longer than on an idle machine: this one had other work.
- *BiQE* is the paper's encoder, trained as the paper says; only it stands beside the paper's figures. *BiQE,
  structure* has other positions. *Hybrid* is that encoder with a link predictor inside: no paper has figures of it.
  What departs from the paper that a model comes from is said under its table, and so are options of a result that are
  not those of its recipe today (in the last column, as `name=value`).
- **The paper's text and its authors' release disagree about filters.** The text says that other true answers are left
  out that hold in the complete graph. The filters that the authors released are from the split's own graph (CQ), or
  from what the source reaches (Paths), which gives lower figures on CQ. Rows `released` and `complete` show both;
  published figures stand beside `released`.
- The CQ and Paths queries are mined by us as the paper describes it, not the authors' own; `biqe evaluate --release`
  ranks theirs. Bio's files cannot be had; rows named HPO are of another graph.
- Ours are the mean ± standard deviation over seeds; one seed has no deviation. Intervals, ties, settings, versions
  and fingerprints are in the file of each result under `results/`. The command above a table makes it again
  ([how](docs/guides/reproduce.md)).

`tools/results_table.py` writes this page from `results/`; do not edit it.
"""

SPEED = """## Speed

Each benchmark runs biqe and an alternative side by side; the ratio says how many times as fast biqe is. `make bench`
lists them.
"""


def readme_section(comparisons: Sequence[Comparison]) -> str:
    """The text between the marks of README.md."""
    rows, was_run = [], False
    for shown in comparisons:
        for results in shown.rows:
            found, best = tables.headline(results, shown.table), results.best
            if (shown.table.name, results.recipe.name) not in README_ROWS or not (found.ours or found.published):
                continue
            was_run |= bool(found.ours)
            about = [] if best is None else _about(best)
            rows.append(
                [
                    f"[{shown.table.name}](RESULTS.md#{shown.table.name})",
                    results.recipe.label,
                    tables.headline_label(shown.table),
                    (found.ours or "not run") + (f" ({', '.join(about)})" if found.ours and about else ""),
                    found.published or "-",
                    tables.minutes(best.seconds) if best is not None and best.budget else "-",
                ]
            )
    if not was_run:
        return "No results have been recorded yet.\n"
    header = ["table", "model", "figure", "ours", "published", "trained in all"]
    return f"{CAVEAT}\n{tables.markdown_table(header, rows)}"


def _about(best: Average) -> list[str]:
    """What a reader must know of a figure at once."""
    about = [str(best.settings["split"])] if best.settings.get("split") else []
    if best.settings.get("sample"):
        about.append(f"{best.settings['sample']:,} queries of each shape")
    return [*about, *(["older queries"] if best.of_other_queries else [])]


def speed_rows(folder: Path) -> list[list[str]]:
    """Rows of the speed table: all benchmark results in ``folder``."""
    rows = []
    for path in sorted(folder.glob("*.json")):
        result = json.loads(path.read_text("utf-8"))
        if not isinstance(result, dict) or "ratio" not in result:
            raise SystemExit(f"{path} is not the result of a speed benchmark: it has no ratio")
        rows.append(
            [
                f"[{path.stem}](results/speed/{path.name})",
                f"{result['ratio']:.1f}",
                _rate(result, "ours"),
                _rate(result, "alternative", "pyoxigraph"),
                str(result.get("allocator", "-")),
                str(result.get("threads", "-")),
            ]
        )
    return rows


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


def results_page(comparisons: Sequence[Comparison], speed: Sequence[Sequence[str]]) -> str:
    """RESULTS.md: every table, whether it was run or not, and the speed benchmarks."""
    parts = [HEAD, *map(tables.to_markdown, comparisons)]
    if speed:
        header = ["benchmark", "ratio", "ours", "alternative", "allocator", "threads"]
        parts.append(f"{SPEED}\n{tables.markdown_table(header, speed)}")
    return "\n".join(parts)


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
    readme, page, folder = options.root / "README.md", options.root / "RESULTS.md", options.root / "results"
    comparisons = tables.compare_all(folder, quick=False)
    wanted = {
        readme: updated(readme.read_text("utf-8"), readme_section(comparisons)),
        page: results_page(comparisons, speed_rows(folder / "speed")),
    }
    late = [path for path, text in wanted.items() if not path.exists() or path.read_text("utf-8") != text]
    if options.check and late:
        print(f"out of date with results/: {' and '.join(path.name for path in late)}; run tools/results_table.py")
        return 1
    for path in late:
        path.write_text(wanted[path], "utf-8")
    print("results: README.md and RESULTS.md show what results/ holds")
    return 0


if __name__ == "__main__":
    sys.exit(main())
