"""``biqe train``: train a model on a graph, or go on with a run."""

from __future__ import annotations

import dataclasses
import os
import signal
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from biqe.errors import InvalidOption

if TYPE_CHECKING:
    from biqe.train.loop import Result

DEFAULT_MINUTES = 10.0
_SHOWN = ("mrr", "hits@3", "hits@10", "auc", "apr")
"""Figures of a validation that its line shows."""


def train(
    context: typer.Context,
    graph: Annotated[
        str | None, typer.Argument(metavar="GRAPH|atlas", help="Graph folder, or atlas.", show_default=False)
    ] = None,
    out: Annotated[Path | None, typer.Option("--out", help="Run folder to make.", show_default=False)] = None,
    set_: Annotated[
        str | None,
        typer.Option(
            "--set", help="Folder of a mined set, or a benchmark: validates the run, and trains it.", show_default=False
        ),
    ] = None,
    data: Annotated[
        Path | None, typer.Option(help="Folder of benchmark files; else BIQE_DATA.", show_default=False)
    ] = None,
    start_from: Annotated[
        Path | None,
        typer.Option(help="Run of a link predictor (cqd) that a hybrid begins with.", show_default=False),
    ] = None,
    resume: Annotated[
        Path | None, typer.Option("--resume", help="Run folder to go on with; nothing else is needed.")
    ] = None,
    continue_: Annotated[
        str | None,
        typer.Option(
            "--continue",
            metavar="RUN",
            help="Run whose model a new run begins with; its graph may have grown since.",
            show_default=False,
        ),
    ] = None,
    graph_folder: Annotated[
        str | None,
        typer.Option(
            "--graph", metavar="GRAPH|LIVE", help="The graph, as an option; or a live graph.", show_default=False
        ),
    ] = None,
    minutes: Annotated[float | None, typer.Option(help=f"Length in minutes [default: {DEFAULT_MINUTES:g}].")] = None,
    links_minutes: Annotated[
        float | None,
        typer.Option(
            help="Of them: how many train a link predictor first, which a hybrid begins with [default: a sixth]."
        ),
    ] = None,
    epochs: Annotated[float | None, typer.Option(help="Length in epochs, instead of minutes.")] = None,
    seed: Annotated[int, typer.Option(help="Of weights, mining, order and dropout.")] = 0,
    online: Annotated[
        bool, typer.Option("--online/--fixed", help="Fresh paths and DAGs each epoch, or the set's own.")
    ] = True,
    model: Annotated[str | None, typer.Option(help="Name of the model [default: hybrid].", show_default=False)] = None,
    positions: Annotated[
        str | None, typer.Option(help="structure or paper: how biqe tells tokens apart.", show_default=False)
    ] = None,
    width: Annotated[int | None, typer.Option(help="Width of the model.", show_default=False)] = None,
    layers: Annotated[int | None, typer.Option(help="Layers of the model.", show_default=False)] = None,
    softmax: Annotated[
        str | None,
        typer.Option(help="full, sampled or auto: entities that a target is compared with.", show_default=False),
    ] = None,
    negatives: Annotated[
        int | None, typer.Option(help="Entities drawn a step, with --softmax sampled.", show_default=False)
    ] = None,
    threads: Annotated[int, typer.Option(help="Processor threads; 0 takes all cores.")] = 0,
    shard_entities: Annotated[
        bool, typer.Option("--shard-entities", help="Under torchrun: split entities and softmax over the ranks.")
    ] = False,
    option: Annotated[
        list[str] | None,
        typer.Option("--option", "-O", help="Any other setting, as NAME=VALUE; see below.", show_default=False),
    ] = None,
    json: Annotated[bool, typer.Option("--json", help="Print one JSON document at the end.")] = False,
) -> None:
    """Train a model and keep the best one by validation in RUN/model.

    Examples:

        biqe train kg/mine --minutes 30 --out runs/mine
        biqe train kg/g --set sets/cq --positions paper --out runs/paper
        biqe train kg/fb15k237 --model query2box --set fb15k237-q2b --out runs/q2b
        biqe train kg/g --epochs 5 -O dropout=0.2 --out runs/short
        biqe train kg/large --softmax sampled --negatives 8192 --out runs/large
        biqe train --resume runs/mine
        biqe train --continue runs/mine --graph kg/live --out runs/newer
        torchrun --nproc-per-node 4 -m biqe train kg/g --out runs/big

    Stop it at any moment, with Ctrl-C or worse, and go on with --resume. A run measured in epochs ends with the
    same weights as one that was never stopped. A run that was stopped exits with 130 (Ctrl-C) or 143 (a polite
    kill). Without a validation split there is no best model, and the last one is kept. -O takes every field that
    'biqe config --defaults' lists.
    """
    from biqe.cli._console import err, print_json
    from biqe.cli._settings import given_options, refuse_twice, split_options
    from biqe.train import session
    from biqe.train.ranks import is_first

    if resume is not None and (others := given_options(context, apart_from=("resume", "json"))):
        raise InvalidOption(
            f"--resume takes the run folder and nothing else: the run goes on as it began. Got {', '.join(others)}",
            hint=f"'biqe train --resume {resume}' goes on; other settings need a new run, which may begin with this "
            f"one's model: biqe train --continue {resume} --graph GRAPH --out NEW",
        )
    if data is not None:
        from biqe.cli._asked import is_benchmark

        if set_ is None or not is_benchmark(set_):
            raise InvalidOption(
                "--data is for benchmarks only", hint="name one with --set; 'biqe benchmarks' lists them"
            )
    if graph is not None and graph_folder is not None:
        raise InvalidOption(
            f"the graph is given twice, as {graph} and as --graph {graph_folder}", hint="leave one of them out"
        )
    graph = graph if graph is not None else graph_folder
    if resume is not None:
        folder = resume
    elif graph is None or out is None:
        raise InvalidOption("a new run needs a graph and --out", hint="biqe train GRAPH --minutes 10 --out RUN")
    else:
        folder = out

    def note(text: str) -> None:
        err.print(f"note: {text}", soft_wrap=True)

    with _Display(err, quiet=json) if is_first() else _Silent() as display:
        if resume is not None:
            result = session.resume(resume, listener=display, note=note)
        else:
            assert graph is not None
            own = {"positions": positions, "width": width, "layers": layers}
            shared = {"seed": seed, "online": online, "threads": threads}
            sampling = [
                f"{name}={value}"
                for name, value in (("softmax", softmax), ("negatives", negatives))
                if value is not None
            ]
            if continue_ is not None:
                from biqe.cli._continued import origin_of

                continue_, model = origin_of(continue_, own, start_from)
            elif start_from is not None and model is None:
                model = session.DEFAULT_MODEL
            named = model
            model = model or session.DEFAULT_MODEL
            train_options, model_options = split_options(model, option or [])
            refuse_twice(context, [*train_options, *model_options])
            for found, more in zip((train_options, model_options), split_options(model, sampling), strict=True):
                found |= more
            train_options |= {"shard_entities": True} if shard_entities else {}
            model_options |= {name: value for name, value in own.items() if value is not None}
            length = {"minutes": minutes, "epochs": epochs}
            length |= {name: train_options[name] for name in length if name in train_options}
            if length["minutes"] is None and length["epochs"] is None:
                length["minutes"] = DEFAULT_MINUTES
            train_options = {**shared, **train_options, **length}
            if links_minutes is not None:
                train_options["links_minutes"] = links_minutes
            if continue_ is None and start_from is None:
                given = train_options.get("links_minutes")
                model, train_options["links_minutes"] = session.choose(named, graph, length, given)
            if continue_ is None:
                config = session.settings(model, **train_options)
            else:
                from biqe.cli._continued import as_graph_folder

                _, kept, config = session.settings_of(continue_, **train_options)
                model_options = {**kept, **model_options}
                graph = as_graph_folder(graph, folder)
            if config.shard_entities and os.environ.get("WORLD_SIZE", "1") == "1":
                err.print(
                    "warning: --shard-entities has no effect on one process; "
                    "start several: torchrun --nproc-per-node N -m biqe train ...",
                    soft_wrap=True,
                )
            result = session.start(
                graph,
                folder,
                train_config=config,
                query_set=set_,
                data=data,
                model=model,
                model_options=model_options,
                start_from=start_from,
                continues=continue_,
                listener=display,
                note=note,
            )
    if not is_first():
        return
    facts = {"run": str(folder), "reason": result.reason, **dataclasses.asdict(result.place), **result.metrics}
    if not result.validated:
        facts["best"] = None
    if json:
        print_json(facts)
    else:
        _tell(folder, result)
    if result.reason == "interrupted":  # as shells count: 130 after Ctrl-C, 143 after a polite kill
        raise typer.Exit(128 + (result.signal or signal.SIGINT))


