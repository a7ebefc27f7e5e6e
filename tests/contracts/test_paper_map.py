"""docs/paper-map.md: each statement of the paper has its code and its test."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def check():
    spec = importlib.util.spec_from_file_location("check_paper_map", ROOT / "tools" / "check_paper_map.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_map_leads_to_code_and_tests_that_exist(check):
    assert list(check.faults((ROOT / "docs" / "paper-map.md").read_text("utf-8"), ROOT)) == []


HEAD = "| statement | code | test |\n|---|---|---|\n"
CODE, TEST = "`errors.py:BiqeError`", "`tests/contracts/test_paper_map.py::check`"


@pytest.mark.parametrize(
    ("row", "fault"),
    [
        (f"| x | {CODE} | {TEST} |", None),
        (f"| x | {CODE}, `errors.py:BiqeError.__str__` | {TEST} |", None),
        (f"| x | `errors.py:Nothing` | {TEST} |", "defines no Nothing"),
        (f"| x | `nothing.py:x` | {TEST} |", "there is no file nothing.py"),
        (f"| x | {CODE} | `tests/contracts/test_paper_map.py::test_nothing` |", "defines no test_nothing"),
        (f"| x | {CODE} | none |", "names nothing"),
        (f"| x | {CODE} |", "a row has 3 cells"),
        ("", "has no rows"),
    ],
)
def test_the_checker_notices(check, row, fault):
    found = list(check.faults(HEAD + row, ROOT))
    assert found == [] if fault is None else len(found) == 1 and fault in found[0]
