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
def ask(folders, capsys):
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
    assert json.loads(expected)["rows"] == json.loads(from_file)["rows"] == json.loads(from_stdin)["rows"]


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
        (["SELECT ?a ?b { ?a :located_on :Rhine . ?b :located_in :Germany }"], "separate parts"),
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
