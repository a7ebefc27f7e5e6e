"""What every command promises: help with an example, exit code 2 and a hint on bad input, one JSON document.

Commands are found in the command table; a new one is held to the same without a line here, except that its bad
input and its way through the toy town are added below.
"""

from __future__ import annotations

import errno
import json
import re
from pathlib import Path

import pytest

from biqe.cli import COMMANDS, main
from biqe.errors import BadLine, InvalidOption, SparqlSyntax, UnsupportedQuery
from biqe.graph import folder as graph_folder
from biqe.serve.live import LiveGraph

BAD_INPUT = {
    "try": [["nothing.tsv"], [], ["bad.tsv", "--no-page"], ["bad.tsv", "--minutes", "0"]],
    "import": [
        ["nothing.tsv", "--out", "g"],
        ["--out", "g"],
        ["bad.tsv", "--out", "g"],
        ["bad.tsv", "--encoding", "x"],
    ],
    "stats": [["nothing"], ["."], [], ["bad.tsv"]],
    "schema": [["nothing"], ["."], [], ["bad.tsv"]],
    "find": [["nothing", "Rhine"], ["."], ["bad.tsv", "x"]],
    "mine": [
        ["nothing", "--out", "s"],
        [".", "--out", "s"],
        [".", "--recipe", "nonsense", "--out", "s"],
        ["atlas", "--paths", "-1", "--out", "s"],
        ["atlas", "--paths", "0", "--dags", "0", "--out", "s"],
        ["atlas", "--eval-passes", "0", "--out", "s"],
    ],
    "train": [
        ["nothing", "--minutes", "1", "--out", "r"],
        ["--resume", "nothing"],
        ["--resume", "nothing", "--minutes", "9"],
        [".", "--out", "r"],
        ["atlas", "--epochs", "0", "--out", "r"],
        ["atlas", "--seed", "-1", "--out", "r"],
        ["atlas", "-O", "label_smoothing=2", "--out", "r"],
        ["atlas", "-O", "clock=sand", "--out", "r"],
        [],
    ],
    "evaluate": [["nothing", "--set", "s"], [".", "--set", "s"], ["nothing"], []],
    "calibrate": [["nothing"], ["."], ["atlas"], []],
    "ask": [["nothing", "SELECT ?x WHERE { ?x :r :e }"], [".", "SELECT"], ["atlas", "SELECT nonsense"], ["atlas"], []],
    "explain": [
        ["nothing", "SELECT ?x WHERE { ?x :r :e }"],
        ["atlas", "SELECT nonsense"],
        ["atlas", "SELECT ?x WHERE { ?x :located_on :Rhine }", "--row", "0"],
        ["atlas", "SELECT ?x WHERE { ?x :located_on :Rhine }", "--out", "why.gif"],
        ["atlas"],
        [],
    ],
    "serve": [
        ["nothing"],
        ["."],
        [],
        ["atlas", "--host", "0.0.0.0"],
        ["atlas", "--port", "-1"],
        ["atlas", "--token-file", "nothing"],
        ["atlas", "--mode", "maybe", "--check"],
        ["atlas", "--host", "a b", "--open-to-all", "--check"],
        ["atlas", "--json"],
    ],
    "backup": [["nothing", "--out", "b"], [".", "--out", "b"], ["."], []],
    "restore": [["nothing", "--out", "b"], [".", "--out", "b", "--repair"], ["bad.tsv", "--out", "b"], []],
    "mcp": [
        ["nothing"],
        ["."],
        [],
        ["atlas", "--abstain-below", "2"],
        ["atlas", "--allow-updates", "nowhere/accepted.tsv"],
        ["atlas", "--known", "maybe"],
    ],
    "suggest": [
        ["nothing"],
        [],
        ["atlas", "--relation", "nope"],
        ["atlas", "--out", "x.doc"],
        ["atlas", "--top", "-1"],
        ["atlas", "--min-probability", "2"],
        ["atlas", "--server", "http://127.0.0.1:9"],
        ["atlas", "--review", "--json"],
    ],
    "config": [["nothing"], ["."], []],
    "doctor": [["nothing"], ["."], ["--plan"], ["nothing", "--plan"], ["atlas", "--plan", "--ranks", "0"]],
    "models": [["nothing"]],
    "benchmarks": [["nothing"], ["--fetch"]],
    "reproduce": [["nothing"], [], ["bio", "--seeds", "0"]],
    "results": [["--table", "nothing"], ["--results", "nothing"]],
}


def test_every_command_has_its_bad_input_here():
    assert set(BAD_INPUT) == set(COMMANDS)


@pytest.fixture
def here(tmp_path, monkeypatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "bad.tsv").write_text("only two\tcolumns\n")
    return tmp_path


@pytest.mark.parametrize("command", COMMANDS)
def test_help_teaches_by_example_within_80_columns(command, capsys):
    assert main([command, "--help"]) == 0
    out, err = capsys.readouterr()
    assert err == ""
    assert re.search(rf"^ {{2,}}biqe {command} ", out, re.MULTILINE), "no example"
    assert [line for line in out.splitlines() if len(line) > 80] == []


