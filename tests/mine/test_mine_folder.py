"""The mined set on disk, and the command that writes it."""

from __future__ import annotations

import json
import os
from pathlib import Path

import numpy as np
import pytest
import typer
from typer.testing import CliRunner

from biqe.cli.mine import mine as mine_command
from biqe.errors import InvalidOption, RunFailed, UnreadableFile, VocabularyMismatch
from biqe.graph import folder as graph_folder
from biqe.graph.knowledge_graph import Splits
from biqe.graph.triples import as_triples
from biqe.graph.vocabulary import Vocabulary
from biqe.mine import folder as mined_folder
from biqe.mine.dataset import MineConfig, MinedSet, mine
from biqe.mine.statistics import DEFINITIONS, ROWS

SMALL = MineConfig(paths=60, dags=40, eval_paths=40, eval_dags=30)
COLUMNS = ("node_offsets", "nodes", "gold", "roles", "edge_offsets", "edges", "kinds")


def make_splits(seed: int = 4, prefix: str = "e") -> Splits:
    rng = np.random.default_rng(seed)
    rows = rng.permutation(np.unique(rng.integers(0, [60, 3, 60], (700, 3)), axis=0))
    vocabulary = Vocabulary([f"{prefix}{i}" for i in range(60)], ["a", "b", "c"])
    return Splits(vocabulary, *(as_triples(part) for part in (rows[300:], rows[:150], rows[150:300])))


@pytest.fixture(scope="module")
def splits() -> Splits:
    return make_splits()


@pytest.fixture(scope="module")
def mined(splits) -> MinedSet:
    return mine(splits, SMALL)


@pytest.fixture
def folder(mined, tmp_path) -> Path:
    mined_folder.save(mined, tmp_path / "set")
    return tmp_path / "set"


def test_round_trip(splits, mined, folder):
    loaded = mined_folder.load(folder, splits)
    assert loaded.config == mined.config and loaded.statistics == mined.statistics and loaded.leakage == mined.leakage
    assert list(loaded.queries) == list(mined.queries)
    for split, queries in mined.queries.items():
        for name in COLUMNS:
            ours, theirs = getattr(queries, name), getattr(loaded[split], name)
            assert np.array_equal(ours, theirs) and ours.dtype == theirs.dtype
        for graph, answers in queries.filters.items():
            assert np.array_equal(answers.values, loaded[split].filters[graph].values)
            assert np.array_equal(answers.offsets, loaded[split].filters[graph].offsets)
        assert loaded[split].take(np.array([0, 2])).filters["split"][0].tolist() == queries.filters["split"][0].tolist()


def test_a_set_without_valid_and_test_filters_for_training_goes_round(tmp_path):
    whole = make_splits()
    alone = mine(Splits(whole.vocabulary, whole.train), MineConfig(paths=20, dags=5, train_filters=False))
    mined_folder.save(alone, tmp_path / "set")
    loaded = mined_folder.load(tmp_path / "set")
    assert list(loaded.queries) == ["train"] and not loaded["train"].filters


def test_the_manifest_tells_how_the_set_was_made(splits, folder):
    manifest = mined_folder.load_manifest(folder)
    assert (manifest["recipe"], manifest["seed"]) == ("cq", 0)
    assert manifest["graph_fingerprint"] == splits.fingerprint
    assert manifest["splits"]["train"]["statistics"]["paths"] == 60
    assert "average_masks" in manifest["counted"]


def test_another_graph_is_refused(folder):
    with pytest.raises(VocabularyMismatch, match="graph fingerprint"):
        mined_folder.load(folder, make_splits(seed=5))
    mined_folder.load(folder, vocabulary=make_splits(seed=5).vocabulary)  # same names and ids: fit for a model
    with pytest.raises(VocabularyMismatch, match="vocabulary fingerprint"):
        mined_folder.load(folder, vocabulary=make_splits(prefix="x").vocabulary)


def test_nothing_is_overwritten_unasked(mined, folder, tmp_path):
    before = (folder / "manifest.json").read_bytes()
    with pytest.raises(InvalidOption, match="already holds"):
        mined_folder.save(mined, folder)
    other = tmp_path / "thesis"
    other.mkdir()
    (other / "chapter.txt").write_text("mine")
    for force in (False, True):
        with pytest.raises(InvalidOption, match="not a mined set"):
            mined_folder.save(mined, other, force=force)
    assert (other / "chapter.txt").read_text() == "mine"
    assert (folder / "manifest.json").read_bytes() == before
    mined_folder.save(mined, folder, force=True)
    assert (folder / "manifest.json").read_bytes() == before
    assert sorted(path.name for path in tmp_path.iterdir()) == ["set", "thesis"]


def test_a_full_disk_leaves_the_old_set_and_nothing_else(mined, folder, tmp_path, monkeypatch):
    before = sorted((path.name, path.stat().st_size) for path in folder.iterdir())
    calls = 0

    def fail(*args, **options):
        nonlocal calls
        calls += 1
        if calls == 5:
            raise OSError(28, "No space left on device")
        return real(*args, **options)

    real = os.fsync
    monkeypatch.setattr(os, "fsync", fail)
    with pytest.raises(RunFailed, match="No space left"):
        mined_folder.save(mined, folder, force=True)
    assert sorted((path.name, path.stat().st_size) for path in folder.iterdir()) == before
    assert [path.name for path in tmp_path.iterdir()] == ["set"]


def damage_manifest(**changes):
    def damage(folder: Path) -> None:
        path = folder / "manifest.json"
        path.write_text(json.dumps(json.loads(path.read_text()) | changes))

    return damage


