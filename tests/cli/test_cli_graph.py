"""``biqe schema``: the relations of a graph, and what each joins."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections import Counter, defaultdict
from pathlib import Path

import pytest

from biqe import atlas
from biqe.cli import main
from biqe.knowledge_base.listing import AMONG
from biqe.query.sparql import parse

TYPED = """a\ttype\tCity
b\ttype\tCity
b\ttype\tPort
c\ttype\tRiver
a\ton\tc
b\ton\tc
a\tnear to\tb
"""


def run(capsys: pytest.CaptureFixture[str], *arguments: object) -> str:
    assert main([str(argument) for argument in arguments]) == 0
    return capsys.readouterr().out


@pytest.fixture
def typed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Path:
    (tmp_path / "g.tsv").write_text(TYPED)
    run(capsys, "import", tmp_path / "g.tsv", "--out", tmp_path / "g", "--split", "none")
    return tmp_path / "g"


def test_kinds_are_those_that_counting_by_hand_finds(capsys: pytest.CaptureFixture[str]) -> None:
    splits = atlas.load()
    names, triples = splits.vocabulary.entities, splits["complete"].triples.tolist()
    type_ = splits.vocabulary.relations.find("type")
    kinds = defaultdict(set)
    for subject, relation, object_ in triples:
        if relation == type_:
            kinds[subject].add(names[object_])
    found = json.loads(run(capsys, "schema", "atlas", "--json"))["relations"]
    assert {row["relation"] for row in found} == set(splits.vocabulary.relations)
    assert [row["triples"] for row in found] == sorted((row["triples"] for row in found), reverse=True)
    for row in found:
        relation = splits.vocabulary.relations.find(row["relation"])
        own = [triple for triple in triples if triple[1] == relation]
        assert row["triples"] == len(own)
        for side, column in (("subjects", 0), ("objects", 2)):
            ends = {triple[column] for triple in own}
            assert row[side]["entities"] == len(ends)
            assert row[side]["kinds"] == Counter(kind for end in ends for kind in kinds[end])
            degrees = Counter(names[triple[column]] for triple in own)
            assert degrees[row[side]["example"]] >= sorted(degrees.values())[-AMONG:][0]


def test_relations_are_shown_with_their_kinds_and_can_be_pasted(typed: Path, capsys) -> None:
    text = " ".join(run(capsys, "schema", typed).split())
    assert ":on 2 City 2, Port 1 River 1" in text
    assert ":near_to 1 City 1 City 1, Port 1" in text
    assert ":type 4 City 2, Port 1, River 1 3, such as City" in text
    for row in json.loads(run(capsys, "schema", typed, "--json"))["relations"]:
        assert parse(f"SELECT ?x {{ ?x {row['query']} ?y }}")


@pytest.mark.parametrize("columns", ["80", "0", "1"])
def test_words_stay_whole_and_something_is_printed_at_any_width(columns: str) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "biqe", "schema", "atlas"],
        capture_output=True,
        text=True,
        env=os.environ | {"COLUMNS": columns},
        check=True,
    )
    assert max(map(len, done.stdout.splitlines())) <= max(int(columns), 40)
    words = set(re.split(r"[\s,]+", done.stdout))
    if columns == "80":
        assert {":flows_through", ":regional_capital_of", "Territory", "Country"} <= words
    assert ":near" in words
