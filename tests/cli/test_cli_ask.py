"""``biqe ask`` from the shell's side: what it prints, where, and with which exit code."""

from __future__ import annotations

import csv
import io
import json
import sys
import xml.etree.ElementTree as ET
from pathlib import Path

import pytest
import torch

from biqe.cli import main
from biqe.graph import folder as graph_folder
from biqe.graph.knowledge_graph import Splits
from biqe.graph.triples import as_triples
from biqe.graph.vocabulary import Vocabulary
from biqe.models import store
from biqe.models.biqe import BiQE, Config

CITIES = "SELECT ?city WHERE { ?city :located_on :Rhine }"


@pytest.fixture(scope="module")
def folders(tmp_path_factory) -> Path:
    """``kg``: 60 cities on the Rhine, one more held out as Bonn; ``run``: a model of random weights."""
    root = tmp_path_factory.mktemp("ask")
    cities = [f"City{number:02}" for number in range(60)]
    vocabulary = Vocabulary(["Rhine", "Germany", "Bonn", *cities], ["located_on", "located_in"], {2: "Bonn\x1b[31m"})
    train = [(3 + number, 0, 0) for number in range(60)] + [(2, 1, 1)]
    splits = Splits(vocabulary, as_triples(train))
    graph_folder.save(splits, root / "kg")
    (root / "run").mkdir()
    (root / "run" / "run.json").write_text(json.dumps({"graph": {"name": "kg", "path": str(root / "kg")}}))
    torch.manual_seed(0)
    model = BiQE(Config(width=16, layers=1, heads=2, feed_forward=16), len(vocabulary.entities), 2)
    store.save(model, root / "run" / "model", vocabulary=vocabulary, graph_fingerprint=splits.fingerprint)
    return root


@pytest.fixture
def ask(folders, capsys, monkeypatch):
    monkeypatch.setattr(sys, "stdin", io.StringIO(""))

    def run(*arguments: str, place: str = "run") -> tuple[int, str, str]:
        code = main(["ask", str(folders / place), *arguments])
        captured = capsys.readouterr()
        return code, captured.out, captured.err

    return run


def test_a_table(ask, folders):
    code, out, err = ask(CITIES, "--top", "3")
    assert (code, err) == (0, "")
    lines = out.splitlines()
    assert lines[0].startswith(f"{folders / 'run'}: 60 known, 3 predicted by biqe, ")
    assert lines[2].split() == ["?city", "status", "prob.", "missing", "links"]
    assert [line.split()[:2] for line in lines[3:5]] == [["City00", "known"], ["City01", "known"]]
    assert lines[53] == "… and 10 more known rows"
    assert all("predicted" in line and "located_on Rhine" in line for line in lines[54:])
    assert len(lines) == 57
    assert all(len(line) <= 80 for line in lines[1:])


def test_control_characters_do_not_reach_the_terminal(ask):
    code, out, _ = ask("SELECT ?x { ?x :located_in :Germany }", "--mode", "known")
    assert code == 0
    assert "Bonn\\x1b[31m" in out
    assert "\x1b" not in out


def test_json_is_one_document(ask):
    code, out, err = ask(CITIES, "--json", "--top", "2")
    assert (code, err) == (0, "")
    document = json.loads(out)
    assert [row["status"] for row in document["rows"]] == ["known"] * 60 + ["predicted"] * 2
    assert all(row["missing"] for row in document["rows"][60:])


@pytest.mark.parametrize("form", ["json", "sparql-json", "csv", "tsv", "xml"])
def test_machine_formats_hold_all_known_rows(ask, form):
    code, out, _ = ask(CITIES, "--format", form, "--top", "1")
    assert code == 0
    if form == "csv":
        assert len(list(csv.reader(io.StringIO(out, newline="")))) == 62
    elif form == "tsv":
        assert len(out.splitlines()) == 62
    elif form == "xml":
        assert len(list(ET.fromstring(out).iter("{http://www.w3.org/2005/sparql-results#}result"))) == 61
    else:
        document = json.loads(out)
        assert len(document.get("rows") or document["results"]["bindings"]) == 61


def test_known_limit(ask):
    _, out, _ = ask(CITIES, "--known-limit", "2", "--top", "1")
    assert "… and 58 more known rows" in out.splitlines()
    _, out, _ = ask(CITIES, "--known-limit", "2", "--top", "1", "--json")
    document = json.loads(out)
    assert (document["known"], document["predicted"], document["known_complete"]) == (2, 1, False)


def test_sparql_limit_counts_known_rows_first(ask):
    _, out, _ = ask(CITIES + " LIMIT 61", "--json")
    document = json.loads(out)
    assert (document["known"], document["predicted"]) == (60, 1)
    _, out, _ = ask(CITIES + " LIMIT 5", "--json")
    document = json.loads(out)
    assert (document["known"], document["predicted"]) == (5, 0)


