"""``biqe train``: train a model on a graph, resume a run, or continue one on a graph that has grown."""

from __future__ import annotations

import dataclasses
import os
import signal
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from biqe.cli._options import (
    DataFolder,
    Device,
    Json,
    Layers,
    Settings,
    ShardEntities,
    Softmax,
    Width,
    free_folder,
    given_options,
    read_settings,
)
from biqe.errors import InvalidOption, UnreadableFile

if TYPE_CHECKING:
    from biqe.training.loop import Result

DEFAULT_MINUTES = 10.0
_SHOWN = ("mrr", "hits@3", "hits@10", "auc", "apr")
"""Metrics that the line about a validation shows."""


def train(
    context: typer.Context,
    graph: Annotated[
        str | None, typer.Argument(metavar="GRAPH|atlas", help="Graph folder, or atlas.", show_default=False)
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option("--out", help="Run folder to create. Default: runs/NAME, by the graph.", show_default=False),
    ] = None,
    set_: Annotated[
        str | None,
        typer.Option(
            "--set",
            help="Queries to validate on; also trained on with --fixed. Folder of a mined set, or a benchmark, whose "
            "own training queries are always used.",
            show_default=False,
        ),
    ] = None,
    data: DataFolder = None,
    start_from: Annotated[
        Path | None,
        typer.Option(help="Run of a link predictor (cqd) that a hybrid begins with.", show_default=False),
    ] = None,
    resume: Annotated[
        Path | None,
        typer.Option(
            "--resume",
            metavar="RUN",
            help="Stopped run to finish. Takes no option but --device.",
            show_default=False,
        ),
    ] = None,
    continue_: Annotated[
        str | None,
        typer.Option(
            "--continue",
            metavar="RUN",
            help="Run whose model the new run begins with. The graph may have grown since.",
            show_default=False,
        ),
    ] = None,
    graph_folder: Annotated[
        str | None,
        typer.Option(
            "--graph",
            metavar="GRAPH|LIVE",
            help="The graph, given as an option. With --continue it may be a live graph.",
            show_default=False,
        ),
    ] = None,
    minutes: Annotated[
        float | None,
        typer.Option(help=f"Length of the run in minutes. Default: {DEFAULT_MINUTES:g}.", show_default=False),
    ] = None,
    links_minutes: Annotated[
        float | None,
        typer.Option(
            help="Of the minutes: how many first train a link predictor, which a hybrid begins with. Default: three "
            "fifths below five minutes, else two fifths.",
            show_default=False,
        ),
    ] = None,
    epochs: Annotated[
        float | None, typer.Option(help="Length of the run in epochs, instead of minutes.", show_default=False)
    ] = None,
    seed: Annotated[int, typer.Option(help="Seed of weights, mining, order, dropout and held-out facts.")] = 0,
    online: Annotated[
        bool,
        typer.Option("--online/--fixed", help="Mine new paths and DAGs for each epoch, or train on those of --set."),
    ] = True,
    preset: Annotated[
        str | None,
        typer.Option(
            help="Settings by name: paper is BiQE as published, sized for two cores (4 layers, width 256); paper-base "
            "has BERT-base's size (12, 768). Options that you give yourself override it.",
            show_default=False,
        ),
    ] = None,
    model: Annotated[
        str | None,
        typer.Option(help="Model to train; 'biqe models' lists them. Default: hybrid.", show_default=False),
    ] = None,
    positions: Annotated[
        str | None,
        typer.Option(help="Positions of tokens in biqe: structure, or paper as published.", show_default=False),
    ] = None,
    width: Width = None,
    layers: Layers = None,
    softmax: Softmax = None,
    negatives: Annotated[
        int | None, typer.Option(help="Entities drawn for each step, with --softmax sampled.", show_default=False)
    ] = None,
    threads: Annotated[int, typer.Option(help="Processor threads; 0 uses all cores.")] = 0,
    device: Device = "auto",
    shard_entities: ShardEntities = False,
    option: Settings = None,
    json: Json = False,
) -> None:
    """Train a model on a graph. The best model by validation is kept in RUN/model.

    Examples:

        biqe train kg/mine --minutes 30
        biqe train kg/g --preset paper --out runs/paper
        biqe train kg/fb15k237 --model query2box --set fb15k237-q2b --out runs/q2b
        biqe train kg/g --epochs 5 -O dropout=0.2 --out runs/short
        biqe train kg/large --softmax sampled --negatives 8192 --out runs/large
        biqe train --resume runs/mine
        biqe train --continue runs/mine --graph kg/live --out runs/newer
        torchrun --nproc-per-node 4 -m biqe train kg/g --out runs/big

    A run can be stopped at any moment, with Ctrl-C, a kill or a power cut, and finished later with --resume. If its
    length is given in epochs, the weights at its end are the same, bit by bit. The exit code of a stopped run is 130
    after Ctrl-C and 143 after SIGTERM.

    A graph with fewer than 20 validation triples gets some of its training triples held out to validate on
    (RUN/held_out.npy); they still count as known when the model is asked. A graph that is too small for that is not
    validated, and the last weights are kept.
    """
    from biqe.cli._console import err, print_json
    from biqe.training import presets, session
    from biqe.training.adapt import adapted
    from biqe.training.ranks import is_first

    _check_options(context, graph, graph_folder, out, set_, data, resume)
    graph = graph if graph is not None else graph_folder

    def note(text: str) -> None:
        err.print(f"note: {text}", soft_wrap=True)

    with _Display(err, quiet=json) if is_first() else _Silent() as display, ExitStack() as stack:
        if resume is not None:
            folder = resume
            result = session.resume(resume, device=device, listener=display, note=note)
        else:
            assert graph is not None
            folder, origin = out or free_folder("runs", graph), None
            of_model = {"positions": positions, "width": width, "layers": layers}
            chosen = presets.chosen(preset, model, continued=continue_ is not None)
            if chosen is not None:
                model = chosen.model
            if continue_ is not None:
                origin, model = origin_of(continue_, of_model, start_from)
            named = model
            model = model or session.DEFAULT_MODEL
            train_options, model_options = read_settings(
                context,
                model,
                option,
                **of_model,
                softmax=softmax,
                negatives=negatives,
                minutes=minutes,
                epochs=epochs,
                links_minutes=links_minutes,
                shard_entities=shard_entities or None,
            )
            general = {"seed": seed, "online": online, "threads": threads}
            if chosen is not None:
                if "--online/--fixed" not in given_options(context):
                    del general["online"]
                general, model_options = {**chosen.train, **general}, {**chosen.model_config, **model_options}
            train_options = {**general, **train_options}
            if "minutes" not in train_options and "epochs" not in train_options:
                train_options["minutes"] = DEFAULT_MINUTES
            if origin is None and start_from is None:
                length = {name: train_options.get(name) for name in ("minutes", "epochs")}
                given = train_options.get("links_minutes")
                model, train_options["links_minutes"] = session.choose(named, graph, length, given)
            if origin is None:
                if chosen is None:
                    own_options, own_settings = adapted(model, session.triples_of(graph), train_options.get("minutes"))
                    model_options, train_options = {**own_options, **model_options}, {**own_settings, **train_options}
                config = session.settings(model, **train_options)
            else:
                _, kept, config = session.settings_of(origin, **train_options)
                model_options = {**kept, **model_options}
                graph = as_graph_folder(graph, folder)
            if chosen is not None and not config.online and set_ is None:
                set_ = str(stack.enter_context(presets.mined_once(graph, folder, config.seed)))
                note(f"a set of queries was mined to train on: {set_}")
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
                continues=origin,
                preset=preset,
                device=device,
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
        _show_result(folder, result)
    if result.reason == "interrupted":  # as shells count: 130 after Ctrl-C, 143 after SIGTERM
        raise typer.Exit(128 + (result.signal or signal.SIGINT))