def _tell(folder: Path, result: Result) -> None:
    """How the run ended, and what to do with it, on standard output."""
    from biqe.cli._console import out as stdout

    if not result.validated:
        quality = "not validated" + (", the last weights are kept" if result.reason != "interrupted" else "")
    elif result.place.best < 0:
        quality = "not validated yet"
    else:
        quality = f"best validation {next(iter(result.metrics), 'mrr').upper()} {result.place.best:.4f}"
    stdout.print(
        f"{folder}: {result.reason} after {result.place.step:,} steps in {lasted(result.place.seconds)}; {quality}"
    )
    if result.reason == "interrupted":
        stdout.print(f"go on with: biqe train --resume {folder}", soft_wrap=True)
    else:
        stdout.print(f"ask it with: biqe ask {folder} 'SELECT …'", soft_wrap=True)


def lasted(seconds: float) -> str:
    """A length of time: in seconds below a minute, which would be 0.0 min.

    >>> lasted(4.21), lasted(59.97), lasted(90)
    ('4.2 s', '1.0 min', '1.5 min')
    """
    return f"{seconds:.1f} s" if round(seconds, 1) < 60 else f"{seconds / 60:.1f} min"


class _Silent:
    """A rank that shows nothing: rank 0 shows the run."""

    def __enter__(self) -> _Silent:
        return self

    def __exit__(self, *error: Any) -> None:
        """Nothing to close."""

    def stepped(self, fraction: float, facts: dict[str, Any]) -> None:
        """Shown by rank 0."""

    def validated(self, facts: dict[str, Any]) -> None:
        """Shown by rank 0."""


class _Display:
    """The run on standard error: a bar on a terminal, a line now and then elsewhere."""

    def __init__(self, console: Any, *, quiet: bool) -> None:
        from biqe.cli._console import progress

        self._console = console
        self._quiet = quiet
        self._progress = progress("training", 100)
        self._done = 0.0

    def __enter__(self) -> _Display:
        self._advance = self._progress.__enter__()
        return self

    def __exit__(self, *error: Any) -> None:
        self._progress.__exit__(*error)

    def stepped(self, fraction: float, facts: dict[str, Any]) -> None:
        """Move the bar and show loss and speed."""
        done = int(1000 * fraction) / 10
        note = f"loss {facts['loss']:.3f}, {facts['queries_per_second']:,.0f} queries/s"
        self._advance(round(done - self._done, 1), note=note)
        self._done = done

    def validated(self, facts: dict[str, Any]) -> None:
        """Print a line about the validation."""
        if not self._quiet:
            self._console.print(
                f"{facts['of'] + ': ' if 'of' in facts else ''}"
                f"validation at {lasted(facts['seconds'])}, step {facts['step']:,}: "
                + ", ".join(f"{name.upper()} {facts[name]:.4f}" for name in _SHOWN if name in facts)
            )