@pytest.mark.parametrize(
    ("command", "arguments"),
    [(command, arguments) for command, cases in BAD_INPUT.items() for arguments in [*cases, ["--no-such-option"]]],
    ids=lambda value: " ".join(value) if isinstance(value, list) else value,
)
def test_bad_input_is_2_with_one_paragraph_and_a_hint(command, arguments, here, capsys):
    before = sorted(here.rglob("*"))
    assert main([command, *arguments]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert "error: " in err
    assert "Traceback" not in err
    message = err[err.index("error: ") :]
    assert "\n\n" not in message
    assert re.search(r"^hint: \S", message, re.MULTILINE), message
    assert len(message) < 1000
    assert sorted(here.rglob("*")) == before, "a refused command left something behind"


@pytest.mark.parametrize(
    ("error", "hint"),
    [
        (InvalidOption("x"), "'biqe stats --help' shows what is allowed, with examples"),
        (BadLine("a.tsv", 3, "x"), "correct that line, then run the command again"),
        (SparqlSyntax("x"), "docs/concepts/sparql.md has the supported subset, with examples"),
        (UnsupportedQuery("x"), "'biqe models' lists what each model can answer"),
        (InvalidOption("x", hint="its own"), "its own"),
        (OSError(errno.EIO, "broken"), "'biqe stats --help' shows what is allowed, with examples"),
    ],
)
def test_errors_that_bring_no_hint_are_given_one(error, hint, monkeypatch, capsys):
    def refuse(arguments):
        raise error

    monkeypatch.setattr("biqe.cli._run", refuse)
    assert main(["stats", "g"]) == 2
    assert capsys.readouterr().err.splitlines()[1:] == [f"hint: {hint}"]


TOWN = """\
a\tnear\tb
b\tnear\tc
c\tnear\td
d\tnear\ta
a\tholds\tx
b\tholds\ty
c\tholds\tx
d\tholds\ty
x\tkind\tshop
y\tkind\tshop
shop\tin\ta
shop\tin\tb
"""


@pytest.fixture(scope="module")
def toy(tmp_path_factory) -> Path:
    """A folder with a graph, a query set and a run of a few seconds, all made by the commands."""
    folder = tmp_path_factory.mktemp("toy")
    people = [f"p{n}\tknows\tp{(n * 7 + 3) % 40}\np{n}\tlives_in\t{'abcd'[n % 4]}\n" for n in range(40)]
    (folder / "town.tsv").write_text(TOWN + "".join(people))
    steps = [
        ["import", "town.tsv", "--out", "g"],
        ["mine", "g", "--seed", "0", "--out", "s", "--paths", "60", "--dags", "60"],
        ["train", "g", "--set", "s", "--epochs", "1", "--out", "r", *SMALL],
        ["train", "g", "--minutes", "0.05", "--out", "h", *SMALL],
    ]
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        for step in steps:
            assert main(step) == 0, f"biqe {' '.join(step)}"
    LiveGraph(folder / "live", graph_folder.load(folder / "g")).close()
    return folder


SMALL = [*"--width 16 --layers 1 --threads 1 -O heads=2 -O paths=50 -O dags=50".split()]
"""Options that make a run take a second."""
WITHOUT_JSON = {"try", "mcp"}
"""What a person follows, or another program talks to."""
JSON_COMMANDS = {
    "import": ["import", "town.tsv", "--out", "g2"],
    "stats": ["stats", "g"],
    "schema": ["schema", "g"],
    "find": ["find", "g", "shop"],
    "mine": ["mine", "g", "--out", "s2", "--paths", "20", "--dags", "20"],
    "train": ["train", "g", "--epochs", "0.1", "--out", "r2", *SMALL],
    "evaluate": ["evaluate", "r", "--set", "s", "--split", "train"],
    "calibrate": ["calibrate", "h"],
    "ask": ["ask", "r", "SELECT ?x WHERE { :a :holds ?x }"],
    "explain": ["explain", "r", "SELECT ?x WHERE { :a :holds ?x }"],
    "serve": ["serve", "r", "--check"],
    "mcp": ["mcp", "r", "--allow-updates", "accepted.tsv"],
    "suggest": ["suggest", "h"],
    "backup": ["backup", "live", "--out", "b1"],
    "restore": ["restore", "live", "--out", "b2"],
    "config": ["config", "r"],
    "doctor": ["doctor", "g", "--plan"],
    "models": ["models"],
    "benchmarks": ["benchmarks"],
    "reproduce": ["reproduce", "statistics", "--dry-run"],
    "results": ["results"],
}


@pytest.mark.slow
@pytest.mark.parametrize("command", [command for command in COMMANDS if command not in WITHOUT_JSON])
def test_json_is_one_document_on_standard_output(command, toy, monkeypatch, capsys):
    monkeypatch.chdir(toy)
    capsys.readouterr()
    assert main([*JSON_COMMANDS[command], "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert isinstance(document, dict | list)


@pytest.mark.slow
@pytest.mark.parametrize("command", ["stats", "schema", "find", "ask", "config", "evaluate", "suggest"])
def test_what_people_read_fits_80_columns(command, toy, monkeypatch, capsys):
    monkeypatch.chdir(toy)
    capsys.readouterr()
    assert main(JSON_COMMANDS[command]) == 0
    out = capsys.readouterr().out
    assert out.strip()
    assert [line for line in out.splitlines() if len(line) > 80] == []


@pytest.mark.slow
@pytest.mark.parametrize(
    "arguments", [["import", "town.tsv", "--out", "g"], ["train", "g", "--epochs", "1", "--out", "r"]]
)
def test_nothing_on_disk_is_overwritten(arguments, toy, monkeypatch):
    monkeypatch.chdir(toy)
    target = Path(arguments[-1])
    before = {path: path.read_bytes() for path in target.rglob("*") if path.is_file()}
    assert main(arguments) == 2
    assert {path: path.read_bytes() for path in target.rglob("*") if path.is_file()} == before
