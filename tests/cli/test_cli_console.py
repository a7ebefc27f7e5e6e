"""JSON, tables and progress of the commands."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from biqe.cli import _console
from biqe.cli._console import out, plain, print_json, progress, table

documents = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False, allow_subnormal=False)
    | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)


@given(documents)
def test_plain_documents_stay_as_they_are(document):
    assert plain(document) == document


@dataclass
class Figures:
    ranks: np.ndarray
    mrr: np.float32


def test_print_json_writes_one_document_of_anything_commands_hold(capsys):
    print_json(
        {
            "figures": Figures(np.array([1, 2]), np.float32(0.5)),
            "count": np.int64(3),
            "path": Path("kg/g"),
            "nan": float("nan"),
            "infinite": np.array([np.inf, 1.0]),
            "set": {"b", "a"},
            "yes": np.True_,
            "city": "Köln",
            4: "key",
        }
    )
    stdout, stderr = capsys.readouterr()
    assert stderr == ""
    assert json.loads(stdout) == {
        "figures": {"ranks": [1, 2], "mrr": 0.5},
        "count": 3,
        "path": "kg/g",
        "nan": None,
        "infinite": [None, 1.0],
        "set": ["a", "b"],
        "yes": True,
        "city": "Köln",
        "4": "key",
    }


def test_what_json_cannot_hold_is_refused_before_anything_is_printed(capsys):
    with pytest.raises(TypeError, match="object"):
        print_json({"a": 1, "b": object()})
    assert capsys.readouterr().out == ""


def test_names_are_printed_as_they_are_spelt(capsys):
    out.print("[red] :smile: 3 [/]")
    assert capsys.readouterr().out == "[red] :smile: 3 [/]\n"


def test_tables_fit_80_columns_and_keep_every_name(capsys):
    name = "/film/film/release_date_s./film/film_regional_release_date/film_release_region"
    table(
        ["relation", "triples", "share"],
        [[name, np.int64(12345), np.float32(0.5)], ["x", 1, float("nan")]],
        title="Relations",
    )
    stdout = capsys.readouterr().out
    assert all(len(line) <= 80 for line in stdout.splitlines())
    assert "12,345" in stdout
    assert "0.500" in stdout
    joined = "".join(re.split(r"\s{2,}", line.strip())[0] for line in stdout.splitlines())
    assert name in joined


def test_progress_elsewhere_than_on_a_terminal_is_sparse_and_on_standard_error(capsys):
    with progress("mining", 1000) as advance:
        for _ in range(1000):
            advance(note="ok")
    stdout, stderr = capsys.readouterr()
    assert stdout == ""
    assert stderr.count("\n") == 1
    assert stderr.startswith("mining: 1,000 of 1,000, ")
    assert stderr.endswith("ok\n")


def test_progress_prints_a_line_now_and_then(capsys, monkeypatch):
    monkeypatch.setattr(_console, "LINE_EVERY", 0.0)
    with progress("reading") as advance:
        advance(2)
        advance(3)
    lines = capsys.readouterr().err.splitlines()
    assert [line.split(",")[0] for line in lines] == ["reading: 2", "reading: 5", "reading: 5"]


def test_progress_does_not_hide_an_error(capsys):
    with pytest.raises(ZeroDivisionError), progress("reading", 3):
        raise ZeroDivisionError
    assert capsys.readouterr() == ("", "")
