"""``biqe.__all__`` is what the package offers, for people and for type checkers alike."""

from __future__ import annotations

import ast
import inspect
from pathlib import Path

import pytest

import biqe


@pytest.mark.parametrize("name", biqe.__all__)
def test_every_public_name_resolves(name):
    assert getattr(biqe, name) is not None
    assert name in dir(biqe)


def test_all_is_sorted_and_without_duplicates():
    assert biqe.__all__ == sorted(set(biqe.__all__))


def test_type_checkers_see_the_same_names_as_run_time():
    tree = ast.parse(Path(biqe.__file__).read_text("utf-8"))
    guarded = next(n for n in tree.body if isinstance(n, ast.If) and ast.unparse(n.test) == "TYPE_CHECKING")
    seen = {
        alias.asname or alias.name: f"{statement.module}:{alias.name}"
        for statement in guarded.body
        if isinstance(statement, ast.ImportFrom)
        for alias in statement.names
    }
    assert seen == biqe._HOMES
    assert {*seen, "__version__"} == set(biqe.__all__)


def test_dir_shows_what_is_public_and_nothing_else():
    assert dir(biqe) == biqe.__all__
    _ = biqe.Graph, biqe.open
    assert dir(biqe) == biqe.__all__


NAMES = sorted(set(biqe.__all__) - {"__version__"})


@pytest.mark.parametrize("name", NAMES)
def test_every_public_name_says_what_it_is_for_with_an_example(name):
    """The examples run in test_docs.py."""
    value = getattr(biqe, name)
    assert ">>> " in (inspect.getdoc(value) or ""), f"{name} has no example"
    if inspect.isclass(value):
        own = {key: item for key, item in vars(value).items() if not key.startswith("_")}
        silent = [key for key, item in own.items() if inspect.isroutine(item) and not inspect.getdoc(item)]
        assert silent == []


@pytest.mark.parametrize("name", ["open", "train", "parse", "load_model"])
def test_public_functions_tell_their_types(name):
    hints = inspect.signature(getattr(biqe, name))
    assert all(parameter.annotation is not inspect.Parameter.empty for parameter in hints.parameters.values())


def test_the_reference_page_has_every_public_name():
    page = Path(biqe.__file__).parents[2] / "docs" / "reference" / "python.md"
    listed = [line.removeprefix("::: ") for line in page.read_text("utf-8").splitlines() if line.startswith("::: ")]
    assert sorted(listed) == sorted(home.replace(":", ".") for home in biqe._HOMES.values())


def test_an_unknown_name_is_an_attribute_error():
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        _ = biqe.nothing
