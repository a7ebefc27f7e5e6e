"""``biqe suggest``: the list, files, and a review whose verdicts are kept."""

from __future__ import annotations

import io
import json

import pytest

from biqe.cli import main


@pytest.fixture(autouse=True)
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    return tmp_path


def suggested(capsys, *options: str) -> list[dict]:
    assert main(["suggest", "atlas", "--relation", ":located_on", *options, "--json"]) == 0
    return json.loads(capsys.readouterr().out)["suggestions"]


def test_the_list_fits_80_columns_and_has_reasons(capsys):
    assert main(["suggest", "atlas", "--entity", "Bonn", "--top", "4"]) == 0
    out = capsys.readouterr().out
    assert "Bonn  located on  Rhine" in out or "Bonn  near  " in out
    assert "of 100 cases" in out and max(map(len, out.splitlines())) <= 80


def test_files_by_their_ending(here, capsys):
    for name, begins in (("a.tsv", "subject\t"), ("a.ttl", "@prefix"), ("a.json", "{")):
        assert main(["suggest", "atlas", "-r", "located_on", "--top", "3", "--out", name]) == 0
        assert (here / name).read_text().startswith(begins)
    assert capsys.readouterr().out == ""


def test_a_review_keeps_what_was_decided(here, capsys, monkeypatch):
    first = suggested(capsys, "--top", "5")
    # A word that is no verdict is asked for again; the end of the input quits.
    monkeypatch.setattr("sys.stdin", io.StringIO("r\nyes\nmaybe\ns\n"))
    assert main(["suggest", "atlas", "--relation", ":located_on", "--top", "5", "--review"]) == 0
    assert "1 accepted, 1 rejected, 1 skipped" in capsys.readouterr().out
    lines = (here / "accepted.tsv").read_text().splitlines()
    assert len(lines) == 2 and lines[1].split("\t")[:3] == [first[1][key] for key in ("subject", "relation", "object")]
    # The rejected link is gone everywhere, the accepted one from the next review.
    assert [one["why"] for one in suggested(capsys, "--top", "4")] == [one["why"] for one in first[1:]]
    monkeypatch.setattr("sys.stdin", io.StringIO("a\n"))
    assert main(["suggest", "atlas", "--relation", ":located_on", "--top", "1", "--review"]) == 0
    lines = (here / "accepted.tsv").read_text().splitlines()
    assert len(lines) == 3 and lines[2].split("\t")[0] == first[2]["subject"]
    # And a server of this graph still starts in the same folder.
    assert main(["serve", "atlas", "--check"]) == 0


def test_a_server_that_is_not_there(capsys, monkeypatch):
    monkeypatch.setattr("sys.stdin", io.StringIO("a\n"))
    arguments = ["suggest", "atlas", "-r", ":located_on", "--top", "1", "--review", "--server", "http://127.0.0.1:9"]
    assert main(arguments) == 2
    assert "is it running?" in capsys.readouterr().err
