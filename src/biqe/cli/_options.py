"""Arguments and options that several commands share, and functions that read their values."""

from __future__ import annotations

import dataclasses
import difflib
import os
import re
import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from biqe.errors import InvalidOption, UnreadableFile

Target = Annotated[
    str, typer.Argument(metavar="RUN|atlas", help="atlas, or a run, model or graph folder.", show_default=False)
]
Graph = Annotated[str, typer.Argument(metavar="GRAPH", help="Graph folder, run folder, or: atlas.", show_default=False)]
GraphFolder = Annotated[
    Path | None, typer.Option(help="Graph folder to use, where a run's own was moved.", show_default=False)
]
Known = Annotated[
    str | None,
    typer.Option(help="What counts as known: complete or train. Default: as the graph says.", show_default=False),
]
Top = Annotated[int, typer.Option(help="Predicted rows, at most.")]
# Far more threads than any machine has cores cannot be started, and end the program.
Threads = Annotated[int | None, typer.Option(min=1, max=1024, help="Processor threads.", show_default=False)]
Device = Annotated[
    str, typer.Option("--device", help="Where the model computes: cpu, cuda, mps, or auto: a GPU if there is one.")
]
DataFolder = Annotated[
    Path | None, typer.Option("--data", help="Folder of benchmark files. Default: BIQE_DATA.", show_default=False)
]
Width = Annotated[int | None, typer.Option(help="Width of the model.", show_default=False)]
Layers = Annotated[int | None, typer.Option(help="Layers of the model.", show_default=False)]
Softmax = Annotated[
    str | None,
    typer.Option(
        help="Entities that a target is compared with: full (all), sampled, or auto (sampled from 100,000 on).",
        show_default=False,
    ),
]
ShardEntities = Annotated[
    bool, typer.Option("--shard-entities", help="Under torchrun: split the table of entities over the processes.")
]
Settings = Annotated[
    list[str] | None,
    typer.Option(
        "--option",
        "-O",
        metavar="NAME=VALUE",
        help="Any other setting; may be repeated. 'biqe config --defaults' lists them.",
        show_default=False,
    ),
]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON document and nothing else.")]


def default_folder(parent: str, source: str | Path) -> Path:
    """Where what is made of a file or a folder goes unless the user says otherwise.

    >>> str(default_folder("kg", Path("data/my films.nt.gz"))), str(default_folder("runs", "kg/films/"))
    ('kg/my-films', 'runs/films')
    """
    source = Path(source)
    name = source.name.removesuffix(".gz")
    name = name if source.is_dir() else name.rpartition(".")[0] or name
    return Path(parent) / (re.sub(r"[^\w.-]+", "-", name).strip("-.") or "graph")


def free_folder(parent: str, source: str | Path) -> Path:
    """As ``default_folder``, with a number behind the name where there is such a folder already."""
    first = default_folder(parent, source)
    names = (first.name, *(f"{first.name}-{number}" for number in range(2, 10_000)))
    return next(folder for folder in map(first.with_name, names) if not os.path.lexists(folder))


def graph_place(name: str) -> Path:
    """The graph folder that a user means: ``atlas`` is the embedded one, a run the graph that it was trained on."""
    from biqe import atlas
    from biqe.knowledge_base.locate import graph_of_run

    if name == "atlas":
        return Path(atlas.path())
    return graph_of_run(Path(name)) if (Path(name) / "run.json").is_file() else Path(name)


