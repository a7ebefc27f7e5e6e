"""Where ``biqe evaluate`` writes its report, and what it refuses before it ranks anything."""

from __future__ import annotations

import json
import os
import shutil

import pytest

from biqe.cli import main
from biqe.evaluate import Report
from biqe.mine import folder as mined_folder
from biqe.mine.dataset import MineConfig, mine


@pytest.fixture(scope="module")
def world(tmp_path_factory, dense_splits, run_folder, write_release):
    """A graph, two mined sets of one name, a model and a release without filters, in folders."""
    place = tmp_path_factory.mktemp("world")
    run_folder(place)
    for seed, name in enumerate("ab"):
        config = MineConfig(seed=seed, paths=20, dags=5, eval_paths=150, eval_dags=20, train_filters=False)
        mined = mine(dense_splits, config, threads=1)
        mined_folder.save(mined, place / name / "cq")
    write_release(mined["valid"], dense_splits.vocabulary, place / "release", split="dev")
    for path in (place / "release").rglob("*filters*"):
        path.unlink()
    return place


@pytest.fixture
def evaluate(world, capsys):
    """Function that runs the command; exit code, and what it said in one line."""

    def run(*words):
        code = main(["evaluate", str(world / "run"), "--threads", "1", "--bootstrap", "0", *map(str, words)])
        return code, " ".join(capsys.readouterr().err.split())

    return run


@pytest.fixture
def never_ranks(monkeypatch):
    """Fails where queries are ranked after all."""
    monkeypatch.setattr("biqe.evaluate.loop.evaluate", lambda *any_, **more: pytest.fail("it began to rank"))


@pytest.mark.parametrize("text", ["my thesis", "", "{", "[1, 2]", "{}", '{"format": "other"}', "\xff\xfe"])
def test_a_file_that_is_no_report_is_never_overwritten(world, evaluate, never_ranks, tmp_path, text):
    path = tmp_path / "precious.txt"
    path.write_text(text, encoding="latin-1")
    code, said = evaluate("--set", world / "a" / "cq", "--out", path)
    assert code == 2 and "InvalidOption" in said and "nothing was overwritten" in said and "hint:" in said
    assert path.read_text(encoding="latin-1") == text


def test_places_that_cannot_take_a_report_are_refused_before_ranking(world, evaluate, never_ranks, tmp_path):
    (tmp_path / "file").write_text("x")
    (tmp_path / "dangling").symlink_to(tmp_path / "gone")
    for place in (
        tmp_path,
        tmp_path / "file" / "report.json",
        "/proc/nowhere/report.json",
        "/dev/null",
        tmp_path / "dangling",
    ):
        code, said = evaluate("--set", world / "a" / "cq", "--out", place)
        assert code == 2 and "error: InvalidOption" in said and "hint:" in said, place
    assert os.path.exists("/dev/null") and not os.path.isfile("/dev/null")


def test_an_older_report_gives_way_and_new_folders_are_made(world, evaluate, tmp_path):
    path = tmp_path / "new" / "report.json"
    for name in "ab":
        code, said = evaluate("--set", world / name / "cq", "--out", path)
        assert code == 0, said
    assert Report.load(path).notes["set"] == str(world / "b" / "cq")


def test_sets_of_one_name_keep_their_reports_apart(world, evaluate):
    for name in "abab":
        code, said = evaluate("--set", world / name / "cq")
        assert code == 0, said
    reports = {path.stem: Report.load(path) for path in (world / "run" / "reports").iterdir()}
    assert len(reports) == 2
    own = reports.pop("cq-valid-complete")
    assert own.notes["set"] == str(world / "a" / "cq")
    [(stem, other)] = reports.items()
    assert other.notes["set"] == str(world / "b" / "cq")
    assert stem == f"cq-valid-complete-{other.fingerprints['queries'][:8]}"


def test_what_lies_where_the_report_goes_by_itself_is_kept(world, evaluate, never_ranks):
    path = world / "run" / "reports" / "cq-test-complete.json"
    path.parent.mkdir(exist_ok=True)
    path.write_text(json.dumps({"format": "other"}))
    code, said = evaluate("--set", world / "a" / "cq", "--split", "test")
    assert code == 2 and "--out" in said
    assert json.loads(path.read_text()) == {"format": "other"}


def test_filters_that_a_release_lacks_are_computed(world, evaluate, dense_splits, write_release, tmp_path):
    code, said = evaluate("--release", world / "release", "--split", "dev")
    assert code == 2 and "has no filters for its dag queries" in said and "--graph" in said[said.index("hint:") :]
    graph = ("--graph", world / "graph")
    config = MineConfig(recipe="paths", paths=20, dags=0, eval_paths=150, eval_dags=0, train_filters=False, seed=3)
    paths = mine(dense_splits, config, threads=1)["valid"]
    write_release(paths, dense_splits.vocabulary, tmp_path / "paths", split="dev", filter_graph="reach")
    code, said = evaluate("--release", tmp_path / "paths", "--split", "dev", "--out", tmp_path / "released.json")
    assert code == 0, said
    (tmp_path / "paths" / "paths_dev_filters.json").unlink()
    code, said = evaluate(
        "--release", tmp_path / "paths", "--split", "dev", *graph, "--out", tmp_path / "computed.json"
    )
    assert code == 0, said
    released, computed = (Report.load(tmp_path / f"{name}.json") for name in ("released", "computed"))
    assert computed.filter_graph == "reach" and "the release has none" in computed.notes["filters"]
    assert computed.metrics == released.metrics
    for name in ("split", "complete"):
        code, said = evaluate("--release", world / "release", "--split", "dev", "--filter-graph", name, *graph)
        assert code == 0, said


def test_a_filter_file_that_cannot_be_read_is_named_not_replaced(world, evaluate, tmp_path):
    shutil.copytree(world / "release", tmp_path / "release")
    (tmp_path / "release" / "dags_dev_filters.json").write_text("[{")
    code, said = evaluate("--release", tmp_path / "release", "--split", "dev", "--graph", world / "graph")
    assert code == 2 and "dags_dev_filters.json" in said and "broken JSON" in said