def _check_options(
    context: typer.Context,
    graph: str | None,
    graph_folder: str | None,
    out: Path | None,
    set_: str | None,
    data: Path | None,
    resume: Path | None,
) -> None:
    """InvalidOption if options are missing, or do not go together."""
    if resume is not None and (others := given_options(context, apart_from=("resume", "device", "json"))):
        raise InvalidOption(
            f"--resume takes the run folder and nothing else: the run goes on as it began. Got {', '.join(others)}",
            hint=f"'biqe train --resume {resume}' goes on; other settings need a new run, which may begin with this "
            f"one's model: biqe train --continue {resume} --graph GRAPH --out NEW",
        )
    if data is not None:
        from biqe.cli._evaluation_queries import is_benchmark

        if set_ is None or not is_benchmark(set_):
            raise InvalidOption(
                "--data is for benchmarks only", hint="name one with --set; 'biqe benchmarks' lists them"
            )
    if graph is not None and graph_folder is not None:
        raise InvalidOption(
            f"the graph is given twice, as {graph} and as --graph {graph_folder}", hint="leave one of them out"
        )
    if resume is None and graph is None and graph_folder is None:
        raise InvalidOption("a new run needs a graph", hint="biqe train GRAPH --minutes 10")
    if resume is None and out is None and int(os.environ.get("WORLD_SIZE", "1")) > 1:
        raise InvalidOption("a run of several processes needs --out", hint="torchrun ... -m biqe train GRAPH --out RUN")