def test_modes_and_min_probability(ask):
    document = json.loads(ask(CITIES, "--mode", "predicted", "--top", "3", "--json")[1])
    assert (document["known"], document["predicted"]) == (0, 3)
    document = json.loads(ask(CITIES, "--mode", "known", "--json")[1])
    assert (document["known"], document["predicted"], document["model"]) == (60, 0, None)
    document = json.loads(ask(CITIES, "--min-probability", "1", "--json")[1])
    assert (document["known"], document["predicted"]) == (60, 0)


def test_a_graph_alone(ask):
    code, out, _ = ask(CITIES, place="kg")
    assert code == 0
    assert "60 known, no model to predict more, " in out.splitlines()[0]
    assert "predicted" not in out
    assert len(out.splitlines()) == 3 + 50 + 1
    code, out, err = ask(CITIES, "--mode", "predicted", place="kg")
    assert (code, out) == (2, "")
    assert "a graph without a model" in " ".join(err.split())


def test_query_from_a_file_and_from_standard_input(ask, tmp_path, monkeypatch):
    expected = ask(CITIES, "--json", "--mode", "known")[1]
    path = tmp_path / "question.rq"
    path.write_bytes(b"\xef\xbb\xbf" + CITIES.encode())
    from_file = ask(f"@{path}", "--json", "--mode", "known")[1]
    monkeypatch.setattr(sys, "stdin", io.StringIO(CITIES))
    from_stdin = ask("-", "--json", "--mode", "known")[1]
    monkeypatch.setattr(sys, "stdin", io.StringIO(CITIES))
    without_saying = ask("--json", "--mode", "known")[1]
    rows = [json.loads(text)["rows"] for text in (expected, from_file, from_stdin, without_saying)]
    assert rows[0] and all(other == rows[0] for other in rows)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "no query was given"),
        ([CITIES, "--format", "yaml"], "--format must be one of table, json, sparql-json, csv, tsv, xml. Got 'yaml'"),
        ([CITIES, "--mode", "all"], "'mode' must be one of both, known, predicted. Got 'all'"),
        ([CITIES, "--top", "-1"], "'top' must be at least 0"),
        ([CITIES, "--top", "many"], "Invalid value for '--top'"),
        ([CITIES, "--width", "0"], "'width' must be at least 1"),
        ([CITIES, "--min-probability", "2"], "'min_probability' must be in [0, 1]"),
        ([CITIES, "--known", "test"], "'known' must be one of complete, train. Got 'test'"),
        ([CITIES, "--known-limit", "-1"], "--known-limit must be at least 0"),
        ([CITIES, "--graph", "no/such/folder"], "no/such/folder does not exist"),
        (["SELECT ?x { ?x :located_at :Rhine }"], "did you mean 'located_on'"),
        (["SELECT ?x"], "error: SparqlSyntax"),
        (["@no/such/file.rq"], "query file no/such/file.rq cannot be read"),
        (["SELECT ?a { ?a :located_on ?a }"], "this query has a cycle"),
        ([CITIES, "--model", "cqd"], "has no model 'cqd'; it has biqe"),
        ([CITIES, "--explain", "--format", "csv"], "--explain goes with --format table or json. Got 'csv'"),
        (["SELECT ?x { ?x :located_on ?y OPTIONAL { ?y :p ?z } }"], "--mode known takes all of SPARQL 1.1"),
        (["SELECT ?x { ?x :located_on ?y FILTER(regex(?x, '(')) }"], "is no regular expression that can be read"),
    ],
)
def test_bad_input_is_one_paragraph_and_exit_code_2(ask, arguments, message):
    code, out, err = ask(*arguments)
    assert code == 2
    assert out == ""
    assert message in " ".join(err.split())
    assert "Traceback" not in err


def test_a_file_that_is_not_text(ask, tmp_path):
    path = tmp_path / "query.rq"
    path.write_bytes(b"\xff\xfe\x00")
    code, out, err = ask(f"@{path}")
    assert (code, out) == (2, "")
    assert "is not UTF-8 text" in " ".join(err.split())


def test_a_folder_that_is_not_there(capsys):
    assert main(["ask", "no/such/run", CITIES]) == 2
    assert "atlas" in capsys.readouterr().err


def test_help_has_examples(capsys):
    assert main(["ask", "--help"]) == 0
    assert "biqe ask atlas 'SELECT ?city WHERE { ?city :located_on :Rhine }'" in capsys.readouterr().out


# Explanations, counts, all of SPARQL


def test_explain(ask):
    code, out, err = ask(CITIES, "--top", "2", "--explain")
    assert (code, err) == (0, "")
    assert "\nrow 61\n" in out and "\nrow 62\n" in out
    document = json.loads(ask(CITIES, "--top", "1", "--explain", "--json")[1])
    (why,) = document["explanations"]
    assert why["number"] == 61 and why["status"] == "predicted"


