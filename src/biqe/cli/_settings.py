"""Settings on the command line: options of their own, and NAME=VALUE words behind -O."""

from __future__ import annotations

import dataclasses
from typing import Any

import typer

from biqe.errors import InvalidOption


def given_options(context: typer.Context, *, apart_from: tuple[str, ...]) -> list[str]:
    """Options that stand on the command line, by their names there."""
    return [
        "/".join([*parameter.opts[:1], *parameter.secondary_opts[:1]])
        if parameter.param_type_name == "option"
        else "GRAPH"
        for parameter in context.command.params
        if parameter.name not in (None, *apart_from)
        and (source := context.get_parameter_source(parameter.name)) is not None
        and source.name == "COMMANDLINE"
    ]


def refuse_twice(context: typer.Context, settings: list[str]) -> None:
    """Refuse settings of -O that stand on the command line as options of their own, too."""
    given = {option for spelt in given_options(context, apart_from=()) for option in spelt.split("/")}
    for name in settings:
        spelt = "--" + name.replace("_", "-")
        if spelt in given:
            raise InvalidOption(f"{name!r} is given twice, as {spelt} and with -O", hint="leave one of them out")


def split_options(model: str, given: list[str]) -> tuple[dict[str, Any], dict[str, Any]]:
    """``NAME=VALUE`` words as training settings and model settings, with values of the fields' types."""
    from biqe.models._catalogue import module_of
    from biqe.train.config import TrainConfig

    train_fields = {field.name: field for field in dataclasses.fields(TrainConfig)}
    model_fields = {field.name: field for field in dataclasses.fields(module_of(model).Config)}
    found: tuple[dict[str, Any], dict[str, Any]] = {}, {}
    for word in given:
        name, equals, text = word.partition("=")
        name = name.strip().replace("-", "_")
        if not equals:
            raise InvalidOption(f"a setting is written NAME=VALUE. Got {word!r}", hint="for example -O dropout=0.2")
        if name in model_fields:  # first, for models that draw negatives of their own
            found[1][name] = _value(name, text.strip(), str(model_fields[name].type))
        elif name in train_fields:
            found[0][name] = _value(name, text.strip(), str(train_fields[name].type))
        else:
            import difflib

            near = difflib.get_close_matches(name, [*train_fields, *model_fields], 1)
            raise InvalidOption(
                f"there is no setting {name!r}",
                hint=f"did you mean {near[0]!r}?" if near else "see them all with: biqe config --defaults",
            )
    return found


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
