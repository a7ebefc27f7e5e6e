"""Runs that train their own link predictor first: two parts that are one run, wherever it is stopped."""

from __future__ import annotations

import dataclasses
import shutil
import signal
import subprocess
import sys
import time

import pytest
import torch
from safetensors.torch import load_file

from biqe.errors import InvalidOption
from biqe.models import store
from biqe.train import checkpoint, links_first, session
from biqe.train.ranks import ALONE
from biqe.train.run import Run

SMALL = ["--width", "16", "--layers", "1", "--threads", "1"]
SMALL += [w for o in ("heads=2", "feed_forward=32", "paths=100", "dags=100", "validations=2") for w in ("-O", o)]


def start(graph, out, quiet, settings_of, tiny, *, model="biqe", **more):
    config = settings_of(**{"minutes": 0.08, "links_minutes": 0.03, **more})
    notes: list[str] = []
    options = tiny if model == "biqe" else {}
    result = session.start(
        str(graph), out, train_config=config, model=model, model_options=options, listener=quiet, note=notes.append
    )
    return result, notes


def test_the_model_begins_with_what_the_first_part_learnt(graph_folder, tmp_path, quiet, settings_of, tiny):
    run = tmp_path / "run"
    result, notes = start(graph_folder, run, quiet, settings_of, tiny)
    assert result.reason == "finished"
    assert any("first train a link predictor" in note for note in notes)
    links, own = store.load(run / "links" / "model").model, store.load(run / "model").model
    assert links.name == "cqd" and own.name == "biqe"
    assert torch.equal(links.predictor.entities, own.predictor.entities), "it is kept inside, as it was learnt"
    assert own.config.predictor_dropout == 1.0 and own.config.search == 0.5
    fractions = [fraction for fraction, _ in quiet.steps]
    assert fractions == sorted(fractions) and 0.0 <= fractions[0] and fractions[-1] <= 1.0
    assert [facts.get("of") for facts in quiet.validations].count("link predictor") == 1
    assert quiet.validations[0]["of"] == "link predictor"
    used = [Run.open(place).trace()[-1]["seconds"] for place in (run / "links", run)]
    assert used[0] >= 60 * 0.03 and used[1] >= 60 * 0.05, "each part has its own minutes"
    assert "0.03 of them for links" in store.read_manifest(run / "model")["trained"]["budget"]


def biqe(*words):
    return subprocess.Popen(
        [sys.executable, "-m", "biqe", *map(str, words)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )


def wait_for(condition, process):
    end = time.monotonic() + 120
    while not condition():
        assert process.poll() is None, process.communicate()[1]
        assert time.monotonic() < end, "waited too long"
        time.sleep(0.02)


@pytest.mark.slow
@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGINT])
def test_stopped_in_either_part_it_goes_on(graph_folder, tmp_path, how):
    run = tmp_path / "run"
    words = ["--minutes", "0.3", "--links-minutes", "0.15", "-O", "checkpoint_minutes=0.001", *SMALL]
    process = biqe("train", graph_folder, "--out", run, *words)
    for folder in (run / "links", run):

        def begun(folder=folder):
            return (folder / "checkpoints").is_dir() and any((folder / "checkpoints").glob("step-*"))

        wait_for(begun, process)
        process.send_signal(how)
        out, _ = process.communicate(timeout=60)
        if how == signal.SIGINT:
            assert process.returncode == 130 and f"biqe train --resume {run}" in out
        process = biqe("train", "--resume", run)
    out, err = process.communicate(timeout=120)
    assert process.returncode == 0, err
    for folder in (run / "links", run):
        events = [event["event"] for event in Run.open(folder).trace()]
        assert "resumed" in events, folder
        assert checkpoint.read_place(checkpoint.latest(folder / "checkpoints")).finished
    kept = load_file(run / "links" / "model" / "weights.safetensors")
    inside = load_file(run / "model" / "weights.safetensors")
    assert torch.equal(kept["predictor.entities"], inside["predictor.entities"])


def test_a_kill_before_the_predictor_had_a_run_begins_it_anew(graph_folder, tmp_path, quiet, settings_of, tiny):
    run = tmp_path / "run"
    start(graph_folder, run, quiet, settings_of, tiny)
    for name in ("checkpoints", "model", "links"):
        shutil.rmtree(run / name)
    (run / "links").mkdir()
    (run / "links" / "half").write_text("a file that nobody finished")
    assert session.resume(run, listener=quiet).reason == "finished"
    assert (run / "links" / "model").is_dir() and not (run / "links" / "half").exists()


@pytest.mark.parametrize(
    ("model", "more", "says"),
    [
        ("gqe", {}, "gqe cannot begin with a link predictor"),
        ("biqe", {"links_minutes": 0.08}, "less than the minutes"),
        ("biqe", {"minutes": None, "epochs": 1}, "Got 0.03 of 1 epochs"),
        ("biqe", {"links_minutes": -1.0}, "must not be negative"),
        ("biqe", {"links_minutes": float("nan")}, "finite"),
    ],
)
def test_what_cannot_be_is_refused_and_leaves_nothing(
    graph_folder, tmp_path, quiet, settings_of, tiny, model, more, says
):
    with pytest.raises(InvalidOption, match=says):
        start(graph_folder, tmp_path / "run", quiet, settings_of, tiny, model=model, **more)
    assert not (tmp_path / "run").exists()


def test_one_beginning_is_enough_and_ranks_have_none():
    with pytest.raises(InvalidOption, match="one model's weights"):
        links_first.options("biqe", {}, (10, 2), True, ALONE)
    with pytest.raises(InvalidOption, match="one process"):
        links_first.options("biqe", {}, (10, 2), False, dataclasses.replace(ALONE, world=2))


def test_by_default_long_runs_on_graphs_of_one_machine_begin_with_links(graph_folder, monkeypatch):
    given = session.default_links_minutes
    assert given("biqe", str(graph_folder), {"minutes": 60.0}) == 10.0
    assert given("biqe", str(graph_folder), {"minutes": 600.0}) == 20.0
    assert given("biqe", str(graph_folder), {"minutes": 10.0}) == 0.0
    assert given("biqe", str(graph_folder), {"minutes": None, "epochs": 5.0}) == 0.0
    assert given("gqe", str(graph_folder), {"minutes": 60.0}) == 0.0
    monkeypatch.setattr(session, "SAMPLED_FROM", 10)
    assert given("biqe", str(graph_folder), {"minutes": 60.0}) == 0.0
    monkeypatch.undo()
    monkeypatch.setenv("WORLD_SIZE", "2")
    assert given("biqe", str(graph_folder), {"minutes": 60.0}) == 0.0


@pytest.mark.parametrize(
    ("given", "search"),
    [({}, 0.5), ({"search": 0.0}, 0.0), ({"predictor_rank": 0}, None), ({"predictor_rank": 0, "search": 0.1}, 0.1)],
)
def test_it_searches_unless_told_otherwise_or_without_anything_to_search(given, search):
    found = links_first.options("biqe", given, (10, 2), False, ALONE)
    assert found.get("search") == search and found.items() >= given.items()