def rewrite(name: str, change):
    """Change an array, and the size in the manifest with it, so that only its content is wrong."""

    def damage(folder: Path) -> None:
        array = np.load(folder / name)
        np.save(folder / name, change(array))
        path = folder / "manifest.json"
        manifest = json.loads(path.read_text())
        manifest["files"][name] = (folder / name).stat().st_size
        path.write_text(json.dumps(manifest))

    return damage


def set_first(value):
    def change(array):
        array = array.copy()
        array.flat[0] = value
        return array

    return change


@pytest.mark.parametrize(
    ("damage", "complaint"),
    [
        (lambda folder: (folder / "manifest.json").unlink(), "no manifest"),
        (lambda folder: (folder / "manifest.json").write_text("{"), "damaged"),
        (lambda folder: (folder / "manifest.json").write_text("[]"), "no JSON object"),
        (damage_manifest(kind="biqe graph"), "not a mined set"),
        (damage_manifest(version=99), "version 99"),
        (damage_manifest(splits=None), "damaged"),
        (damage_manifest(config={"recipe": "cake"}), "recipe"),
        (lambda folder: (folder / "train.nodes.npy").unlink(), "missing"),
        (lambda folder: (folder / "train.nodes.npy").write_bytes(b""), "0 bytes"),
        (rewrite("train.nodes.npy", set_first(60)), "out of range"),
        (rewrite("valid.edges.npy", set_first(77)), "not there"),
        (rewrite("valid.edges.npy", lambda a: a[:, :2]), "do not fit"),
        (rewrite("train.roles.npy", set_first(9)), "out of range"),
        (rewrite("train.gold.npy", lambda a: a[:-1]), "differ in length"),
        (rewrite("train.node_offsets.npy", set_first(1)), "offsets"),
        (rewrite("train.kinds.npy", lambda a: a.astype(np.int32)), "int32"),
        (rewrite("test.filters.split.values.npy", lambda a: a[:-1]), "do not fit together"),
        (rewrite("test.filters.split.offsets.npy", lambda a: np.append(a, a[-1])), "damaged"),
    ],
)
def test_damage_is_noticed(folder, damage, complaint):
    damage(folder)
    with pytest.raises(UnreadableFile, match=complaint):
        mined_folder.load(folder)


def test_any_damage_to_the_head_of_an_array_is_noticed_or_harmless(folder):
    path = folder / "valid.filters.split.values.npy"
    data = path.read_bytes()
    for place in range(128):
        for byte in (0, ord("("), ord(","), 0xA1, 0xFF):
            path.write_bytes(data[:place] + bytes([byte]) + data[place + 1 :])
            try:
                mined_folder.load(folder)
            except UnreadableFile as error:
                assert error.hint == "mine the set again"


def test_a_folder_that_does_not_exist():
    with pytest.raises(UnreadableFile, match="does not exist"):
        mined_folder.load("no/such/set")


@pytest.fixture
def run(splits, tmp_path):
    """The command, and a graph folder to run it on."""
    app = typer.Typer()
    app.command()(mine_command)
    graph_folder.save(splits, tmp_path / "graph")

    def invoke(*arguments: str):
        options = ["--paths", "60", "--dags", "40", "--eval-paths", "40", "--eval-dags", "30"]
        return CliRunner().invoke(app, [str(tmp_path / "graph"), *options, *arguments])

    return invoke


def test_the_command_prints_the_table_at_80_columns(run, mined, tmp_path):
    result = run("--out", str(tmp_path / "set"))
    assert result.exit_code == 0, result.output
    lines = result.stdout.splitlines()
    assert max(map(len, lines)) <= 80
    row = next(line.split() for line in lines if line.split()[:1] == ["DAGs"])
    assert row[1:] == [str(mined.statistics[split].dags) for split in ("train", "valid", "test")]
    assert next(line.split() for line in lines if line.split()[:1] == ["Paths"]) == ["Paths", "60", "-", "-"]
    text = " ".join(result.stdout.split())
    for title, name in ROWS:
        assert f"{title}: {DEFINITIONS[name]}." in text
    loaded = mined_folder.load(tmp_path / "set")
    assert np.array_equal(loaded["train"].nodes, mined["train"].nodes)


def test_the_command_says_which_split_gave_nothing(run, splits, tmp_path):
    few = Splits(splits.vocabulary, splits.train, splits.valid[:1], splits.test)
    graph_folder.save(few, tmp_path / "graph", force=True)
    result = run("--out", str(tmp_path / "set"))
    assert result.exit_code == 0, result.output
    assert "note: the 1 triples of valid gave no query" in " ".join(result.output.split())
    assert "triples of test gave no query" not in " ".join(result.output.split())
    masks = next(line.split() for line in result.stdout.splitlines() if line.startswith("Avg. masks "))
    assert masks[3] == "-" and float(masks[4]) > 1


def test_the_command_prints_one_json_document(run, tmp_path):
    result = run("--recipe", "paths", "--json", "--out", str(tmp_path / "set"))
    assert result.exit_code == 0, result.output
    printed = json.loads(result.stdout)
    assert printed["recipe"] == "paths" and printed["splits"]["valid"]["filters"] == ["complete", "reach", "split"]


def test_the_command_refuses_before_it_works(run, tmp_path):
    (tmp_path / "set").mkdir()
    (tmp_path / "set" / "notes.txt").write_text("mine")
    result = run("--out", str(tmp_path / "set"))
    assert isinstance(result.exception, InvalidOption)
    assert isinstance(run("--recipe", "cake", "--out", str(tmp_path / "other")).exception, InvalidOption)
    assert not (tmp_path / "other").exists()
