"""Every exception that a user can meet derives from BiqeError, and the drawn tree in errors.py shows it."""

from __future__ import annotations

import ast
import builtins
import inspect
import re
from pathlib import Path

import pytest

from biqe import errors
from biqe.errors import BadLine, BiqeError, SparqlSyntax

SOURCE = Path(__file__).resolve().parents[2] / "src" / "biqe"
FILES = sorted(SOURCE.rglob("*.py"))
BUILT_IN = {
    name for name, value in vars(builtins).items() if inspect.isclass(value) and issubclass(value, BaseException)
}
PYTHON_PROTOCOL = {
    "IndexError",  # ends iteration over a sequence
    "AttributeError",  # __getattr__
    "KeyError",  # a mapping's __getitem__
    "KeyboardInterrupt",  # passing on what a signal handler was told
    "TypeError",  # an argument of another type: a mistake in the caller's code, not in a user's input
    "BlockingIOError",  # what a socket that does not block says when nobody has come
    "OSError",  # another library's report of a full disk, put back into Python's own form for whoever writes
}
"""Built-in exceptions that Python's own protocols ask for; all others are a BiqeError instead."""


def tree_of_docstring() -> dict[str, str]:
    """Parent of each class, as drawn: a name's indentation is its depth."""
    parents: dict[str, str] = {}
    line_of_descent: list[tuple[int, str]] = []
    for line in inspect.getdoc(errors).splitlines():
        match = re.match(r"^([\s│├└─]*)([A-Z]\w+)\s{2,}\S", line)
        if match:
            depth = len(match[1])
            line_of_descent = [(d, name) for d, name in line_of_descent if d < depth]
            if line_of_descent:
                parents[match[2]] = line_of_descent[-1][1]
            line_of_descent.append((depth, match[2]))
    return parents


def test_the_drawn_tree_is_the_real_one():
    classes = [c for c in vars(errors).values() if inspect.isclass(c) and issubclass(c, BaseException)]
    real = {c.__name__: c.__bases__[0].__name__ for c in classes if c is not BiqeError}
    assert tree_of_docstring() == real


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(SOURCE)))
def test_exception_classes_are_defined_in_errors_only(path):
    if path.name == "errors.py":
        return
    names = BUILT_IN | {name for name in vars(errors) if name[0].isupper()}
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        # One that never reaches a user may serve as a jump.
        is_private = isinstance(node, ast.ClassDef) and node.name.startswith("_")
        if (
            isinstance(node, ast.ClassDef)
            and not is_private
            and "Never reaches a caller." not in (ast.get_docstring(node) or "")
        ):
            bases = {ast.unparse(base).split(".")[-1] for base in node.bases}
            assert not bases & names, f"{node.name} belongs into errors.py"


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(SOURCE)))
def test_nothing_raises_a_bare_built_in(path):
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        if isinstance(node, ast.Raise) and node.exc is not None:
            raised = ast.unparse(node.exc.func if isinstance(node.exc, ast.Call) else node.exc)
            assert raised not in BUILT_IN - PYTHON_PROTOCOL, f"line {node.lineno} raises {raised}; use a BiqeError"


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(SOURCE)))
def test_no_exception_is_swallowed_whole(path):
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        if isinstance(node, ast.ExceptHandler) and (node.type is None or ast.unparse(node.type) == "Exception"):
            assert not all(isinstance(statement, ast.Pass) for statement in node.body), f"line {node.lineno}"


def test_message_and_hint_stay_apart():
    error = BiqeError("relation 'capitalOf' is not in this graph", hint="did you mean 'capital_of'?")
    assert (error.message, error.hint) == ("relation 'capitalOf' is not in this graph", "did you mean 'capital_of'?")
    assert str(error) == f"{error.message}\nhint: {error.hint}"
    assert str(BiqeError("x")) == "x"


def test_places_are_part_of_the_message():
    assert BadLine("a.tsv", 1234, "two columns").message == "a.tsv, line 1,234: two columns"
    assert SparqlSyntax("no", line=3, column=5).message == "line 3, column 5: no"
    assert SparqlSyntax("no").message == "no"
