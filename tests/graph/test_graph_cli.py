"""biqe import, stats and find, as a user runs them."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from biqe.cli import main
from biqe.graph import folder
from biqe.graph.knowledge_graph import Splits
from biqe.graph.triples import as_triples
from biqe.graph.vocabulary import Vocabulary
from biqe.query.bind import bind
from biqe.query.sparql import parse

File = Callable[[str, str | bytes], Path]
TRIPLES = "".join(f"e{i % 20}\tr{i % 3}\te{i * 7 % 20}\n" for i in range(200))


def run(capsys: pytest.CaptureFixture[str], *arguments: object) -> tuple[int, str, str]:
    code = main([str(argument) for argument in arguments])
    captured = capsys.readouterr()
    return code, captured.out, captured.err


def test_import_stats_find(file: File, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    source = file("g.tsv", TRIPLES + "e1\tr0\te1\ne1\tr0\te1\n# note\n")
    labels = file("labels.tsv", "e1\tFirst\tthe first of all\n")
    out = tmp_path / "kg" / "g"
    code, text, _ = run(capsys, "import", source, "--out", out, "--labels", labels)
    assert code == 0
    assert "20 entities, 3 relations" in " ".join(text.split())
    assert "drawn at random" in text
    assert "repeated triples" in text
    splits = folder.load(out)
    assert len(splits.valid) == round(len(splits["complete"].triples) * 0.05)
    assert set(splits.train[:, [0, 2]].ravel()) == set(range(20))

    code, text, _ = run(capsys, "stats", out)
    assert code == 0
    assert all(len(line) <= 80 for line in text.splitlines() if str(out) not in line)
    assert "most frequent relations" in text
    code, text, _ = run(capsys, "stats", out, "--json")
    report = json.loads(text)
    assert (report["entities"], report["relations"]) == (20, 3)
    assert sum(part["triples"] for part in report["splits"]) == report["triples"]
    # A run stands for the graph that it was trained on.
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "run.json").write_text(json.dumps({"graph": {"name": "g", "path": str(out)}}))
    of_run = json.loads(run(capsys, "stats", tmp_path / "run", "--json")[1])
    assert of_run | {"folder": ""} == report | {"folder": ""}

    code, text, _ = run(capsys, "find", out, "first")
    assert (code, text) == (0, ":e1  First, the first of all\n")
    code, text, _ = run(capsys, "find", out, "e1", "--json", "--limit", 2)
    assert [row["name"] for row in json.loads(text)["found"]] == [
        "e1",
        "e14",
    ]  # ties by id, which is the order in the file
    code, text, errors = run(capsys, "find", out, "nobody")
    assert (code, text) == (0, "")
    assert "nothing in" in errors


def test_what_find_prints_can_be_asked(file: File, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    names = ["Ein Café", "Côte d'Ivoire", "a_b", "a b", "100%", "m²", "x/y", "Café"]
    rows = "".join(f"{name}\tliegt in\tWelt\n" for name in names)
    run(capsys, "import", file("g.tsv", rows), "--out", tmp_path / "g", "--split", "none")
    code, text, _ = run(capsys, "find", tmp_path / "g", "cafe")
    assert (code, text) == (0, ":Café\n:Ein_Café\n")
    assert run(capsys, "find", tmp_path / "g", "LIEGT")[1] == ":liegt_in  relation\n"
    vocabulary = folder.load(tmp_path / "g").vocabulary
    for name in names:
        found = json.loads(run(capsys, "find", tmp_path / "g", name, "--json")[1])["found"]
        (query,) = (row["query"] for row in found if row["name"] == name)
        bound = bind(parse(f"SELECT ?x {{ {query} :liegt_in ?x }}"), vocabulary)
        assert [vocabulary.entities[bound.nodes[node]] for node in bound.anchors] == [name]


def test_find_abbreviates_iris(file: File, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    turtle = "@prefix w: <http://w.org/> . w:Rhine w:through w:Germany, <http://w.org/a/Rhine>, <http://x.org/#Rhine> ."
    run(capsys, "import", file("g.ttl", turtle), "--out", tmp_path / "g", "--split", "none")
    assert run(capsys, "find", tmp_path / "g", "rhine")[1].split() == [
        ":Rhine",
        "<http://w.org/a/Rhine>",
        "<http://x.org/#Rhine>",
    ]


def test_a_header_and_bad_lines_are_reported(file: File, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    source = file("films.csv", "Subject,Property,Value\na,r,b\nbroken\n" + "x,y\n" * 7 + "b,r,c\n")
    code, _, errors = run(capsys, "import", source, "--out", tmp_path / "g")
    assert (code, "films.csv, line 3: 1 column where 3 are expected" in " ".join(errors.split())) == (2, True)
    code, text, errors = run(capsys, "import", source, "--out", tmp_path / "g", "--skip-bad")
    assert code == 0
    assert "header line of films.csv: Subject, Property, Value" in text
    assert "8  lines that cannot be read, left out" in text
    assert "line 3: 1 column" in errors and "line 7: 2 columns" in errors and "line 8" not in errors
    assert "3 more" in errors
    assert list(folder.load(tmp_path / "g").vocabulary.entities) == ["a", "b", "c"]


def test_import_as_json_and_without_split(file: File, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, text, _ = run(capsys, "import", file("g.tsv", TRIPLES), "--out", tmp_path / "g", "--split", "none", "--json")
    report = json.loads(text)
    assert code == 0
    assert report["source"]["split"] == "none"
    assert report["triples"]["valid"] == report["triples"]["test"] == 0
    assert report["source"]["files"] == ["g.tsv"]


def test_the_seed_decides_the_split(file: File, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    source = file("g.tsv", TRIPLES)
    prints = []
    for number, seed in enumerate((1, 1, 2)):
        code, text, _ = run(
            capsys, "import", source, "--out", tmp_path / str(number), "--split", "0.1,0.2", "--seed", seed, "--json"
        )
        assert code == 0
        prints.append(json.loads(text)["fingerprint"])
    assert prints[0] == prints[1] != prints[2]


def test_unseen_entities_are_kept_and_told(file: File, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file("d/train.txt", "a\tr\tb\n")
    source = file("d/valid.txt", "a\tr\tc\n").parent
    code, text, errors = run(capsys, "import", source, "--out", tmp_path / "g")
    assert code == 0
    assert "3 entities" in " ".join(text.split())
    assert "as the files give them" in text
    assert "entities without a triple in train: 1 of valid, 0 of test" in " ".join(errors.split())
    assert "the test split is empty" in errors
    code, text, _ = run(capsys, "stats", tmp_path / "g")
    assert code == 0


def test_import_and_stats_count_alike(file: File, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file("d/train.txt", "a\tr\tb\nb\tr\tc\nc\tr\ta\nc\tr\td\n")
    file("d/valid.txt", "a\tr\tb\na\tr\tc\n")
    source = file("d/test.txt", "a\tr\tc\n").parent
    for number in range(9):
        file(f"d/old{number}.tsv", "x\tr\ty\n")
    code, text, errors = run(capsys, "import", source, "--out", tmp_path / "g")
    assert code == 0
    assert "4 entities, 1 relations, 5 triples" in " ".join(text.split())
    assert "ignored files: old0.tsv" in text and "old7.tsv and 1 more" in " ".join(text.split())
    assert "triples that train holds, too: 1 of valid, 0 of test" in " ".join(errors.split())
    code, text, _ = run(capsys, "stats", tmp_path / "g")
    assert "4 entities, 1 relations, 5 triples" in " ".join(text.split())
    assert "mean 2.5, median 2.5, most 4 (c)" in text
    report = json.loads(run(capsys, "stats", tmp_path / "g", "--json")[1])
    assert (report["triples"], report["degrees"]["median"]) == (5, 2.5)


def test_statistics_of_a_graph_without_entities(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder.save(Splits(Vocabulary([], []), as_triples([])), tmp_path / "g")
    code, text, _ = run(capsys, "stats", tmp_path / "g")
    assert (code, "0 entities, 0 relations, 0 triples" in " ".join(text.split())) == (0, True)
    code, text, _ = run(capsys, "stats", tmp_path / "g", "--json")
    assert (code, json.loads(text)["degrees"]["most_entity"]) == (0, None)


def test_a_folder_with_train_alone_is_cut_as_asked(
    file: File, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    source = file("d/train.txt", TRIPLES).parent
    file("d/valid.txt", "")
    code, text, _ = run(capsys, "import", source, "--out", tmp_path / "g", "--split", "0.1,0.2", "--json")
    assert code == 0
    report = json.loads(text)
    total = sum(report["triples"].values())
    assert (report["triples"]["valid"], report["triples"]["test"]) == (round(total * 0.1), round(total * 0.2))
    file("d/test.txt", "e0\tr0\te19\n")
    code, text, errors = run(capsys, "import", source, "--out", tmp_path / "h")
    assert code == 0
    assert "as the files give them" in text
    assert "note: the valid split is empty" in errors


def test_the_standard_input(file: File, tmp_path: Path) -> None:
    command = [sys.executable, "-m", "biqe", "import", "-", "--format", "tsv", "--out", str(tmp_path / "g")]
    done = subprocess.run(command, input=TRIPLES.encode(), capture_output=True, timeout=120)
    assert (done.returncode, b"of 0" in done.stderr) == (0, False), done.stderr
    assert len(folder.load(tmp_path / "g").vocabulary.entities) == 20


def test_a_flipped_byte_is_an_error_not_a_flood(file: File, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "g"
    assert run(capsys, "import", file("g.tsv", TRIPLES), "--out", out)[0] == 0
    data = bytearray((out / "train.npy").read_bytes())
    data[-1] = 0x7F
    (out / "train.npy").write_bytes(data)
    code, _, errors = run(capsys, "stats", out)
    assert code == 2
    assert "is damaged: a triple has the object 2130706" in " ".join(errors.split())
    assert "biqe doctor" in errors


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["g.tsv", "--split", "0.5"], "two shares or none"),
        (["g.tsv", "--split", "0.5,0.6"], "sum to less than 1"),
        (["g.tsv", "--split", "nan,0"], "sum to less than 1"),
        (["g.tsv", "--format", "xls"], "format must be one of"),
        (["nowhere.tsv"], "does not exist"),
        (["bad.tsv"], "bad.tsv, line 2: 1 column where 3 are expected"),
        (["d", "--split", "0.1,0.1"], "has splits of its own"),
        (["bad.tsv", "--seed", "-1"], "seed must be 0 or more. Got -1"),
        (["g.tsv", "--labels", "nolabels.tsv"], "labels file"),
    ],
)
def test_bad_input_ends_with_code_2(
    file: File,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    arguments: list[str],
    message: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    file("g.tsv", TRIPLES)
    file("bad.tsv", "a\tr\tb\nnonsense\n")
    file("d/train.tsv", TRIPLES)
    file("d/valid.tsv", "e0\tr0\te0\n")
    code, text, errors = run(capsys, "import", *arguments, "--out", "kg")
    assert (code, text) == (2, "")
    assert message in " ".join(errors.split())
    assert "Traceback" not in errors
    assert not (tmp_path / "kg").exists()


def test_existing_places(file: File, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    source, out = file("g.tsv", TRIPLES), tmp_path / "g"
    assert run(capsys, "import", source, "--out", out)[0] == 0
    before = folder.load(out).fingerprint
    code, _, errors = run(capsys, "import", file("h.tsv", "a\tr\tb\n"), "--out", out)
    assert code == 2
    assert "--force" in errors
    assert folder.load(out).fingerprint == before
    assert run(capsys, "import", tmp_path / "h.tsv", "--out", out, "--force")[0] == 0
    assert folder.load(out).fingerprint != before
    code, _, errors = run(capsys, "import", source, "--out", source.parent, "--force")
    assert code == 2
    assert "is not a graph folder" in " ".join(errors.split())
    assert source.read_text() == TRIPLES
    for command in (["stats", tmp_path], ["find", tmp_path, "x"], ["stats", tmp_path / "none"]):
        code, _, errors = run(capsys, *command)
        assert code == 2
        assert "Traceback" not in errors
