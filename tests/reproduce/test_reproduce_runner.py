"""Jobs worked off: interrupted between and within them, failing, damaged records, quick apart from real."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from biqe.benchmarks import download
from biqe.benchmarks.storage import data_folder
from biqe.errors import InvalidOption, RunFailed, UnknownName, UnreadableFile
from biqe.reproduce import recipe as recipes
from biqe.reproduce import result as results
from biqe.reproduce.job import expand
from biqe.reproduce.runner import Queue, run_table
from biqe.reproduce.tables import compare, to_text
from biqe.reproduce.work import Places

pytestmark = pytest.mark.slow


def run(table, places, watcher, *, resume=False, **choice):
    return run_table(table, expand(table, **choice), places, resume=resume, watcher=watcher)


def figures(places, name):
    return results.read(places.results / f"{name}.json").figures


@pytest.fixture
def straight(toy_recipes, registry, tmp_path, remembers):
    """Figures of two recipes that nobody interrupted, by file name."""
    table = toy_recipes(one="toy-cq", two="toy-cq")
    places = Places(tmp_path / "straight-work", tmp_path / "straight-results")
    run(table, places, remembers())
    return {name: figures(places, name) for name in ("toy/one/seed-0", "toy/two/seed-0")}


def accuracy(figures):
    return {
        group: {metric: value for metric, value in metrics.items() if not metric.startswith("ms_")}
        for group, metrics in figures.items()
    }


def test_interrupts_between_and_during_jobs_change_no_figure(straight, toy_recipes, places, remembers):
    table = toy_recipes(one="toy-cq", two="toy-cq")
    with pytest.raises(KeyboardInterrupt):
        run(table, places, remembers(stop_in_training_of="one"))
    assert Queue(places.work)["toy/one/seed-0"].state == "running"
    assert not list(places.results.rglob("*.json"))
    with pytest.raises(KeyboardInterrupt):
        run(table, places, remembers(stop_at_job="two"), resume=True)
    assert Queue(places.work)["toy/one/seed-0"].state == "done"
    first = (places.results / "toy/one/seed-0.json").stat().st_mtime_ns
    last = remembers(stop_in_training_of="two")
    with pytest.raises(KeyboardInterrupt):
        run(table, places, last, resume=True)
    assert ("began", "toy/one/seed-0") not in last.told
    last = remembers()
    assert set(run(table, places, last, resume=True).values()) == {"done"}
    assert ("doing", "going on with training") in last.told
    assert (places.results / "toy/one/seed-0.json").stat().st_mtime_ns == first
    for name, expected in straight.items():
        assert accuracy(figures(places, name)) == accuracy(expected)
    assert results.read(places.results / "toy/one/seed-0.json").parts == 2
    again = remembers()
    assert set(run(table, places, again, resume=True).values()) == {"done"}
    assert again.told == [], "nothing was left to do"


def test_what_was_begun_is_not_begun_again_without_resume(toy_recipes, registry, places, remembers):
    table = toy_recipes(one="toy-cq", two="toy-cq")
    run(table, places, remembers(), only="one")
    before = sorted(places.work.rglob("*"))
    with pytest.raises(InvalidOption, match="1 of 2 jobs of toy were begun before") as error:
        run(table, places, remembers())
    assert "--resume" in error.value.hint
    assert sorted(places.work.rglob("*")) == before
    assert run(table, places, remembers(), only="two") == {"toy/two/seed-0": "done"}


def test_a_job_that_fails_keeps_its_reason_and_the_others_go_on(
    toy_recipes, registry, places, remembers, tmp_path, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    table = toy_recipes(bad="toy-broken", good="toy-cq", absent="toy-absent")
    states = run(table, places, remembers())
    assert list(states.values()) == ["failed", "done", "not at hand"]
    failed = results.read(places.results / "toy/bad/seed-0.json")
    assert failed.reason == "./broken.pkl is damaged", "the folder of this machine is no part of a result"
    assert str(tmp_path) not in (places.results / "toy/good/seed-0.json").read_text()
    shown = compare(table, results.read_all(places.results))
    assert shown.rows[0].averages[0].failed == ((0, "./broken.pkl is damaged"),)
    registry.clear()
    assert run(table, places, remembers(), resume=True)["toy/bad/seed-0"] == "failed"
    assert registry == ["toy-broken"], "only what failed is tried again"


def test_a_fault_of_ours_is_a_failed_job_too(toy_recipes, registry, places, remembers, monkeypatch):
    table = toy_recipes(one="toy-cq")
    monkeypatch.setattr("biqe.reproduce.work.figures_of", lambda report: 1 // 0)
    assert run(table, places, remembers()) == {"toy/one/seed-0": "failed"}
    assert "ZeroDivisionError" in results.read(places.results / "toy/one/seed-0.json").reason
    (fault,) = (places.work / "faults").iterdir()
    assert "Traceback" in fault.read_text()


def test_quick_results_never_mix_with_real_ones(toy_recipes, registry, places, remembers):
    table = toy_recipes(one="toy-cq")
    run(table, places, remembers())
    real = (places.results / "toy/one/seed-0.json").read_bytes()
    assert run(table, places, remembers(), quick=True) == {"toy/one/seed-0-quick": "done"}
    assert (places.results / "toy/one/seed-0.json").read_bytes() == real
    found = results.read_all(places.results)
    assert [ours.quick for ours in compare(table, found).rows[0].averages] == [False, True]
    assert [ours.seeds for ours in compare(table, found, quick=False).rows[0].averages] == [(0,)]
    quick = results.read(places.results / "toy/one/seed-0-quick.json")
    assert quick.config["model"]["width"] == 8
    assert quick.config["train"]["epochs"] == 0.5
    assert quick.reports["cq-split"]["counts"]["queries"] == 3
    assert len(list((places.work / "runs").iterdir())) == 2


def test_another_budget_or_split_stands_apart(toy_recipes, registry, places, remembers):
    table = toy_recipes(one="toy-cq")
    run(table, places, remembers())
    run(table, places, remembers(), minutes=0.02)
    run(table, places, remembers(), split="test")
    names = {path.stem for path in places.results.rglob("*.json")}
    assert names == {"seed-0", "seed-0-0.02min", "seed-0-test"}
    shown = compare(table, results.read_all(places.results)).rows[0]
    assert len(shown.averages) == 3
    assert shown.best.settings["train"]["epochs"] == 1
    assert len(list((places.work / "runs").iterdir())) == 2, "both splits are ranked by one trained model"


def test_jobs_that_want_the_same_training_share_it(toy_recipes, registry, places, remembers):
    first, second = toy_recipes("a", one="toy-cq"), toy_recipes("b", one="toy-cq")
    run(first, places, remembers())
    watcher = remembers()
    run(second, places, watcher)
    assert watcher.told == [("done", "b/one/seed-0")], "nor is anything ranked twice"
    assert figures(places, "a/one/seed-0") == figures(places, "b/one/seed-0")
    mined_before = results.read(places.results / "a/one/seed-0.json")
    for name in "ab":
        path = places.results / name / "one" / "seed-0.json"
        results.write(replace(mined_before, table=name, settings={**mined_before.settings, "seed": 1}), path)
    run(second, places, watcher, resume=True)
    assert ("doing", "training") not in watcher.told, "the run is shared also where the ranking cannot be"
    assert ("ranked", True) in watcher.told


def test_seeds_differ_and_are_averaged(toy_recipes, registry, places, remembers):
    table = toy_recipes(one="toy-q2b")
    assert list(run(table, places, remembers(), seeds=2)) == ["toy/one/seed-0", "toy/one/seed-1"]
    values = [figures(places, f"toy/one/seed-{seed}")["1p"]["mrr"] for seed in (0, 1)]
    assert values[0] != values[1]
    (ours,) = compare(table, results.read_all(places.results)).rows[0].averages
    assert ours.mean["1p"]["mrr"] == pytest.approx(sum(values) / 2)
    assert ours.deviation["1p"]["mrr"] == pytest.approx(abs(values[0] - values[1]) / 2**0.5)


def test_a_lost_queue_is_found_again_from_results_and_runs(toy_recipes, registry, places, remembers):
    table = toy_recipes(one="toy-cq", two="toy-cq")
    with pytest.raises(KeyboardInterrupt):
        run(table, places, remembers(stop_in_training_of="two"))
    (places.work / "queue.json").unlink()
    watcher = remembers()
    assert set(run(table, places, watcher, resume=True).values()) == {"done"}
    assert ("began", "toy/one/seed-0") not in watcher.told
    assert ("doing", "going on with training") in watcher.told


@pytest.mark.parametrize(
    "content",
    [
        "",
        "{",
        "[]",
        "{}",
        '{"format": "biqe-queue", "version": 2, "jobs": {}}',
        '{"format": "biqe-queue", "version": 1, "jobs": []}',
        '{"format": "biqe-queue", "version": 1, "jobs": {"a": {"state": "lost", "digest": ""}}}',
        '{"format": "biqe-queue", "version": 1, "jobs": {"a": {"state": "done"}}}',
    ],
)
def test_a_damaged_queue_is_refused_with_the_way_out(content, places):
    places.work.mkdir()
    (places.work / "queue.json").write_text(content)
    with pytest.raises(UnreadableFile, match="cannot be read as a queue") as error:
        Queue(places.work)
    assert "delete it and say --resume" in error.value.hint


def test_memory_of_a_training_is_that_of_the_process_that_did_it(toy_recipes, registry, places, remembers):
    table = toy_recipes(one="toy-cq")
    run(table, places, remembers())
    (job,) = expand(table)
    trace, path = places.work / "runs" / job.run_name / "trace.jsonl", results.path_of(places.results, job)
    *steps, ended = trace.read_text().splitlines()
    told = json.loads(ended)
    assert 0 < told["peak_resident_mib"] <= results.read(path).peak_mib
    trace.write_text("\n".join([*steps, json.dumps(told | {"peak_resident_mib": 9_999_999})]) + "\n")
    path.unlink()
    run(table, places, remembers(), resume=True)
    assert results.read(path).peak_mib == 9_999_999


def test_a_leftover_of_a_kill_before_training_is_cleared(toy_recipes, registry, places, remembers):
    table = toy_recipes(one="toy-cq")
    (job,) = expand(table)
    (places.work / "runs" / job.run_name).mkdir(parents=True)
    (places.work / "runs" / job.run_name / ".run.json.partial").write_text("{")
    assert run(table, places, remembers()) == {"toy/one/seed-0": "done"}


def test_two_processes_do_not_share_a_work_folder(toy_recipes, registry, places, remembers):
    table = toy_recipes(one="toy-cq")
    with Queue(places.work).locked(), pytest.raises(RunFailed, match="another process"):
        run(table, places, remembers())


def test_nothing_begins_where_no_data_is_at_hand(toy_recipes, registry, places, remembers):
    table = toy_recipes(one="toy-absent")
    with pytest.raises(
        UnreadableFile, match="toy-absent are not at hand: train.txt, valid.txt must be put into nowhere"
    ):
        run(table, places, remembers())
    assert not places.work.exists()


def test_missing_files_that_have_an_address_are_fetched(toy_recipes, registry, places, remembers, monkeypatch):
    there, asked = [False], []
    remotes = [download.Remote("https://nowhere.invalid/a", f"toy/{file}", "", 25) for file in ("a.txt", "b.txt")]

    def fetch(name, *, data, on_progress):
        asked.append((name, data))
        for remote in remotes:
            on_progress(remote.place, 5, 25)
            on_progress(remote.place, 25, 25)
        there[0] = True
        return []

    monkeypatch.setattr(download, "remote_files", lambda name: remotes)
    monkeypatch.setattr(download, "fetch", fetch)
    missing = [data_folder(places.data) / remotes[1].place]
    monkeypatch.setattr("biqe.benchmarks.missing", lambda name, *, data: [] if there[0] else missing)
    table, watcher = toy_recipes(one="toy-cq"), remembers()
    assert run(table, places, watcher) == {"toy/one/seed-0": "done"}
    assert asked == [("toy-cq", None)]
    assert [step for kind, step in watcher.told if kind == "doing"][:2] == [
        "fetching toy/a.txt, 0.0 MB, 1 of at most 2",
        "fetching toy/b.txt, 0.0 MB, 2 of at most 2",
    ]
    there[0] = False
    asked.clear()
    assert run(table, places, remembers(), resume=True) == {"toy/one/seed-0": "done"}
    assert asked == [], "what is done needs no files"


def test_files_of_which_some_have_no_address_are_not_fetched(toy_recipes, registry, places, remembers, monkeypatch):
    remotes = [download.Remote("https://nowhere.invalid/a", "toy/a.txt", "", 25)]
    monkeypatch.setattr(download, "remote_files", lambda name: remotes)
    missing = [data_folder() / "toy" / file for file in ("a.txt", "b.txt")]
    monkeypatch.setattr("biqe.benchmarks.missing", lambda name, *, data: missing)
    monkeypatch.setattr(download, "fetch", lambda *_, **__: pytest.fail("in vain"))
    with pytest.raises(UnreadableFile, match="a.txt, b.txt must be put into .*toy") as error:
        run(toy_recipes(one="toy-cq"), places, remembers())
    assert "biqe benchmarks toy-cq --fetch" in error.value.hint


def test_a_fetch_that_fails_is_the_reason(toy_recipes, registry, places, remembers, monkeypatch):
    remotes = [download.Remote("https://nowhere.invalid/a", "toy/a.txt", "", 25)]
    monkeypatch.setattr(download, "remote_files", lambda name: remotes)
    missing = {"toy-cq": [data_folder() / "toy" / "a.txt"]}
    monkeypatch.setattr("biqe.benchmarks.missing", lambda name, *, data: missing.get(name, []))

    def fetch(*_, **__):
        raise UnreadableFile("a.txt could not be fetched", hint="put it at toy/a.txt")

    monkeypatch.setattr(download, "fetch", fetch)
    states = run(toy_recipes(one="toy-cq", two="toy-q2b"), places, remembers())
    assert states == {"toy/one/seed-0": "not at hand", "toy/two/seed-0": "done"}
    assert "could not be fetched; put it at toy/a.txt" in Queue(places.work)["toy/one/seed-0"].reason


def test_a_wrong_option_is_refused_before_anything_is_trained(toy_recipes, registry, places, remembers):
    table = toy_recipes(one="toy-cq", two="toy-cq")
    path = recipes.FOLDER / "toy" / "two.toml"
    path.write_text(path.read_text().replace("feed_forward", "feed_foward"))
    table = recipes.load("toy")
    with pytest.raises(InvalidOption, match="feed_foward") as error:
        run(table, places, remembers())
    assert error.value.hint == "did you mean 'feed_forward'?"
    assert registry == [] and not places.work.exists()


def test_test_queries_that_do_not_exist_fail_by_name(toy_recipes, registry, places, remembers):
    table = toy_recipes(one="toy-untested")
    assert run(table, places, remembers(), split="test") == {"toy/one/seed-0-test": "failed"}
    assert results.read(places.results / "toy/one/seed-0-test.json").reason == "toy-untested has no test queries"
    assert not (places.work / "runs").exists(), "an hour of training would be lost"


def test_a_result_holds_what_decides_it(toy_recipes, registry, places, remembers):
    run(toy_recipes(one="toy-cq"), places, remembers())
    data = json.loads((places.results / "toy/one/seed-0.json").read_text())
    assert {"split", "complete", "training", "split tail"} <= set(data["figures"])
    assert data["ties"]["split"]["mrr"][0] <= data["figures"]["split"]["mrr"] <= data["ties"]["split"]["mrr"][1]
    assert set(data["fingerprints"]) == {"benchmark", "graph", "vocabulary", "queries"}
    assert {"biqe", "torch", "python"} <= set(data["versions"])
    assert data["config"]["model"]["width"] == 16 and data["config"]["train"]["seed"] == 0
    assert data["seconds"]["train"] > 0 and data["peak_mib"] > 0
    assert {"processor", "cores", "threads", "bfloat16"} <= set(data["machine"])
    loaded = results.Result.from_json(data)
    assert json.loads(json.dumps(loaded.to_json())) == data


def test_unknown_tables_and_recipes_are_named_with_the_nearest(toy_recipes):
    table = toy_recipes(one="toy-cq")
    with pytest.raises(UnknownName, match="there is no table 'tot'") as error:
        recipes.load("tot")
    assert error.value.hint == "did you mean 'toy'?"
    with pytest.raises(UnknownName, match="no recipe 'onee'") as error:
        expand(table, only="onee")
    assert error.value.hint == "did you mean 'one'?"


def with_job(job, table="toy"):
    """The toy recipe ``one``, changed to do ``job``."""
    path = recipes.FOLDER / table / "one.toml"
    path.write_text(path.read_text().replace('label = "ONE"', f'label = "ONE"\njob = "{job}"'))
    return recipes.load(table)


def test_one_at_a_time_uses_the_same_training(toy_recipes, registry, places, remembers):
    run(toy_recipes(one="toy-dags"), places, remembers())
    joint = results.read(places.results / "toy/one/seed-0.json")
    toy_recipes("turns", one="toy-dags")
    run(with_job("one-at-a-time", "turns"), places, remembers())
    one = results.read(places.results / "turns/one/seed-0.json")
    assert len(list((places.work / "runs").iterdir())) == 1
    report = one.reports["one-at-a-time-complete"]
    assert report["joint"]["metrics"]["realistic"]["mrr"] == pytest.approx(joint.figures["complete"]["mrr"])
    assert one.figures["complete"]["mrr"] == report["overall"]["metrics"]["realistic"]["mrr"]
    assert "complete branch" in one.figures


def test_attention_comes_with_its_picture(toy_recipes, registry, places, remembers):
    toy_recipes(one="toy-dags")
    assert run(with_job("attention"), places, remembers()) == {"toy/one/seed-0": "done"}
    found = results.read(places.results / "toy/one/seed-0.json")
    assert 0 < found.figures["all"]["outside"] < 1
    assert found.reports["attention"]["masks"] > 20
    assert (places.results / "toy/one/seed-0.svg").read_text().lstrip().startswith("<svg")
    assert (places.results / "toy/one/seed-0.png").read_bytes().startswith(b"\x89PNG")


def test_statistics_train_nothing(toy_recipes, registry, places, remembers):
    toy_recipes(one="toy-dags")
    path = recipes.FOLDER / "toy" / "one.toml"
    path.write_text('benchmark = "toy-dags"\njob = "statistics"\n')
    table = recipes.load("toy")
    assert [job.seed for job in expand(table, seeds=3)] == [0]
    assert run(table, places, remembers(), seeds=3) == {"toy/one/seed-0": "done"}
    assert not (places.work / "runs").exists()
    counted = figures(places, "toy/one/seed-0")
    assert counted["train"]["paths"] == 40 and counted["train"]["triples"] > 100
    assert counted["valid"]["dags"] > 0 and counted["valid"]["average_masks"] > 1
    run(table, places, remembers(), quick=True)
    said = to_text(compare(table, results.read_all(places.results / "toy"), quick=True))
    assert "nothing is trained" in said and "smoke tests" not in said


def test_an_analysis_of_single_targets_is_refused_by_name(toy_recipes, registry, places, remembers):
    toy_recipes(one="toy-q2b")
    run(with_job("attention"), places, remembers())
    assert "needs queries with several targets" in results.read(places.results / "toy/one/seed-0.json").reason


def test_the_command_prints_the_table_and_says_how_to_go_on(toy_recipes, registry, tmp_path, monkeypatch, capsys):
    from biqe.cli import main

    monkeypatch.chdir(tmp_path)
    toy_recipes(one="toy-cq", two="toy-broken")
    assert main(["reproduce", "toy", "--quick"]) == 2
    out, err = capsys.readouterr()
    assert "quick, seed 0 failed: ./broken.pkl is damaged" in out
    assert "ONE released published 0.500   0.750" in out
    assert "smoke tests" in out and "1 of 2 jobs failed; --resume tries them again" in err
    assert [line for line in out.splitlines() if len(line) > 80] == []
    assert main(["reproduce", "toy", "--quick"]) == 2
    assert "were begun before" in capsys.readouterr().err
    assert main(["reproduce", "toy", "--quick", "--only", "one", "--resume", "--json"]) == 0
    data = json.loads(capsys.readouterr().out)
    assert data["jobs"] == {"toy/one/seed-0-quick-test": "done"}
    assert main(["results", "--table", "toy"]) == 0
    assert "quick" in capsys.readouterr().out


def test_an_interrupted_command_ends_with_130_and_the_way_on(toy_recipes, registry, tmp_path, monkeypatch, capsys):
    from biqe.cli import main, reproduce

    monkeypatch.chdir(tmp_path)
    toy_recipes(one="toy-cq")

    def stop(self, job, number, total):
        raise KeyboardInterrupt

    monkeypatch.setattr(reproduce._Watcher, "began", stop)
    assert main(["reproduce", "toy", "--quick", "--only", "one"]) == 130
    assert "go on with: biqe reproduce toy --quick --only one --resume" in capsys.readouterr().err
    monkeypatch.undo()


def test_what_a_recipe_starts_from_is_trained_first(toy_recipes, registry, places, remembers):
    toy_recipes(one="toy-cq")
    folder = recipes.FOLDER / "toy"
    own = (folder / "one.toml").read_text()
    links = own.replace('model = "biqe"', 'model = "cqd"')
    for line in ("width = 16", "layers = 1", "heads = 2", "feed_forward = 32"):
        links = links.replace(line, "")
    links = links.replace("[quick.model_config]\nwidth = 8\n", "").replace("[model_config]", "[model_config]\nrank = 8")
    (folder / "_links.toml").write_text(links)
    (folder / "one.toml").write_text(
        own.replace('label = "ONE"', 'start_from = "_links"').replace('model = "biqe"', 'model = "hybrid"')
    )
    watcher = remembers()
    states = run(recipes.load("toy"), places, watcher)
    assert states == {"toy/one/seed-0": "done"}, results.read(places.results / "toy/one/seed-0.json").reason
    assert watcher.told.count(("doing", "training")) == 2
    assert ("ranked", True) in watcher.told, "a long evaluation says how far it is"
    assert {path.name.split("-")[2] for path in (places.work / "runs").iterdir()} == {"hybrid", "cqd"}
    found = results.read(places.results / "toy/one/seed-0.json")
    assert found.settings["start_from"]["model"] == "cqd" and "before" in found.seconds
    (ours,) = compare(recipes.load("toy"), [found]).rows[0].averages
    assert " of them cqd)" in ours.how, "the time of both is told"
    assert [path.stem for path in places.results.rglob("*.json")] == ["seed-0"], "what others start from has no row"


def test_a_sample_of_the_queries_shares_the_training_and_says_what_it_is(toy_recipes, registry, places, remembers):
    table = toy_recipes(one="toy-cq")
    assert run(table, places, remembers(), sample=3) == {"toy/one/seed-0-sample-3": "done"}
    few = to_text(compare(table, results.read_all(places.results)))
    assert "3 queries of each shape" in " ".join(few.split())
    watcher = remembers()
    assert run(table, places, watcher) == {"toy/one/seed-0": "done"}
    assert ("doing", "training") not in watcher.told
    few, all_ = (results.read(places.results / f"toy/one/{name}.json") for name in ("seed-0-sample-3", "seed-0"))
    ranked = [next(iter(found.reports.values()))["counts"]["queries"] for found in (few, all_)]
    assert ranked[0] < ranked[1]
    (block,) = compare(table, [few, all_]).rows
    assert len(block.averages) == 2 and block.best.settings["sample"] is None


def test_a_sample_of_nothing_is_refused(toy_recipes):
    with pytest.raises(InvalidOption, match="sample must be at least 1. Got 0"):
        expand(toy_recipes(one="toy-cq"), sample=0)


TUPLES = """
title = "Tuples, VALIDATION split"
split = "valid"
recipes = ["ours", "cqd", "exact"]
headline = { group = "all", metric = "f1" }
rows = [{ group = "3hub efo1", label = "1 variable" }, { group = "all", label = "all" }]
columns = [{ metric = "f1", label = "F1" }, { metric = "easy", label = "easy" }, { metric = "hard", label = "hard" }]
"""
TRAINED = """
benchmark = "toy-qar"
model = "{model}"