def test_known_mode_takes_all_of_sparql(ask):
    text = "SELECT ?r (COUNT(?c) AS ?n) { ?c :located_on ?r } GROUP BY ?r"
    code, out, err = ask(text, "--mode", "known")
    assert (code, err) == (0, "")
    assert [line.split() for line in out.splitlines()[2:]] == [["?r", "?n"], ["Rhine", "60"]]
    assert ask(text)[0] == 2
    bindings = json.loads(ask(text, "--mode", "known", "--format", "sparql-json")[1])["results"]["bindings"]
    assert bindings[0]["n"]["value"] == "60"


def test_ask_and_count(ask):
    code, out, _ = ask("ASK { :City01 :located_on :Rhine }")
    assert code == 0 and "yes, the graph holds it" in out
    document = json.loads(ask("ASK { :Bonn :located_on :Rhine }", "--format", "sparql-json")[1])
    assert document["boolean"] is False and 0 < document["probability"] < 1
    document = json.loads(ask("SELECT (COUNT(*) AS ?n) { ?c :located_on :Rhine }", "--json")[1])
    assert [row["status"] for row in document["rows"]] == ["known", "predicted"]
    assert document["rows"][0]["values"] == {"n": 60}


# Typing questions


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def typed(folders, monkeypatch, capsys, lines: list[str], *options: str) -> tuple[int, str, str]:
    waiting = iter(lines)

    def read(prompt: str) -> str:
        try:
            return next(waiting)
        except StopIteration:
            raise EOFError from None

    monkeypatch.setattr(sys, "stdin", Terminal())
    monkeypatch.setattr("builtins.input", read)
    monkeypatch.setenv("BIQE_HISTORY", str(folders / "state" / "history"))
    code = main(["ask", str(folders / "run"), "--mode", "known", *options])
    captured = capsys.readouterr()
    return code, captured.out, captured.err


def test_questions_one_after_the_other(folders, monkeypatch, capsys):
    lines = [
        "help",
        "SELECT ?x {",
        "  ?x :located_in",
        "  :Germany }",
        "",
        "SELECT ?x { ?x :nonsense :Rhine }",
        "SELECT ?x",
        "",
        "explain 1",
        "explain 99",
        "ASK { :Bonn :located_in :Germany }",
        "quit",
        "never read",
    ]
    code, out, err = typed(folders, monkeypatch, capsys, lines)
    assert code == 0
    assert "Tab completes names" in out and "Bonn" in out and "yes, the graph holds it" in out
    assert "error: UnknownName: relation 'nonsense' is not in this graph" in err
    assert "error: SparqlSyntax: line 1, column 10: the query ends too early" in err
    assert "wants the number of a row of the last answer, 1 to 1. Got '99'" in err
    assert "Traceback" not in err


def test_the_end_of_the_input_ends_the_conversation(folders, monkeypatch, capsys):
    code, out, err = typed(folders, monkeypatch, capsys, ["explain 1"])
    assert code == 0 and out == ""
    assert "there is no answer yet to explain" in err


def test_an_interrupt_drops_the_line_and_no_more(folders, monkeypatch, capsys):
    from biqe.cli._shell import Shell
    from biqe.knowledge_base import open as open_knowledge_base

    kb = open_knowledge_base(folders / "kg")
    asked: list[str] = []
    script = iter(["SELECT ?x {", KeyboardInterrupt, "ASK { ?x :located_on :Rhine }", EOFError])

    def read(prompt: str) -> str:
        step = next(script)
        if isinstance(step, str):
            return step
        raise step

    Shell(kb, asked.append, lambda answers: None).run(read)
    assert asked == ["ASK { ?x :located_on :Rhine }"]


def test_completion_and_history(folders, monkeypatch, capsys):
    readline = pytest.importorskip("readline")
    from biqe.cli._shell import history_file, line_editing
    from biqe.knowledge_base import open as open_knowledge_base

    monkeypatch.setenv("BIQE_HISTORY", str(folders / "other" / "history"))
    with line_editing(open_knowledge_base(folders / "kg")):
        completer = readline.get_completer()
        found = []
        while (text := completer(":city0", len(found))) is not None:
            found.append(text)
        assert found == [f":City0{number}" for number in range(10)]
        assert completer("SEL", 0) == "SELECT" and completer("SEL", 1) is None
        readline.add_history("ASK { :a :b :c }")
    assert "ASK { :a :b :c }" in history_file().read_text()
    with line_editing(open_knowledge_base(folders / "kg")):
        assert readline.get_history_item(readline.get_current_history_length()) == "ASK { :a :b :c }"
    monkeypatch.delenv("BIQE_HISTORY")
    monkeypatch.setenv("XDG_STATE_HOME", str(folders / "xdg"))
    assert history_file() == folders / "xdg" / "biqe" / "history"
