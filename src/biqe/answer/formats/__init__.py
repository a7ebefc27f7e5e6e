"""Formats of answers, one file each: ``write(result, view)`` gives the text.

A format is a file of this folder whose name has no leading underscore; ``sparql_json.py`` is called sparql-json. Where
it has a MEDIA_TYPE, the SPARQL endpoint offers it as well.
"""

from __future__ import annotations

from functools import cache
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING

from biqe.errors import InvalidOption

if TYPE_CHECKING:
    from biqe.answer.result import Result, View


@cache
def names() -> tuple[str, ...]:
    """Names of all formats."""
    stems = (path.stem for path in Path(__file__).parent.glob("*.py"))
    return tuple(sorted(stem.replace("_", "-") for stem in stems if not stem.startswith("_")))


def module_of(form: str) -> ModuleType:
    """The module of a format; InvalidOption for any other name."""
    if form not in names():
        raise InvalidOption(f"'format' must be one of {', '.join(names())}. Got {form!r}")
    return import_module(f"{__name__}.{form.replace('-', '_')}")


def write(result: Result, form: str, view: View) -> str:
    """A result in one of the formats."""
    return module_of(form).write(result, view)  # type: ignore[no-any-return]
