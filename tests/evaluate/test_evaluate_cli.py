"""``biqe evaluate`` from end to end on a small graph with an untrained model."""

import json
import shutil
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from biqe import atlas
from biqe.cli import main
from biqe.evaluate import Bio, Cq, Query2Box, Report, evaluate
from biqe.graph.vocabulary import Vocabulary
from biqe.mine import folder as mined_folder
from biqe.mine.dataset import MineConfig, mine
from biqe.models import store
from biqe.training.config import TrainConfig
from biqe.training.run import Run


@pytest.fixture(scope="module")
def world(tmp_path_factory, dense_splits, run_folder, write_release):
    """A graph, a mined set, a model and a release, in folders."""
    place, splits = tmp_path_factory.mktemp("world"), dense_splits
    model = run_folder(place)
    mined = mine(splits, MineConfig(paths=50, dags=20, eval_paths=150, eval_dags=40, train_filters=False), threads=1)
    mined_folder.save(mined, place / "cq")
    write_release(mined["valid"], splits.vocabulary, place / "release", split="dev")
    return SimpleNamespace(place=place, splits=splits, mined=mined, model=model)


def run(capsys, *words):
    code = main(["evaluate", *map(str, words)])
    captured = capsys.readouterr()
    return code, captured.out, captured.err


def test_more_threads_than_can_start_are_refused(world, capsys):
    code, out, err = run(capsys, world.place / "run", "--set", world.place / "cq", "--threads", 100_000)
    assert code == 2 and out == "" and "--threads" in err and "1024" in err


def test_a_set(world, capsys):
    code, out, err = run(capsys, world.place / "run", "--set", world.place / "cq", "--split", "valid", "--threads", 1)
    assert code == 0, err
    assert "all targets" in out
    assert "intersection" in out
    assert "complete graph" in out
    report = Report.load(world.place / "run" / "reports" / "cq-valid-complete.json")
    assert report.metrics == evaluate(world.model, world.mined["valid"]).metrics
    assert report.fingerprints["vocabulary"] == world.splits.vocabulary.fingerprint
    assert report.fingerprints["graph"] == world.splits.fingerprint


def test_json_is_one_document_and_the_file_holds_the_same(world, capsys, tmp_path):
    code, out, err = run(
        capsys,
        world.place / "run" / "model",
        "--set",
        world.place / "cq",
        "--split",
        "test",
        "--filter-graph",
        "split",
        "--json",
        "--out",
        tmp_path / "r.json",
    )
    assert code == 0, err
    printed = json.loads(out)
    assert printed == json.loads((tmp_path / "r.json").read_text())
    assert (printed["filter_graph"], printed["notes"]["split"]) == ("split", "test")
    assert not (world.place / "run" / "model" / "reports").exists()


def test_a_release_gives_the_figures_of_the_set_it_was_written_from(world, capsys):
    code, out, err = run(capsys, world.place / "run", "--release", world.place / "release", "--split", "dev", "--json")
    assert code == 0, err
    printed = json.loads(out)
    assert (printed["filter_graph"], printed["notes"]["filters"]) == ("split", "released")
    expected = evaluate(world.model, world.mined["valid"], Cq("split")).metrics["realistic"]
    assert printed["overall"]["metrics"]["realistic"] == pytest.approx(expected, rel=1e-3)
    assert (world.place / "run" / "reports" / "release-dag-dev-split.json").is_file()


def test_complete_filters_of_a_release_are_computed(world, capsys):
    words = (world.place / "run", "--release", world.place / "release", "--filter-graph", "complete")
    code, _, err = run(capsys, *words)
    assert code == 2
    assert "--graph" in err
    code, out, err = run(capsys, *words, "--graph", world.place / "graph", "--json")
    assert code == 0, err
    printed = json.loads(out)
    assert printed["notes"]["filters"] == "computed from the graph"
    expected = evaluate(world.model, world.mined["valid"], Cq("complete")).metrics["realistic"]
    assert printed["overall"]["metrics"]["realistic"] == pytest.approx(expected, rel=1e-3)


def test_the_graph_of_a_run_is_found(world, capsys, tmp_path):
    words = ("--release", world.place / "release", "--filter-graph", "complete", "--json")
    for number, graph in enumerate([world.place / "graph", world.place / "moved away"]):
        folder = tmp_path / f"run{number}"
        Run.create(
            folder,
            model="biqe",
            model_config={},
            train=TrainConfig(epochs=1),
            query_set=None,
            graph={"name": "graph", "path": str(graph), "fingerprint": "0"},
        )
        shutil.copytree(world.place / "run" / "model", folder / "model")
    code, out, err = run(capsys, tmp_path / "run0", *words)
    assert code == 0, err
    assert json.loads(out)["fingerprints"]["graph"] == world.splits.fingerprint
    code, _, err = run(capsys, tmp_path / "run1", *words)
    assert code == 2
    assert "--graph" in err


