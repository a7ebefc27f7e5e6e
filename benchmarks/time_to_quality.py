"""Time to a good answer: MRR on FB15k-237's mined DAGs after so many minutes of training.

    python benchmarks/time_to_quality.py                                    # 1, 2, 5, 10, 20 and 40 minutes of each way
    python benchmarks/time_to_quality.py --minutes 1,2,5 --work runs/time   # what is there already is not done again
    python benchmarks/time_to_quality.py ... --out results/speed/time_to_quality.json --plot time-to-quality.svg

Three ways are trained by ``biqe train``, each length a run of its own, since the learning rate falls over a run:

    plain    biqe train GRAPH             what a user gets who says nothing else
    paper    biqe train GRAPH --preset paper
    cqd      biqe train GRAPH --model cqd

Minutes are those of the processor (``-O clock=processor``), so that other work on the machine takes nothing away; the
processor time of the whole command, mining and weighing included, stands beside them. Validation DAGs are ranked under
filters from the split's own graph, as in the authors' release (split), and from the complete graph (complete); test
DAGs are not read. The last line is one JSON object.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from biqe import benchmarks
from biqe.benchmarks import OpenBenchmark
from biqe.evaluate import pictures
from biqe.evaluate.loop import evaluate_together
from biqe.evaluate.machine import machine, write_result
from biqe.evaluate.protocols import Cq
from biqe.evaluate.scoring import sample
from biqe.graph import folder
from biqe.models import store
from biqe.models._contract import use_graph
from biqe.query.bound import QuerySet

if TYPE_CHECKING:
    from matplotlib.figure import Figure

SET = "fb15k237-cq"
MINUTES = "1,2,5,10,20,40"
WAYS: Mapping[str, tuple[str, ...]] = {"plain": (), "paper": ("--preset", "paper"), "cqd": ("--model", "cqd")}
WORDS = {"plain": "biqe train", "paper": "--preset paper", "cqd": "--model cqd"}
PUBLISHED = 0.228
"""MRR of the paper on its own queries of this kind, filters from the split's own graph."""

Figures = Mapping[str, Mapping[str, Mapping[str, float]]]
"""Way, then minutes as written, then figure."""


