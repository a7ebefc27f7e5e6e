"""``biqe.__all__`` is what the package offers, for people and for type checkers alike."""

from __future__ import annotations

import ast
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


def test_an_unknown_name_is_an_attribute_error():
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        _ = biqe.nothing