def test_another_vocabulary_is_refused(world, capsys, tmp_path):
    names = [*world.splits.vocabulary.entities]
    other = Vocabulary([names[1], names[0], *names[2:]], world.splits.vocabulary.relations)
    store.save(world.model, tmp_path / "model", vocabulary=other, graph_fingerprint="0")
    code, out, err = run(capsys, tmp_path, "--set", world.place / "cq")
    assert (code, out) == (2, "")
    assert "VocabularyMismatch" in err
    assert not (tmp_path / "reports").exists()


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ([], "name the queries"),
        (["--set", "{place}/cq", "--release", "{place}/release"], "not both"),
        (["--set", "{place}/cq", "--kind", "dag"], "--kind is for --release only"),
        (["--set", "{place}/cq", "--split", "nowhere"], "no split 'nowhere'"),
        (["--set", "{place}/cq", "--filter-graph", "reach"], "no filters from the 'reach' graph"),
        (["--set", "{place}/cq", "--filter-graph", "moon"], "complete, split, reach"),
        (["--set", "{place}/graph"], "not a mined set"),
        (["--release", "{place}/cq"], "no file with DAG queries"),
        (["--release", "{place}/release", "--split", "test"], "no file with DAG queries of split 'test'"),
        (["--release", "{place}/release", "--kind", "path"], "no file with path queries"),
    ],
)
def test_bad_input_gets_one_paragraph_and_exit_code_2(world, capsys, words, message):
    code, out, err = run(capsys, world.place / "run", *(word.format(place=world.place) for word in words))
    assert (code, out) == (2, "")
    assert message in " ".join(err.split())
    assert "Traceback" not in err


def test_runs_without_a_model(world, capsys, tmp_path):
    code, _, err = run(capsys, tmp_path / "nothing", "--set", world.place / "cq")
    assert code == 2
    assert "is not a folder" in " ".join(err.split())
    (tmp_path / "run.json").write_text("{}")
    code, _, err = run(capsys, tmp_path, "--set", world.place / "cq")
    assert code == 2
    assert "no model yet" in " ".join(err.split())


@pytest.fixture
def toy_benchmark(world, monkeypatch):
    """Benchmarks made of the world's graph, one a protocol; how they were opened is kept."""
    from biqe import benchmarks
    from biqe.benchmarks.shaped import ShapedQueries
    from biqe.query.bound import HIDDEN, TARGET, AnswerSets, BoundQuery, QuerySet

    rng = np.random.default_rng(1)
    rows = [BoundQuery((n, TARGET), ((0, n % 4, 1),), (1,)) for n in range(12)]
    rows += [BoundQuery((n, HIDDEN, TARGET), ((0, n % 4, 1), (1, 0, 2)), (2,)) for n in range(12)]

    def sets(size, start=0):
        drawn = np.sort([rng.choice(20, size, replace=False) + start for _ in rows], axis=1)
        return AnswerSets(np.arange(0, size * len(rows) + 1, size), drawn.astype(np.int32).ravel())

    hard = sets(1)
    shaped = ShapedQueries(
        QuerySet.of(rows),
        np.arange(24),
        ("1p", "2p"),
        np.repeat([0, 1], 12).astype(np.int8),
        hard,
        hard,
        sets(3, 20),
        sets(2, 40),
    )
    queries = {"toy-q2b": shaped, "toy-bio": shaped, "toy-cq": world.mined["valid"]}
    candidates = np.arange(0, 50, dtype=np.int32)
    opened = []

    def open_(name, *, data=None, splits=None, seed=0):
        opened.append((name, data, splits))
        return SimpleNamespace(
            name=name,
            protocol=name.removeprefix("toy-"),
            splits=splits or world.splits,
            fingerprint="f00d",
            queries=lambda split: queries[name],
            train_queries=lambda: replace(shaped, hard=None) if name == "toy-q2b" else None,
            types=None,
            candidates=candidates,
        )

    monkeypatch.setattr(benchmarks, "names", lambda: list(queries), raising=False)
    monkeypatch.setattr(benchmarks, "open", open_, raising=False)
    return SimpleNamespace(shaped=shaped, opened=opened, candidates=candidates)


def test_a_benchmark_goes_through_its_own_protocol(world, toy_benchmark, capsys):
    for name, protocol in (
        ("toy-q2b", Query2Box(toy_benchmark.candidates)),
        ("toy-bio", Bio()),
    ):
        code, out, err = run(capsys, world.place / "run", "--set", name)
        assert code == 0, err
        report = Report.load(world.place / "run" / "reports" / f"{name}-valid.json")
        assert report.overall == evaluate(world.model, toy_benchmark.shaped, protocol).overall
        assert report.protocol == name.removeprefix("toy-")
        assert (report.fingerprints["benchmark"], report.notes["benchmark"]) == ("f00d", name)
        assert "mean of 2" in out or "mean of 4" in out
        assert max(map(len, out.splitlines())) <= 80
    code, _, err = run(capsys, world.place / "run", "--set", "toy-cq", "--filter-graph", "split", "--split", "dev")
    assert code == 0, err
    report = Report.load(world.place / "run" / "reports" / "toy-cq-valid-split.json")
    assert report.metrics == evaluate(world.model, world.mined["valid"], Cq("split")).metrics
    assert {"allocator", "threads"} <= set(report.machine)


