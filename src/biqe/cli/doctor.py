"""``biqe doctor``: check the installation or a graph folder, and plan the memory and time of training.

A check says what it found, whether that is all right, and what to do if not.
"""

from __future__ import annotations

import os
import platform
import shutil
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from pathlib import Path
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
    from biqe.training.plan import Plan

WELL, NOTE, BAD = "ok", "note", "bad"
LEAST_PYTHON = (3, 11)
NEEDED = ("torch", "numpy", "numba", "pyarrow", "pyoxigraph", "safetensors", "rich", "typer")
EXTRAS = {
    "serve": (("fastapi", "uvicorn", "orjson", "structlog", "prometheus_client"), "biqe serve"),
    "telemetry": (("opentelemetry.sdk",), "traces of a server's requests"),
}
"""Packages of each extra, and what it is for."""


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
    folder.load(place, verify=True)
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
    from biqe.graph import folder
    from biqe.training import session
    from biqe.training.plan import Sizes, measured_rate, plan

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


# The checks of an installation


@dataclass(frozen=True)
class Check:
    """The result of one check."""

    name: str
    state: str
    """ok, note (it works, but could be better) or bad."""
    found: str
    hint: str = ""


def checks() -> Iterator[Check]:
    """Run all checks. One that raises an error is reported as bad."""
    looks: tuple[Callable[[], Check], ...] = (
        _python,
        _packages,
        _extras,
        _cores,
        _rate,
        _memory,
        _allocator,
        _kernels,
        _data,
        _atlas,
        _disk,
    )
    for look in looks:
        try:
            yield look()
        except Exception as error:
            yield Check(look.__name__.strip("_"), BAD, f"{type(error).__name__}: {error}")


def _python() -> Check:
    state = WELL if sys.version_info[:2] >= LEAST_PYTHON else BAD
    hint = "" if state == WELL else f"biqe needs Python {'.'.join(map(str, LEAST_PYTHON))} or newer"
    return Check("python", state, f"{platform.python_version()} on {platform.system()} {platform.machine()}", hint)


def _packages() -> Check:
    found, missing = [], []
    for name in NEEDED:
        try:
            found.append(f"{name} {version(name)}")
        except PackageNotFoundError:
            missing.append(name)
    if missing:
        return Check("packages", BAD, f"missing: {', '.join(missing)}", "pip install biqe")
    return Check("packages", WELL, ", ".join(found))


def _extras() -> Check:
    there, absent = [], []
    for extra, (packages, purpose) in EXTRAS.items():
        if all(_is_there(package) for package in packages):
            there.append(extra)
        else:
            absent.append(f"'biqe[{extra}]' for {purpose}")
    hint = f"pip install {', '.join(absent)}" if absent else ""
    return Check("extras", NOTE if absent else WELL, ", ".join(there) or "none", hint)


def _is_there(package: str) -> bool:
    try:
        return find_spec(package) is not None
    except ModuleNotFoundError:  # a part of a package that is not there at all
        return False


def _cores() -> Check:
    import torch

    allowed = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    threads = torch.get_num_threads()
    found = f"{allowed} cores, {threads} threads for matrix products"
    if threads < allowed:
        return Check("threads", NOTE, found, "training sets --threads itself; asking uses OMP_NUM_THREADS")
    load = os.getloadavg()[0] if hasattr(os, "getloadavg") else 0.0
    if load > allowed + 0.5:
        hint = "other programs use the cores; everything will take longer than it could"
        return Check("threads", NOTE, f"{found}, load {load:.1f}", hint)
    return Check("threads", WELL, found)


def _rate() -> Check:
    from biqe.training.plan import measured_rate

    return Check("speed", WELL, f"{measured_rate() / 1e9:,.0f} GFLOP/s in matrix products, just now")


def _memory() -> Check:
    free = available_bytes()
    if free is None:
        return Check("memory", NOTE, "the system does not say how much is free")
    hint = "" if free > 4 << 30 else "small graphs fit; see what yours needs with: biqe doctor GRAPH --plan"
    return Check("memory", WELL if free > 4 << 30 else NOTE, f"{free / 2**30:.1f} GiB available", hint)


def available_bytes() -> int | None:
    """Memory available to a new program; None if the system does not say."""
    try:
        lines = Path("/proc/meminfo").read_text().splitlines()
    except OSError:
        return None
    facts = dict(line.split(":", 1) for line in lines if ":" in line)
    return int(facts["MemAvailable"].split()[0]) * 1024 if "MemAvailable" in facts else None


def _allocator() -> Check:
    from biqe.evaluate.machine import allocator

    found = allocator()
    if found != "system":
        return Check("allocator", WELL, found)
    hint = "training asks it to keep freed memory; tcmalloc by LD_PRELOAD is a little faster still"
    return Check("allocator", WELL, "the system's", hint)


def _kernels() -> Check:
    """numba keeps compiled kernels beside the package, or in NUMBA_CACHE_DIR."""
    import biqe

    place = Path(os.environ.get("NUMBA_CACHE_DIR") or Path(biqe.__file__).parent)
    if os.access(place, os.W_OK):
        return Check("kernels", WELL, "compiled once and kept")
    hint = "set NUMBA_CACHE_DIR to a folder that you may write to, or every start compiles them again"
    return Check("kernels", NOTE, "cannot be kept where the package is installed", hint)


def _data() -> Check:
    from biqe.benchmarks.storage import data_folder

    place = data_folder()
    if place.is_dir():
        folders = sorted(path.name for path in place.iterdir() if path.is_dir())
        return Check("benchmark data", WELL, f"{', '.join(folders) or 'nothing'} in the data folder")
    hint = "only benchmarks need it: name the folder in BIQE_DATA; see what there is with: biqe benchmarks"
    return Check("benchmark data", NOTE, "no data folder", hint)


def _atlas() -> Check:
    from biqe import atlas
    from biqe.graph import folder

    folder.load(atlas.path(), verify=True)
    splits = atlas.load()
    entities, triples = len(splits.vocabulary.entities), len(splits.train) + len(splits.valid) + len(splits.test)
    there = (atlas.model_path() / "weights.safetensors").is_file()
    hint = "" if there else "the package was installed without its model; install it again"
    return Check("atlas", WELL if there else BAD, f"{entities:,} entities, {triples:,} triples, all files intact", hint)


def _disk() -> Check:
    free = shutil.disk_usage(Path.cwd()).free
    hint = "" if free > 2 << 30 else "runs keep two checkpoints; free some space"
    return Check("disk", WELL if free > 2 << 30 else NOTE, f"{free / 2**30:,.0f} GiB free here", hint)
