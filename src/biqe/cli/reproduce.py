"""``biqe reproduce``: a table of the paper again. ``biqe results``: all that was found, beside what was published."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from biqe.cli._options import Device

if TYPE_CHECKING:
    from biqe.reproduce.job import Job

WORK = Path("runs/reproduce")
RESULTS = Path("results")


def reproduce(
    table: Annotated[str, typer.Argument(metavar="TABLE", help="Name of the table; see below.", show_default=False)],
    quick: Annotated[bool, typer.Option("--quick", help="A smoke test of a few minutes, marked as one.")] = False,
    seeds: Annotated[int, typer.Option(help="Runs of each recipe, with seeds 0, 1, ...")] = 1,
    resume: Annotated[
        bool, typer.Option("--resume", help="Go on: done stays done, failed jobs are tried again.")
    ] = False,
    only: Annotated[
        str | None, typer.Option(metavar="MODEL", help="One recipe of the table.", show_default=False)
    ] = None,
    minutes: Annotated[
        float | None, typer.Option(help="Train each for so long in all, not as its recipe says.", show_default=False)
    ] = None,
    sample: Annotated[
        int | None, typer.Option(help="Rank so many queries of each shape, not all.", show_default=False)
    ] = None,
    split: Annotated[
        str | None,
        typer.Option(
            help="test, or valid, whose queries also chose the models. Default: test; valid for field.",
            show_default=False,
        ),
    ] = None,
    device: Device = "cpu",
    data: Annotated[
        Path | None, typer.Option(help="Folder of benchmark files; else BIQE_DATA.", show_default=False)
    ] = None,
    work: Annotated[Path, typer.Option(help="Folder for queue, graphs and runs.")] = WORK,
    results: Annotated[Path, typer.Option(help="Folder for results.")] = RESULTS,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Say what would be done, and do nothing.")] = False,
    json: Annotated[bool, typer.Option("--json", help="Print one JSON document and nothing else.")] = False,
) -> None:
    """Train and evaluate what a table compares, and print ours beside published.

    Examples:

        biqe reproduce cq-fb15k237 --quick
        biqe reproduce q2b-fb15k237 --seeds 3
        biqe reproduce q2b-fb15k237 --seeds 3 --resume
        biqe reproduce bio --only gqe --minutes 10 --dry-run
        biqe reproduce q2b-nell995 --only cqd --sample 1000

    Tables: q2b-fb15k237, q2b-nell995, cq-fb15k237, paths-fb15k237, cq-wn18rr, paths-wn18rr, bio, positions,
    no-future, attention, statistics, field.

    Slow models need hours to rank large sets; --sample ranks some queries of each shape, and the table says so.

    Stop it at any moment; --resume goes on, also in the middle of a training. The table shows why a job failed; the
    others go on.
    """
    from biqe.reproduce import job as jobs
    from biqe.reproduce import recipe as recipes

    chosen = recipes.load(table)
    asked = split or chosen.split
    listed = jobs.expand(chosen, seeds=seeds, only=only, quick=quick, split=asked, minutes=minutes, sample=sample)
    if dry_run:
        _show_plan(listed, results, as_json=json)
        return

    from biqe.cli._console import err, print_json
    from biqe.cli._console import out as stdout
    from biqe.models._device import device_named
    from biqe.reproduce import tables
    from biqe.reproduce.result import read_all
    from biqe.reproduce.runner import run_table
    from biqe.reproduce.work import Places

    if device != "cpu":
        device_named(device)  # refused now, and not once for each job
    places = Places(work, results, data, device)
    watcher = _Watcher(err, quiet=json)
    try:
        states = run_table(chosen, listed, places, resume=resume, watcher=watcher)
    except KeyboardInterrupt:
        given = {
            "--seeds": (seeds, 1),
            "--only": (only, None),
            "--minutes": (minutes, None),
            "--sample": (sample, None),
            "--split": (split, None),
            "--device": (device, "cpu"),
            "--data": (data, None),
            "--work": (work, WORK),
            "--results": (results, RESULTS),
        }
        words = [f" {option} {value}" for option, (value, usual) in given.items() if value != usual]
        again = f"biqe reproduce {table}{' --quick' if quick else ''}{''.join(words)} --resume"
        err.print(f"what was done is kept; go on with: {again}", soft_wrap=True)
        raise
    found = tables.compare(chosen, read_all(results / chosen.name), quick=quick)
    absent = {job.recipe.name: "its data is not at hand" for job in listed if states[job.name] == "not at hand"}
    if json:
        print_json({**tables.to_json(found), "jobs": states})
    else:
        stdout.print(tables.to_text(found, reasons=absent), end="", soft_wrap=True)
    if "failed" in states.values():
        err.print(
            f"{sum(state == 'failed' for state in states.values())} of {len(states)} jobs failed; "
            "--resume tries them again",
            soft_wrap=True,
        )
        raise typer.Exit(2)


def results_show(
    table: Annotated[str | None, typer.Option(help="One table, in full.", show_default=False)] = None,
    results: Annotated[Path, typer.Option(help="Folder of results.")] = RESULTS,
    json: Annotated[bool, typer.Option("--json", help="Print one JSON document and nothing else.")] = False,
) -> None:
    """Show all results: ours (mean ± sd over seeds) beside published.

    Examples:

        biqe results
        biqe results --table q2b-fb15k237
        biqe results --json

    One line a recipe, with the figure that stands for it; --table shows all figures of one table. Recipes without a
    result say so. Quick runs are shown with --table only.
    """
    from biqe.cli._console import out as stdout
    from biqe.cli._console import print_json
    from biqe.errors import UnreadableFile
    from biqe.reproduce import recipe as recipes
    from biqe.reproduce import tables
    from biqe.reproduce.result import read_all

    if results != RESULTS and not results.is_dir():
        raise UnreadableFile(f"{results} is not a folder of results", hint="biqe reproduce TABLE makes them")
    if table is not None:
        found = tables.compare(recipes.load(table), read_all(results))
        if json:
            print_json(tables.to_json(found))
        else:
            stdout.print(tables.to_text(found), end="", soft_wrap=True)
        return
    everything = tables.compare_all(results)
    if not json and not any(results.glob("**/*.json")):
        stdout.print(f"no results in {results}/: --results names another folder\n", soft_wrap=True)
    if json:
        print_json({"tables": [tables.to_json(found) for found in everything]})
    else:
        stdout.print(tables.overview(everything), soft_wrap=True, end="")


def _show_plan(listed: list[Job], results: Path, *, as_json: bool) -> None:
    from biqe.cli._console import out as stdout
    from biqe.cli._console import print_json, table
    from biqe.reproduce.result import done_as, path_of

    plan = [
        {
            "job": job.name,
            "benchmark": job.recipe.benchmark,
            "model": job.recipe.model,
            "budget": job.budget,
            "run": job.run_name if job.trains else None,
            "done": done_as(path_of(results, job), job),
            "settings": job.settings,
        }
        for job in listed
    ]
    if as_json:
        print_json(plan)
        return
    rows = [
        [item["job"], item["benchmark"], item["budget"] or "-", "done" if item["done"] else "to do"] for item in plan
    ]
    table(["job", "benchmark", "budget", "state"], rows, left=(0, 1, 2, 3))
    # Jobs that share a training run pay for it once; so do those whose models begin with the same one.
    all_jobs = [one for job in listed for one in (job, job.before) if one is not None and one.trains]
    runs = {job.run_name: float(job.train.get("minutes") or 0.0) for job in all_jobs}
    jobs, trainings = (
        f"{count} {word}{'' if count == 1 else 's'}" for count, word in ((len(plan), "job"), (len(runs), "training"))
    )
    stdout.print(f"{jobs}, {trainings}, {sum(runs.values()):g} minutes of training in all")


class _Watcher:
    """The queue on standard error: a line when a job begins and ends, and now and then one about how far it is."""

    EVERY = 30.0
    """Seconds between two lines about how far it is."""

    def __init__(self, console: Any, *, quiet: bool) -> None:
        self._console = console
        self._quiet = quiet
        self._told = 0.0

    def _say(self, text: str) -> None:
        if not self._quiet:
            self._console.print(text, soft_wrap=True)

    def began(self, job: Job, number: int, total: int) -> None:
        """Name the job."""
        self._told = time.monotonic()
        self._say(f"[{number}/{total}] {job.name}")

    def doing(self, step: str) -> None:
        """Name the step."""
        self._say(f"  {step}")

    def stepped(self, fraction: float, facts: dict[str, Any]) -> None:
        """Now and then, how far the training is."""
        self._now_and_then(f"{100 * fraction:.0f} % trained, loss {facts['loss']:.3f}")

    def validated(self, facts: dict[str, Any]) -> None:
        """The figures of a validation."""
        shown = [f"{name.upper()} {facts[name]:.4f}" for name in ("mrr", "hits@3", "auc", "apr") if name in facts]
        self._say(f"  validation at {facts['seconds'] / 60:.1f} min: {', '.join(shown)}")

    def ranked(self, done: int, total: int) -> None:
        """Now and then, how far the evaluation is."""
        self._now_and_then(f"{done:,} of {total:,} ranked")

    def _now_and_then(self, text: str) -> None:
        if time.monotonic() - self._told >= self.EVERY:
            self._told = time.monotonic()
            self._say(f"  {text}")

    def ended(self, job: Job, state: str, reason: str) -> None:
        """How the job ended."""
        if state != "done":
            self._console.print(f"  {job.name} {state}{f': {reason}' if reason else ''}", soft_wrap=True)
