"""The examples in the docstrings of this room run and print what they say."""

from __future__ import annotations

import doctest
import importlib
import pkgutil

import pytest

import biqe.query

MODULES = sorted(module.name for module in pkgutil.iter_modules(biqe.query.__path__))
WITH_EXAMPLES = {"ast", "question", "subset", "bind", "dag", "nearest", "orient", "scan", "shapes", "sparql", "tokens"}


@pytest.mark.parametrize("name", MODULES)
def test_examples(name: str) -> None:
    result = doctest.testmod(importlib.import_module(f"biqe.query.{name}"))
    assert result.failed == 0
    if name in WITH_EXAMPLES:
        assert result.attempted > 0


def test_modules_are_found() -> None:
    assert WITH_EXAMPLES <= set(MODULES)