def test_all_answers_of_training_questions_are_ranked(world, toy_benchmark, capsys):
    code, _, err = run(capsys, world.place / "run", "--set", "toy-q2b", "--split", "train")
    assert code == 0, err
    report = Report.load(world.place / "run" / "reports" / "toy-q2b-train.json")
    shaped = replace(toy_benchmark.shaped, hard=toy_benchmark.shaped.answers)
    assert report.overall == evaluate(world.model, shaped, Query2Box(toy_benchmark.candidates)).overall


def test_a_benchmark_is_opened_with_the_graph_of_the_run(world, toy_benchmark, capsys, tmp_path):
    folder = tmp_path / "run"
    Run.create(
        folder,
        model="biqe",
        model_config={},
        train=TrainConfig(epochs=1),
        query_set=None,
        graph={"name": "graph", "path": str(world.place / "graph"), "fingerprint": "0"},
    )
    shutil.copytree(world.place / "run" / "model", folder / "model")
    code, _, err = run(capsys, folder, "--set", "toy-q2b", "--data", tmp_path)
    assert code == 0, err
    name, data, splits = toy_benchmark.opened[-1]
    assert (name, data, splits.fingerprint) == ("toy-q2b", tmp_path, world.splits.fingerprint)
    code, _, err = run(capsys, world.place / "run", "--set", "toy-q2b")
    assert toy_benchmark.opened[-1] == ("toy-q2b", None, None)


def test_a_limit_samples_each_shape(world, toy_benchmark, capsys):
    code, out, err = run(capsys, world.place / "run", "--set", "toy-q2b", "--limit", 5, "--seed", 3)
    assert code == 0, err
    report = Report.load(world.place / "run" / "reports" / "toy-q2b-valid-limit5.json")
    assert {name: part.queries for name, part in report.by_shape.items()} == {"1p": 5, "2p": 5}
    assert (report.notes["limit"], report.notes["of_queries"]) == (5, 24)
    assert "a sample of at most 5" in out
    code, _, err = run(capsys, world.place / "run", "--set", world.place / "cq", "--limit", 7)
    assert code == 0, err
    assert Report.load(world.place / "run" / "reports" / "cq-valid-complete-limit7.json").counts["queries"] == 7
    everything = run(capsys, world.place / "run", "--set", "toy-q2b", "--limit", 1000, "--json")[1]
    assert "limit" not in json.loads(everything)["notes"]  # no sample


def test_a_model_that_uses_the_graph_is_told_it(world, toy_benchmark, capsys, monkeypatch):
    told = []
    kind = type(world.model)
    monkeypatch.setattr(kind, "looks_facts_up", True, raising=False)
    monkeypatch.setattr(kind, "use_graph", lambda self, graph: told.append(len(graph.triples)), raising=False)
    for split in ("valid", "test"):
        code, _, err = run(capsys, world.place / "run", "--set", "toy-q2b", "--split", split)
        assert code == 0, err
    train, valid = len(world.splits.train), len(world.splits.valid)
    assert told[0] == train
    assert train < told[1] <= train + valid


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--set", "fb15k-nothing"], "neither a folder nor a benchmark; benchmarks are toy-q2b, toy-bio, toy-cq"),
        (["--set", "toy-q2b", "--filter-graph", "split"], "--filter-graph is for protocol cq"),
        (["--set", "toy-bio", "--split", "train"], "no queries in its train split"),
        (["--set", "{place}/cq", "--data", "."], "--data is for benchmarks only"),
        (["--set", "toy-q2b", "--kind", "dag"], "--kind is for --release only"),
    ],
)
def test_bad_input_about_benchmarks(world, toy_benchmark, capsys, words, message):
    code, out, err = run(capsys, world.place / "run", *(word.format(place=world.place) for word in words))
    assert (code, out) == (2, "")
    assert message in " ".join(err.split())


def test_a_benchmark_of_another_graph_is_refused(world, toy_benchmark, capsys, tmp_path):
    names = [*world.splits.vocabulary.entities]
    other = Vocabulary([names[1], names[0], *names[2:]], world.splits.vocabulary.relations)
    store.save(world.model, tmp_path / "model", vocabulary=other, graph_fingerprint="0")
    code, _, err = run(capsys, tmp_path, "--set", "toy-q2b")
    assert code == 2
    assert "VocabularyMismatch" in err


def test_the_embedded_model_is_evaluated_and_not_written_to(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert main(["mine", "atlas", "--out", "cq", "--paths", "200", "--dags", "40"]) == 0
    capsys.readouterr()
    code, out, err = run(capsys, "atlas", "--set", "cq", "--limit", 20, "--bootstrap", 0, "--json")
    assert code == 0 and json.loads(out)["overall"]["metrics"]["realistic"]["mrr"] > 0 and "written" not in err
    assert not (Path(atlas.model_path()) / "reports").exists()
    code, _, err = run(capsys, "atlas", "--set", "cq", "--limit", 20, "--bootstrap", 0, "--out", tmp_path / "here.json")
    assert code == 0 and "report written to" in err and (tmp_path / "here.json").is_file()