[train]
minutes = 0.04
validations = 1
threads = 1

[model_config]
rank = 16
"""


def test_a_benchmark_of_tuples_is_answered_by_what_a_user_trains_by_cqd_and_by_the_store(
    registry, places, remembers, tmp_path, monkeypatch
):
    folder = tmp_path / "recipes"
    monkeypatch.setattr(recipes, "FOLDER", folder)
    (folder / "tuples").mkdir(parents=True)
    (folder / "tuples" / "table.toml").write_text(TUPLES)
    (folder / "tuples" / "ours.toml").write_text(TRAINED.format(model="hybrid"))
    (folder / "tuples" / "cqd.toml").write_text(TRAINED.format(model="cqd"))
    (folder / "tuples" / "exact.toml").write_text('benchmark = "toy-qar"\njob = "exact"\n')
    table = recipes.load("tuples")
    last = remembers()
    states = run(table, places, last)
    assert set(states.values()) == {"done"}, [results.read(path).reason for path in places.results.rglob("*.json")]
    found = {name: figures(places, f"tuples/{name}/seed-0") for name in ("ours", "cqd", "exact")}
    exact = found["exact"]["all"]
    assert exact["easy"] == 1.0 and exact["hard"] == 0.0 and 0 < exact["f1"] < 1
    assert found["ours"]["all"]["easy"] == 1.0, "what is stored is not lost to a guess"
    assert found["ours"]["all"]["f1"] >= exact["f1"]
    assert found["cqd"]["all"]["f1"] < 1.0 and set(found["cqd"]) == {"3hub efo1", "all"}
    (job, *_) = expand(table)
    record = json.loads((places.work / "runs" / job.run_name / "run.json").read_text())
    assert record["set"] is None and (places.work / "runs" / job.run_name / "links").is_dir()
    spent = results.read(places.results / "tuples/ours/seed-0.json").seconds
    assert spent["before"] + spent["train"] == pytest.approx(2.4, rel=0.5), "the minutes of links count, too"
    shown = to_text(compare(table, results.read_all(places.results)))
    assert "valid split, 1 seed" in shown and "1 variable" in shown
    assert set(run(table, places, remembers(), resume=True).values()) == {"done"}
