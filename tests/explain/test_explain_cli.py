"""``biqe explain`` from the shell's side: what it prints, what it writes, and how it refuses."""

from __future__ import annotations

import json
import subprocess
import sys
import xml.etree.ElementTree as ET
from pathlib import Path

import pytest
import torch

from biqe.cli import main
from biqe.graph import folder as graph_folder
from biqe.graph.knowledge_graph import Splits
from biqe.graph.triples import as_triples
from biqe.models import store
from biqe.models.biqe import BiQE, Config

QUESTION = "SELECT ?river ?city WHERE { ?river :flows_through :Germany . ?city :located_on ?river }"


@pytest.fixture(scope="module")
def folders(tmp_path_factory, rivers) -> Path:
    """``kg``: the rivers; ``run``: a model of random weights."""
    root = tmp_path_factory.mktemp("explain")
    splits = Splits(rivers.vocabulary, as_triples(rivers.triples))
    graph_folder.save(splits, root / "kg")
    (root / "run").mkdir()
    (root / "run" / "run.json").write_text(json.dumps({"graph": {"name": "kg", "path": str(root / "kg")}}))
    torch.manual_seed(0)
    model = BiQE(Config(width=16, layers=2, heads=2, feed_forward=16), 7, 2)
    store.save(model, root / "run" / "model", vocabulary=rivers.vocabulary, graph_fingerprint=splits.fingerprint)
    return root


@pytest.fixture
def explain(folders, capsys):
    def run(*arguments: str, place: str = "run") -> tuple[int, str, str]:
        code = main(["explain", str(folders / place), *arguments])
        captured = capsys.readouterr()
        return code, captured.out, captured.err

    return run


def test_text_of_a_known_and_of_a_predicted_row(explain):
    code, out, err = explain(QUESTION, "--row", "1")
    assert (code, err) == (0, "")
    assert out.startswith("Elbe, Dresden: known; ")
    assert [line for line in out.splitlines() if len(line) > 80] == []
    code, out, _ = explain(QUESTION, "--row", "3")
    assert code == 0
    assert ": predicted by biqe with probability " in out.splitlines()[0]
    assert "judged by biqe alone" in out and "\nWITNESS: " in out
    assert "ATTENTION" not in out and "COUNTERFACTUAL" not in out
    _, out, _ = explain(QUESTION, "--row", "3", "--views", "attention,counterfactual")
    assert "WITNESS" not in out and "\nATTENTION: " in out and "\nCOUNTERFACTUAL: " in out


def test_rows_are_numbered_as_ask_lists_them(explain, folders, capsys):
    assert main(["ask", str(folders / "run"), QUESTION, "--mode", "predicted", "--top", "4", "--json"]) == 0
    rows = json.loads(capsys.readouterr().out)["rows"]
    for number, row in enumerate(rows, 1):
        document = json.loads(explain(QUESTION, "--mode", "predicted", "--top", "4", "--row", str(number), "--json")[1])
        assert document["row"] == row["values"]
        assert document["status"] == "predicted"
        assert document["probability"] == pytest.approx(row["probability"])
        assert len(document["witness"]["links"]) == 2
        missing = [link for link in document["witness"]["links"] if not link["stored"]]
        assert len(missing) == len(row["missing"])


def test_files(explain, tmp_path):
    for ending in ("svg", "png", "json", "txt"):
        path = tmp_path / f"why.{ending}"
        assert explain(QUESTION, "--row", "3", "--out", str(path)) == (0, "", f"explanation written to {path}\n")
    ET.fromstring((tmp_path / "why.svg").read_text("utf-8"))
    assert (tmp_path / "why.png").read_bytes().startswith(b"\x89PNG\r\n\x1a\n")
    assert json.loads((tmp_path / "why.json").read_text("utf-8"))["format"] == "biqe-explanation"
    assert (tmp_path / "why.txt").read_text("utf-8") == explain(QUESTION, "--row", "3")[1]
    assert explain(QUESTION, "--row", "3", "--format", "svg")[1] == (tmp_path / "why.svg").read_text("utf-8")
    explain(QUESTION, "--row", "3", "--format", "json", "--out", str(tmp_path / "why.data"))
    assert (tmp_path / "why.data").read_text("utf-8") == (tmp_path / "why.json").read_text("utf-8")


def test_views(explain):
    document = json.loads(explain(QUESTION, "--views", "witness, counterfactual", "--json")[1])
    assert document["attention"] is None
    assert document["witness"] and document["counterfactual"]


def test_a_graph_alone_has_a_witness(explain):
    code, out, _ = explain(QUESTION, "--views", "witness,attention", place="kg")
    assert code == 0
    assert "Elbe, Dresden: known; " in out
    assert "there is no model" in out


def test_known_rows_of_a_graph_need_no_torch(folders):
    script = (
        "import sys, biqe.cli\n"
        f"assert biqe.cli.main(['explain', {str(folders / 'kg')!r}, {QUESTION!r}]) == 0\n"
        "assert 'torch' not in sys.modules, 'torch was loaded'\n"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=250)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([QUESTION, "--row", "0"], "--row must be at least 1. Got 0"),
        ([QUESTION, "--row", "99", "--top", "3"], "there are only 5 rows, 2 known and 3 predicted"),
        ([QUESTION, "--row", "three"], "Invalid value for '--row'"),
        ([QUESTION, "--format", "gif"], "--format must be one of text, json, svg, png. Got 'gif'"),
        ([QUESTION, "--format", "png"], "a PNG picture is no text, so it needs a file"),
        ([QUESTION, "--out", "why.gif"], "must end in one of .txt, .json, .svg, .png. Got 'why.gif'"),
        ([QUESTION, "--out", "no/such/folder/why.svg"], "could not be written"),
        ([QUESTION, "--views", "magic"], "--views must be one or more of witness, attention, counterfactual"),
        ([QUESTION, "--views", ","], "--views must be one or more of witness, attention, counterfactual"),
        ([QUESTION, "--mode", "all"], "'mode' must be one of"),
        (["SELECT ?x { ?x :located_on :Germany }", "--mode", "known"], "the query has no rows, so there is nothing"),
        (["SELECT ?x { ?x :located_at :Rhine }"], "did you mean 'located_on'"),
        ([], "no query was given"),
    ],
)
def test_bad_input_is_one_paragraph_and_exit_code_2(explain, arguments, message, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    code, out, err = explain(*arguments)
    assert (code, out) == (2, "")
    assert message in " ".join(err.split())
    assert "Traceback" not in err
    assert list(tmp_path.iterdir()) == []


def test_an_ask_query_is_explained(explain):
    code, out, err = explain("ASK { :Rhine :flows_through :Germany }")
    assert (code, err) == (0, "")
    assert "Rhine flows_through Germany" in out
