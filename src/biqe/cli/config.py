"""``biqe config``: settings of a run, all settings with their defaults, and how a trained model solves queries."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Annotated, Any

import typer

from biqe.cli._console import out as stdout
from biqe.cli._console import print_json, table
from biqe.cli._options import Json, parse_settings
from biqe.errors import InvalidOption


def config(
    run: Annotated[Path | None, typer.Argument(metavar="RUN", help="Run folder.", show_default=False)] = None,
    defaults: Annotated[bool, typer.Option("--defaults", help="List all settings, defaults and meanings.")] = False,
    model: Annotated[str, typer.Option(help="With --defaults: model whose settings to list.")] = "hybrid",
    solve: Annotated[
        list[str] | None,
        typer.Option(
            "--solve",
            metavar="NAME=VALUE",
            help="Change how the trained model solves queries; may be repeated. hybrid: search, search_beam, "
            "known. cqd: t_norm, beam, link, known.",
            show_default=False,
        ),
    ] = None,
    json: Json = False,
) -> None:
    """Show the settings of a run that differ from the defaults, or all settings.

    Examples:

        biqe config runs/mine
        biqe config --defaults
        biqe config runs/mine --solve search=0.5

    --solve changes the run's model for all commands that use it.
    """
    from biqe.models._catalogue import module_of
    from biqe.training.config import TrainConfig
    from biqe.training.run import Run

    if solve and (defaults or run is None):
        raise InvalidOption(
            "--solve changes a trained model, and needs its run folder", hint="biqe config runs/mine --solve search=0.5"
        )
    if defaults:
        rows = [
            (field.name, part, field.default, meaning)
            for part, kind in (("train", TrainConfig), (model, module_of(model).Config))
            for field, meaning in _fields_with_meaning(kind)
        ]
        if json:
            print_json([dict(zip(("name", "of", "default", "meaning"), row, strict=True)) for row in rows])
        else:
            table(
                ["setting", "of", "default", "meaning"], [[n, p, str(d), m] for n, p, d, m in rows], left=(0, 1, 2, 3)
            )
        return
    if run is None:
        raise InvalidOption("name a run folder, or use --defaults", hint="biqe config runs/mine")
    if solve:
        _show(_change_solving(run, solve), json)
        return
    record = Run.open(run).record
    standard = dataclasses.asdict(module_of(record["model"]).Config())
    changed = {
        **({"preset": record["preset"]} if record.get("preset") else {}),
        "graph": record["graph"]["path"],
        "set": (record.get("set") or {}).get("path"),
        "model": record["model"],
        **{key: value for key, value in record["model_config"].items() if standard.get(key) != value},
        **{
            field.name: record["train"][field.name]
            for field in dataclasses.fields(TrainConfig)
            if record["train"].get(field.name, field.default) != field.default
        },
    }
    _show(changed, json)


def _show(settings: dict[str, Any], json: bool) -> None:
    if json:
        print_json(settings)
        return
    for key, value in settings.items():
        stdout.print(f"{key} = {value}", soft_wrap=True)


def _change_solving(run: Path, words: list[str]) -> dict[str, Any]:
    """Change how the model of a run, or of a model folder, solves queries; returns the changed options."""
    from biqe.models import store
    from biqe.training.run import Run, is_run_folder

    folder = Run.open(run).model_folder if is_run_folder(run) else run
    name = store.read_manifest(folder)["model"]
    of_training, options = parse_settings(name, words)
    if of_training:
        raise InvalidOption(f"{next(iter(of_training))!r} is a setting of training, which is over")
    all_ = store.solve_by(folder, **options)
    return {key: all_[key] for key in options}


def _fields_with_meaning(kind: type) -> list[tuple[dataclasses.Field[Any], str]]:
    """Fields of a configuration class, each with the docstring below it."""
    import ast
    import inspect
    import textwrap

    body = ast.parse(textwrap.dedent(inspect.getsource(kind))).body[0].body  # type: ignore[attr-defined]
    meaning: dict[str, str] = {}
    for statement, after in zip(body, body[1:], strict=False):
        if isinstance(statement, ast.AnnAssign) and isinstance(after, ast.Expr):
            meaning[statement.target.id] = " ".join(after.value.value.split())  # type: ignore[union-attr, attr-defined]
    return [(field, meaning.get(field.name, "")) for field in dataclasses.fields(kind)]
