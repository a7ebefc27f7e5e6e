"""``biqe doctor``: check the installation or a graph folder, and plan the memory and time of training."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from biqe.cli._options import (
    Json,
    Layers,
    Settings,
    ShardEntities,
    Softmax,
    Width,
    given_options,
    graph_place,
    read_settings,
)
from biqe.errors import InvalidOption

if TYPE_CHECKING:
    from biqe.train.plan import Plan


def doctor(
    context: typer.Context,
    graph: Annotated[
        str | None, typer.Argument(metavar="[GRAPH|atlas]", help="Graph folder to check.", show_default=False)
    ] = None,
    plan: Annotated[
        bool, typer.Option("--plan", help="Estimate the memory and time that training on the graph needs.")
    ] = False,
    model: Annotated[str, typer.Option(help="Model to plan for.")] = "biqe",
    width: Width = None,
    layers: Layers = None,
    softmax: Softmax = None,
    ranks: Annotated[int, typer.Option(help="Number of processes that train together.")] = 1,
    shard_entities: ShardEntities = False,
    option: Settings = None,
    json: Json = False,
) -> None:
    """Check the installation, or the files of a graph folder, or plan a run on a graph.

    Examples:

        biqe doctor
        biqe doctor kg/mine
        biqe doctor kg/mine --plan
        biqe doctor kg/large --plan --ranks 8 --shard-entities --width 128

    A plan estimates the memory of each process, the time of a step and of an epoch on this machine, and the data sent
    between processes. It measures this machine for half a second and writes nothing.
    """
    if not plan and (others := given_options(context, apart_from=("graph", "json"))):
        raise InvalidOption(
            f"{', '.join(others)} {'is' if len(others) == 1 else 'are'} for --plan only",
            hint=f"biqe doctor {graph or 'GRAPH'} --plan ...",
        )
    if plan:
        if graph is None:
            raise InvalidOption("--plan needs a graph", hint="biqe doctor GRAPH --plan")
        settings = read_settings(
            context,
            model,
            option,
            width=width,
            layers=layers,
            softmax=softmax,
            shard_entities=shard_entities or None,
        )
        _plan(graph, model, settings, ranks, json)
    elif graph is not None:
        _graph(graph, json)
    else:
        _installation(json)


def _installation(json: bool) -> None:
    from biqe.cli._console import out, print_json
    from biqe.cli._installation import BAD, NOTE, checks

    found = []
    marks = {"ok": "ok  ", NOTE: "note", BAD: "BAD "}
    for check in checks():
        found.append(check)
        if not json:
            out.print(f"{marks[check.state]}  {check.name}: {check.found}", soft_wrap=True)
            if check.hint:
                out.print(f"      {check.hint}", soft_wrap=True)
    bad = [check.name for check in found if check.state == BAD]
    if json:
        print_json({"checks": found, "well": not bad})
    elif bad:
        out.print(f"\n{len(bad)} of {len(found)} need attention: {', '.join(bad)}")
    else:
        out.print("\nEverything that biqe needs is installed. Try:")
        out.print("biqe ask atlas 'SELECT ?city WHERE { ?city :located_on :Rhine }'", soft_wrap=True)
    if bad:
        raise typer.Exit(2)


def _graph(name: str, json: bool) -> None:
    from biqe.cli._console import out, print_json
    from biqe.graph import folder

    place = graph_place(name)
    folder.verify(place)
    manifest = folder.load_manifest(place)
    facts = {key: manifest[key] for key in ("entities", "relations", "triples", "fingerprint")}
    if json:
        print_json({"graph": name, "whole": True, **facts})
        return
    counts = ", ".join(f"{count:,} {split}" for split, count in manifest["triples"].items())
    out.print(
        f"{name} is intact: {manifest['entities']:,} entities, {manifest['relations']:,} relations; triples: {counts}",
        soft_wrap=True,
    )
    out.print(f"plan a training run with: biqe doctor {name} --plan", soft_wrap=True)


def _plan(name: str, model: str, settings: tuple[dict[str, Any], dict[str, Any]], ranks: int, json: bool) -> None:
    from biqe.cli._console import out, print_json, table
    from biqe.cli._installation import available_bytes
    from biqe.graph import folder
    from biqe.train import session
    from biqe.train.plan import Sizes, measured_rate, plan

    train_options, model_options = settings
    if "minutes" not in train_options:
        train_options.setdefault("epochs", 1.0)
    config = session.settings(model, **train_options)
    sizes = Sizes.of(folder.load(graph_place(name)), config.triple_answers)
    found = plan(sizes, config, model=model, options=model_options, ranks=ranks, rate=measured_rate())
    free = available_bytes()
    if json:
        print_json({"graph": name, "model": model, **_facts(found), "available_bytes": free})
        return
    out.print(
        f"{name}: {sizes.entities:,} entities, {sizes.triples:,} training triples; {model}, softmax {found.softmax}, "
        + (f"{ranks} ranks" + (", entities split" if config.shard_entities else "") if ranks > 1 else "one process")
    )
    rows: list[tuple[str, object]] = [(part, _size(size)) for part, size in found.memory.items()]
    table(["memory of each process", ""], [*rows, ("total, at most", _size(found.total))])
    rows = [
        ("operations a step", f"{found.step_flop / 1e9:,.1f} GFLOP"),
        ("time of a step, on this machine now", _time(found.step_seconds)),
        ("steps an epoch", f"{found.steps_an_epoch:,}"),
        ("time of an epoch", _time(3600 * found.epoch_hours)),
        ("sent by each process in a step", _size(found.traffic)),
        ("two checkpoints on disk", _size(2 * found.checkpoint)),
    ]
    table(["time and traffic", ""], rows)
    out.print(_verdict(found, free), soft_wrap=True)


def _facts(found: Plan) -> dict[str, Any]:
    import dataclasses

    return {**dataclasses.asdict(found), "total_bytes": found.total, "epoch_hours": found.epoch_hours}


def _verdict(found: Plan, free: int | None) -> str:
    if free is None:
        return "Compare the memory with what this machine has."
    together = found.total * found.ranks
    where = "this machine, for all processes together" if found.ranks > 1 else "this machine"
    if together < 0.8 * free:
        return f"It fits: {_size(together)} of the {_size(free)} available on {where}."
    largest = max(found.memory, key=found.memory.__getitem__)
    advice = {
        "an epoch's queries": "more ranks share an epoch's queries",
        "gradients": "--softmax sampled makes gradients small",
        "logits": "--softmax sampled makes logits small",
        "activations": "-O batch_tokens=1000 halves them",
        "program": "fewer ranks, or more machines, make room",
    }.get(largest, "a smaller --width, or --ranks N --shard-entities, makes tables smaller")
    return (
        f"It hardly fits, or not at all: {_size(together)} of the {_size(free)} available on {where}. "
        f"Most of it is {largest}: {advice}."
    )


def _size(size: float) -> str:
    for unit, bytes_ in (("GiB", 2**30), ("MiB", 2**20), ("KiB", 2**10)):
        if size >= bytes_:
            return f"{size / bytes_:,.1f} {unit}"
    return f"{size:,.0f} bytes"


def _time(seconds: float) -> str:
    if seconds < 1:
        return f"{1000 * seconds:,.0f} ms"
    for unit, length in (("days", 86400.0), ("h", 3600.0), ("min", 60.0)):
        if seconds >= 2 * length:
            return f"{seconds / length:,.1f} {unit}"
    return f"{seconds:,.1f} s"