def query_text(query: str | None, target: str, *, command: str = "ask") -> str:
    """The text of a query: ``query`` itself, the file of ``@FILE``, or standard input for ``-`` and None.

    If standard input has no query, the error shows an example for ``command`` and ``target``.
    """
    from biqe.query.scan import MAX_CHARACTERS

    if query is None or query == "-":
        try:
            text = "" if sys.stdin is None else sys.stdin.read(MAX_CHARACTERS + 1)
        except UnicodeDecodeError as error:
            raise UnreadableFile(f"standard input is not UTF-8 text: {error}") from error
        if query is None and not text.strip():
            raise InvalidOption(
                "no query was given",
                hint=f"biqe {command} {target} 'SELECT ?x WHERE {{ ... }}'; @FILE reads a file, - standard input",
            )
        place = "standard input"
    elif query.startswith("@"):
        place = f"query file {query[1:]}"
        try:
            with open(query[1:], encoding="utf-8-sig") as file:
                text = file.read(MAX_CHARACTERS + 1)
        except OSError as error:
            raise UnreadableFile(f"{place} cannot be read: {error.strerror or error}") from error
        except UnicodeDecodeError as error:
            raise UnreadableFile(f"{place} is not UTF-8 text: {error}") from error
    else:
        return query
    if len(text) > MAX_CHARACTERS:
        raise UnreadableFile(f"{place} has more than {MAX_CHARACTERS:,} characters, the most that are read")
    return text


def given_options(context: typer.Context, *, apart_from: tuple[str, ...] = ()) -> list[str]:
    """Names of the options that the user has given on the command line."""
    return [
        "/".join([*parameter.opts[:1], *parameter.secondary_opts[:1]])
        if parameter.param_type_name == "option"
        else "GRAPH"
        for parameter in context.command.params
        if parameter.name not in (None, *apart_from)
        and (source := context.get_parameter_source(parameter.name)) is not None
        and source.name == "COMMANDLINE"
    ]


def read_settings(
    context: typer.Context, model: str, words: list[str] | None, **options: Any
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Training settings and model settings: the ``NAME=VALUE`` words of -O, and ``options`` that are not None.

    InvalidOption if a setting is given twice, with -O and as an option of its own.
    """
    found = parse_settings(model, words or [])
    given = {option for spelt in given_options(context) for option in spelt.split("/")}
    for name in (*found[0], *found[1]):
        spelt = "--" + name.replace("_", "-")
        if spelt in given:
            raise InvalidOption(f"{name!r} is given twice, as {spelt} and with -O", hint="leave one of them out")
    train_fields, model_fields = _fields(model)
    for name, value in options.items():
        if value is not None:
            # A model may have a setting of the same name, such as the number of negatives; then it is meant.
            found[1 if name in model_fields or name not in train_fields else 0][name] = value
    return found


def parse_settings(model: str, words: list[str]) -> tuple[dict[str, Any], dict[str, Any]]:
    """``NAME=VALUE`` words as training settings and model settings, with values of the right type."""
    train_fields, model_fields = _fields(model)
    found: tuple[dict[str, Any], dict[str, Any]] = {}, {}
    for word in words:
        name, equals, text = word.partition("=")
        name = name.strip().replace("-", "_")
        if not equals:
            raise InvalidOption(f"a setting is written NAME=VALUE. Got {word!r}", hint="for example -O dropout=0.2")
        if name in model_fields:  # before training settings, for models with negatives of their own
            found[1][name] = _value(name, text.strip(), model_fields[name])
        elif name in train_fields:
            found[0][name] = _value(name, text.strip(), train_fields[name])
        else:
            near = difflib.get_close_matches(name, [*train_fields, *model_fields], 1)
            raise InvalidOption(
                f"there is no setting {name!r}",
                hint=f"did you mean {near[0]!r}?" if near else "see them all with: biqe config --defaults",
            )
    return found


def _fields(model: str) -> tuple[dict[str, str], dict[str, str]]:
    """Names and types of the training settings, and of the settings of ``model``."""
    from biqe.models._catalogue import module_of
    from biqe.training.config import TrainConfig

    train, own = (
        {field.name: str(field.type) for field in dataclasses.fields(kind)}
        for kind in (TrainConfig, module_of(model).Config)
    )
    return train, own


def _value(name: str, text: str, kind: str) -> Any:
    kind = kind.partition(" | ")[0]
    try:
        if kind == "bool":
            return {"true": True, "yes": True, "1": True, "false": False, "no": False, "0": False}[text.lower()]
        return {"int": int, "float": float}.get(kind, str)(text)
    except (ValueError, KeyError) as error:
        raise InvalidOption(
            f"{name!r} takes a value of type {kind}. Got {text!r}", hint="'biqe config --defaults' lists all settings"
        ) from error