def main() -> None:
    """Train and rank what is not there yet, report."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", default=MINUTES, help="lengths of runs (default: %(default)s)")
    parser.add_argument("--ways", default=",".join(WAYS), help="which ways (default: %(default)s)")
    parser.add_argument("--queries", type=int, default=500, help="DAGs that are ranked (default: %(default)s)")
    parser.add_argument("--quick", action="store_true", help="a few seconds of each way, 50 DAGs: shows that it runs")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--work", type=Path, help="folder for runs and figures; a temporary one where left out")
    parser.add_argument("--there", action="store_true", help="train nothing: report what the work folder has")
    parser.add_argument("--plot", type=Path, help="draw the figures there, as .svg or .png")
    parser.add_argument(
        "--out", type=Path, help="also write the result there, such as results/speed/time_to_quality.json"
    )
    options = parser.parse_args()
    if options.quick:
        options.minutes, options.queries = "0.2", 50
    lengths = [f"{float(length):g}" for length in options.minutes.split(",")]
    if unknown := set(ways := options.ways.split(",")) - WAYS.keys():
        parser.error(f"--ways must be some of {', '.join(WAYS)}. Got {', '.join(sorted(unknown))}")
    if options.plot is not None:
        pictures.check(options.plot)
    with tempfile.TemporaryDirectory() as temporary:
        work = options.work or Path(temporary)
        opened = benchmarks.open(SET)
        graph = work / "graph"
        if not folder.is_graph_folder(graph):
            folder.save(opened.splits, graph, extra={})
        found: dict[str, dict[str, dict[str, float]]] = {way: {} for way in ways}
        for length in lengths:  # short runs of all ways first
            for way in ways:
                run = work / f"{way}-{length}min-seed-{options.seed}"
                place = work / f"{run.name}-{options.queries}.json"
                if options.there and not place.exists():
                    continue
                figures = measured(way, length, graph, opened, run, place, options.queries, options.seed)
                found[way][length] = figures
                shown = ", ".join(f"{name} {value:.3f}" for name, value in figures.items())
                print(f"{way:>6} {length:>4} min: {shown}", flush=True)
    if options.plot is not None:
        pictures.save(lambda: curves(found), options.plot, "MRR after minutes of training")
    write_result(report(found, opened, options), options.out)


def measured(
    way: str, length: str, graph: Path, opened: OpenBenchmark, run: Path, place: Path, count: int, seed: int
) -> dict[str, float]:
    """Figures of one run, which are kept in ``place``; it is trained unless it is there."""
    if place.exists():
        return json.loads(place.read_text("utf-8"))  # type: ignore[no-any-return]
    spent = run.with_name(f"{run.name}.seconds")
    if not spent.exists():
        command = [sys.executable, "-m", "biqe", "train"]
        if (run / "run.json").exists():
            command += ["--resume", str(run)]
        else:
            command += [str(graph), "--out", str(run), "--minutes", length, "-O", "clock=processor"]
            command += ["--seed", str(seed), *WAYS[way]]
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        seconds = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
        spent.write_text(f"{seconds:.1f}\n", "utf-8")
    model = store.load(run / "model").model
    use_graph(model, opened.splits["train"])
    queries = opened.queries("valid")
    assert isinstance(queries, QuerySet)
    reports = evaluate_together(model, sample(queries, count), [Cq("split"), Cq("complete")], bootstrap=0)
    figures = {f"{report.filter_graph}": round(report.metrics["realistic"]["mrr"], 4) for report in reports}
    figures["processor_minutes_in_all"] = round(float(spent.read_text("utf-8")) / 60, 2)
    place.write_text(json.dumps(figures) + "\n", "utf-8")
    return figures


def report(found: Figures, opened: OpenBenchmark, options: argparse.Namespace) -> dict[str, Any]:
    """The result; its ratio is the MRR of the plain command over the best other way, in the longest runs that every way
    has."""
    about = machine()
    head = {"benchmark": "time_to_quality"}
    found = {way: runs for way, runs in found.items() if runs}
    shared = [length for length in found.get("plain", {}) if all(length in runs for runs in found.values())]
    if len(found) > 1 and shared:
        length = shared[-1]
        others = {way: runs[length]["split"] for way, runs in found.items() if way != "plain"}
        own, best = found["plain"][length]["split"], max(others, key=others.__getitem__)
        head |= {
            "ratio": round(own / others[best], 3),
            "ours": f"MRR {own:.3f} after {length} min of the processor",
            "alternative": f"MRR {others[best]:.3f} ({WORDS[best]})",
        }
    return {
        **head,
        "mrr": found,
        "split": "valid",
        "queries": options.queries,
        "set": {"name": SET, "fingerprint": opened.fingerprint},
        "published": PUBLISHED,
        "seed": options.seed,
        "allocator": about["allocator"],
        "threads": torch.get_num_threads(),
        "omp_num_threads": os.environ.get("OMP_NUM_THREADS"),
        "machine": about,
    }


def curves(found: Figures) -> Figure:
    """MRR over minutes, a line a way."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(7.5, 3.8), layout="constrained")
    for axes, kind, title in zip(
        figure.subplots(1, 2, sharex=True),
        ("split", "complete"),
        ("filters as released", "filters of the complete graph"),
        strict=True,
    ):
        axes.set_title(f"MRR, {title}", fontsize=10)
        axes.grid(axis="y")
        for (way, runs), (colour, line, marker) in zip(
            ((way, runs) for way, runs in found.items() if runs),
            ((pictures.BLUE, "-", "o"), (pictures.ORANGE, "--", "s"), (pictures.SOFT, ":", "^")),
            strict=False,
        ):
            points = sorted((float(length), figures[kind]) for length, figures in runs.items())
            axes.plot(*zip(*points, strict=True), color=colour, linestyle=line, marker=marker, label=WORDS[way])
        if kind == "split":
            axes.axhline(PUBLISHED, color=pictures.RULE, linewidth=1.0)
            axes.annotate("published, on test", (1.0, PUBLISHED), xytext=(0, 3), textcoords="offset points", fontsize=8)
        axes.set_xscale("log")
        lengths = sorted({float(length) for runs in found.values() for length in runs})
        axes.set_xticks(lengths, [f"{length:g}" for length in lengths])
        axes.minorticks_off()
        axes.set_xlabel("processor minutes of training")
        axes.set_ylim(bottom=0.0)
        axes.legend(loc="lower right", fontsize=8)
    return figure


if __name__ == "__main__":
    main()