def _show_result(folder: Path, result: Result) -> None:
    """Print how the run ended, and what to do next."""
    from biqe.cli._console import out as stdout

    if not result.validated:
        quality = "not validated" + (", the last weights are kept" if result.reason != "interrupted" else "")
    elif result.place.best < 0:
        quality = "not validated yet"
    else:
        quality = f"best validation {next(iter(result.metrics), 'mrr').upper()} {result.place.best:.4f}"
    stdout.print(
        f"{folder}: {result.reason} after {result.place.step:,} steps in {duration(result.place.seconds)}; {quality}"
    )
    if result.weighed is not None:
        stdout.print(result.weighed.sentence(), soft_wrap=True)
        for line in result.weighed.lines():
            stdout.print(line, soft_wrap=True)
    if result.reason == "interrupted":
        stdout.print(f"go on with: biqe train --resume {folder}", soft_wrap=True)
    else:
        stdout.print(f"ask it with: biqe ask {folder} 'SELECT …'", soft_wrap=True)


def duration(seconds: float) -> str:
    """A length of time in words: seconds below a minute, else minutes.

    >>> duration(4.21), duration(59.97), duration(90)
    ('4.2 s', '1.0 min', '1.5 min')
    """
    return f"{seconds:.1f} s" if round(seconds, 1) < 60 else f"{seconds / 60:.1f} min"


class _Silent:
    """Shows nothing: with several ranks, only rank 0 shows the run."""

    def __enter__(self) -> _Silent:
        return self

    def __exit__(self, *error: Any) -> None: ...

    def stepped(self, fraction: float, facts: dict[str, Any]) -> None: ...

    def validated(self, facts: dict[str, Any]) -> None: ...


class _Display:
    """Shows the run on standard error: a progress bar on a terminal, else a line from time to time."""

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
        """Print the metrics of a validation."""
        if not self._quiet:
            self._console.print(
                f"{facts['of'] + ': ' if 'of' in facts else ''}"
                f"validation at {duration(facts['seconds'])}, step {facts['step']:,}: "
                + ", ".join(f"{name.upper()} {facts[name]:.4f}" for name in _SHOWN if name in facts)
            )


# The run that is continued


def origin_of(run: str, model_options: Mapping[str, Any], start_from: Path | None) -> tuple[str, str]:
    """Folder and model name of the run or model to continue; ``atlas`` is the embedded model. InvalidOption if options
    are given that only a new model takes."""
    from biqe import atlas
    from biqe.models.store import read_manifest

    if start_from is not None:
        raise InvalidOption("a run begins with one model's weights: give --continue or --start-from, not both")
    given = [name for name, value in model_options.items() if value is not None]
    if given:
        raise InvalidOption(
            f"a continued model stays as it was built. Got --{given[0]}", hint=f"leave out --{given[0]}"
        )
    folder = Path(atlas.model_path()) if run == "atlas" else Path(run)
    inner = folder / "model" if (folder / "run.json").is_file() else folder
    try:
        manifest = read_manifest(inner)
    except UnreadableFile as error:
        raise UnreadableFile(f"there is no model to continue: {error.message}", hint=error.hint) from error
    return str(folder), str(manifest["model"])


def as_graph_folder(graph: str, out: Path) -> str:
    """``graph`` itself if it is a graph folder; a live graph is copied into the run, as it is now."""
    from biqe.graph import folder as graph_folder
    from biqe.serve.live.generations import is_live_folder
    from biqe.training.run import GRAPH, check_free

    if graph == "atlas" or not is_live_folder(graph):
        return graph
    if int(os.environ.get("WORLD_SIZE", "1")) > 1:
        raise InvalidOption(
            "several processes cannot train on a live graph, which may change while they read it",
            hint="use one process, or continue on a graph folder",
        )
    from biqe.serve.live import LiveGraph

    check_free(out)
    live = LiveGraph(graph)
    view = live.snapshot()
    copy = out / GRAPH
    extra = {"known": view.known, "live_version": view.version}
    splits = replace(view.splits, literals=live.literals)
    graph_folder.save(splits, copy, prefixes=live.prefixes, extra=extra, force=True)
    live.copied(splits.fingerprint)  # so that the new model may answer over later versions of the live graph
    return str(copy)
