"""Golden file of what ``biqe ask`` prints at 80 columns, errors included: tests/sparql/terminal.txt.

The model is one whose probabilities are known exactly, so that the figures are the same everywhere.
"""

from __future__ import annotations

import json
import re
import shlex
from pathlib import Path

import numpy as np
import pytest

from biqe.cli import main
from biqe.graph import folder as graph_folder
from biqe.graph.knowledge_graph import Splits
from biqe.graph.triples import as_triples
from biqe.graph.vocabulary import Vocabulary
from biqe.knowledge_base import KnowledgeBase
from biqe.predict.predictor import Predictor

FOLDER = Path(__file__).parent.parent / "sparql"


def cases() -> list[tuple[str, str]]:
    """Commands of the golden file, each with what it prints."""
    text = (FOLDER / "terminal.txt").read_text(encoding="utf-8")
    blocks = re.split(r"^\$ biqe ", text, flags=re.MULTILINE)[1:]
    return [(block.partition("\n")[0], block.partition("\n")[2].rstrip("\n")) for block in blocks]


@pytest.fixture
def town(toy, tmp_path, monkeypatch) -> None:
    """The toy town in the folder ``town``, and a model that likes what is stored and a few links more."""
    rows = [line.split("\t") for line in (FOLDER / "toy_town.tsv").read_text(encoding="utf-8").splitlines()]
    names = sorted({end for row in rows for end in (row[0], row[2])})
    relations = sorted({row[1] for row in rows})
    triples = [(names.index(s), relations.index(r), names.index(o)) for s, r, o in rows]
    splits = Splits(Vocabulary(names, relations, {names.index("Cologne"): "Köln"}), as_triples(triples))
    graph_folder.save(splits, tmp_path / "kg")
    weights = np.full((len(relations), len(names), len(names)), 0.001)
    for subject, relation, object_ in triples:
        weights[relation, subject, object_] = 1.0
    for subject, relation, object_, weight in (
        ("Paris", "located_on", "Rhine", 0.3),
        ("Dresden", "located_on", "Rhine", 0.05),
        ("Seine", "flows_through", "Germany", 0.6),
    ):
        weights[relations.index(relation), names.index(subject), names.index(object_)] = weight
    (tmp_path / "town" / "model").mkdir(parents=True)
    (tmp_path / "town" / "run.json").write_text(json.dumps({"graph": {"path": "../kg"}}))
    manifest = {
        "model": "factor",
        "vocabulary_fingerprint": splits.vocabulary.fingerprint,
        "entities": len(names),
        "relations": len(relations),
    }
    (tmp_path / "town" / "model" / "manifest.json").write_text(json.dumps(manifest))
    model = toy.FactorModel(weights)
    monkeypatch.setattr(KnowledgeBase, "_load", lambda self, folder: Predictor(model))
    monkeypatch.chdir(tmp_path)


def printed(command: str, capsys) -> str:
    code = main(shlex.split(command))
    out, err = capsys.readouterr()
    text = re.sub(r"\d+\.\d\d s$", "0.00 s", out.replace("\r\n", "\n"), flags=re.MULTILINE) + err
    return text.rstrip("\n") + (f"\nexit code {code}" if code else "")


@pytest.mark.parametrize(("command", "expected"), cases(), ids=[command for command, _ in cases()])
def test_terminal(town, capsys, command, expected):
    shown = printed(command, capsys)
    assert shown == expected
    assert [line for line in shown.splitlines() if len(line) > 80] == []


def test_the_golden_file_has_answers_and_errors():
    everything = cases()
    assert len(everything) >= 15
    assert sum("exit code 2" in expected for _, expected in everything) >= 5
