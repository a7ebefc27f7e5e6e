"""Models by name: every module of this folder without a leading underscore that defines MODEL, and outsiders
that announce themselves under the entry-point group ``biqe.models``."""

from __future__ import annotations

import dataclasses
import difflib
from importlib import import_module
from importlib.metadata import entry_points
from pathlib import Path
from types import ModuleType
from typing import Any

from biqe.errors import InvalidOption, UnknownName
from biqe.models._contract import QueryModel

MAX_OPTION = 1 << 24
"""Largest whole number of any option: with more, sizes of tensors overflow."""
_NOT_MODELS = {"__init__", "store"}


def names() -> list[str]:
    """Names of all models at hand."""
    here = {path.stem for path in Path(__file__).parent.glob("*.py")}
    inside = {stem for stem in here if not stem.startswith("_") and stem not in _NOT_MODELS}
    return sorted(inside | {point.name for point in entry_points(group="biqe.models")})


def presets() -> dict[str, tuple[str, dict[str, Any]]]:
    """Configurations that have a name of their own, as model and options: a module's PRESETS."""
    return {
        preset: (name, dict(options))
        for name in names()
        for preset, options in getattr(_import(name), "PRESETS", {}).items()
        if preset != name
    }


def class_of(name: str) -> type[QueryModel]:
    """The class of the model or preset called ``name``."""
    return module_of(name).MODEL  # type: ignore[no-any-return]


def module_of(name: str) -> ModuleType:
    """The module that defines the model or preset called ``name``."""
    if name not in names():
        found = presets()
        if name not in found:
            everything = sorted({*names(), *found})
            near = difflib.get_close_matches(name, everything, 1)
            hint = f"did you mean {near[0]!r}?" if near else None
            raise UnknownName(f"model {name!r} is not known; there are {', '.join(everything)}", hint=hint)
        name = found[name][0]
    return _import(name)


def defaults(name: str) -> dict[str, Any]:
    """The options of a model or preset, with their defaults."""
    return dataclasses.asdict(module_of(name).Config())


def _import(name: str) -> ModuleType:
    for point in entry_points(group="biqe.models"):
        if point.name == name:
            return point.load()  # type: ignore[no-any-return]
    return import_module(f"biqe.models.{name}")


def build(name: str, options: dict[str, Any], entity_count: int, relation_count: int) -> Any:
    """A fresh model, or preset of one; ``options`` are fields of its Config, and unknown ones are refused."""
    module = module_of(name)
    if name not in names():
        options = {**presets()[name][1], **options}
    known = {field.name for field in dataclasses.fields(module.Config)}
    for key in options:
        if key not in known:
            near = difflib.get_close_matches(key, known, 1)
            raise InvalidOption(
                f"{name} has no option {key!r}; it has {', '.join(sorted(known))}",
                hint=f"did you mean {near[0]!r}?" if near else None,
            )
        if isinstance(options[key], int) and options[key] > MAX_OPTION:
            raise InvalidOption(f"{key!r} must be at most {MAX_OPTION:,}. Got {options[key]:,}")
    return module.MODEL(module.Config(**options), entity_count, relation_count)
