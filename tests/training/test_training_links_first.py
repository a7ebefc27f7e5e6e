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
from biqe.graph.knowledge_graph import Splits
from biqe.graph.triples import as_triples
from biqe.graph.vocabulary import Vocabulary
from biqe.models import store
from biqe.training import checkpoint, links_first, session, weigh_links
from biqe.training.ranks import ALONE
from biqe.training.run import Run

SMALL = ["--width", "16", "--layers", "1", "--threads", "1"]
SMALL += [w for o in ("heads=2", "feed_forward=32", "paths=100", "dags=100", "validations=2") for w in ("-O", o)]


def start(graph, out, quiet, settings_of, tiny, *, model="hybrid", **more):
    config = settings_of(**{"minutes": 0.08, "links_minutes": 0.03, **more})
    notes: list[str] = []
    options = tiny if model in ("biqe", "hybrid") else {}
    result = session.start(
        str(graph), out, train_config=config, model=model, model_options=options, listener=quiet, note=notes.append
    )
    return result, notes


def test_the_model_begins_with_what_the_first_part_learnt(graph_folder, tmp_path, quiet, settings_of, tiny):
    run = tmp_path / "run"
    result, notes = start(graph_folder, run, quiet, settings_of, tiny)
    assert result.reason == "finished"
    assert any("train the link predictor, the rest the encoder" in note for note in notes)
    links, own = store.load(run / "links" / "model").model, store.load(run / "model").model
    assert links.name == "cqd" and own.name == "hybrid"
    assert torch.equal(links.links.entities, own.links.entities), "it is kept inside, as it was learnt"
    assert own.config.rank == links.config.rank
    assert own.knowledge is not None and result.weighed.figures
    for shape, ways in result.weighed.figures.items():
        # The encoder has to be better than links by more than such a figure errs, else links stay.
        least = max(ways.values()) - weigh_links.MARGIN / result.weighed.counts[shape] ** 0.5
        assert ways[result.weighed.chosen[shape]] >= least, "no run is worse than its best part"
        assert own.config.by_shape[shape] == weigh_links.WAYS[result.weighed.chosen[shape]]
    assert result.weighed.sentence().startswith(("Hidden facts: found first in", "Links have scores"))
    fractions = [fraction for fraction, _ in quiet.steps]
    assert fractions == sorted(fractions) and 0.0 <= fractions[0] and fractions[-1] <= 1.0
    assert quiet.validations[0]["of"] == "link predictor"
    ended = [[e for e in Run.open(place).trace() if e["event"] == "ended"][-1] for place in (run / "links", run)]
    used = [event["seconds"] for event in ended]
    assert used[1] >= 60 * 0.05, "each part has its own minutes"
    again = weigh_links.weigh_run(run)
    assert again == result.weighed, "a finished run can be weighed anew, with the same outcome"
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
    for place in (run / "links", run):

        def begun(place=place):
            return (place / "checkpoints").is_dir() and any((place / "checkpoints").glob("step-*"))

        wait_for(begun, process)
        process.send_signal(how)
        out, _ = process.communicate(timeout=60)
        if how == signal.SIGINT:
            assert process.returncode == 130 and f"biqe train --resume {run}" in out
        process = biqe("train", "--resume", run)
    out, err = process.communicate(timeout=120)
    assert process.returncode == 0, err
    for place in (run / "links", run):
        events = [event["event"] for event in Run.open(place).trace()]
        assert "resumed" in events, place
        assert checkpoint.read_place(checkpoint.latest(place / "checkpoints")).finished
    kept = load_file(run / "links" / "model" / "weights.safetensors")
    inside = load_file(run / "model" / "weights.safetensors")
    assert torch.equal(kept["links.entities"], inside["links.entities"])


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
        ("biqe", {}, "biqe cannot begin with a link predictor"),
        ("hybrid", {"links_minutes": 0.08}, "less than the minutes"),
        ("hybrid", {"minutes": None, "epochs": 1}, "Got 0.03 of 1 epochs"),
        ("hybrid", {"links_minutes": -1.0}, "must not be negative"),
        ("hybrid", {"links_minutes": float("nan")}, "finite"),
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
        links_first.options("hybrid", {}, 10, 1.0, True, ALONE)
    with pytest.raises(InvalidOption, match="one process"):
        links_first.options("hybrid", {}, 10, 1.0, False, dataclasses.replace(ALONE, world=2))


def test_by_default_a_run_trains_a_hybrid_and_its_links_first(graph_folder):
    chosen = lambda minutes, model=None, links=None: session.choose(  # noqa: E731
        model, str(graph_folder), {"minutes": minutes}, links
    )
    assert chosen(60.0) == ("hybrid", 24.0) and chosen(600.0) == ("hybrid", 60.0)
    assert chosen(3.0) == ("hybrid", 1.8) and chosen(0.1) == ("hybrid", 0.06), "more of a short run"
    assert chosen(60.0, "gqe") == ("gqe", 0.0) and chosen(60.0, "biqe") == ("biqe", 0.0)
    assert chosen(60.0, "hybrid", 3.0) == chosen(60.0, None, 3.0) == ("hybrid", 3.0)
    assert chosen(60.0, None, 0.0) == ("biqe", 0.0), "without minutes for links it is the encoder alone"


@pytest.mark.parametrize("why", ["epochs", "ranks", "entities"])
def test_where_no_links_can_be_trained_the_default_is_the_encoder(graph_folder, monkeypatch, why):
    length = {"minutes": None, "epochs": 5.0} if why == "epochs" else {"minutes": 60.0}
    if why == "ranks":
        monkeypatch.setenv("WORLD_SIZE", "2")
    if why == "entities":
        monkeypatch.setattr(session, "SAMPLED_FROM", 10)
    assert session.choose(None, str(graph_folder), length) == ("biqe", 0.0)
    with pytest.raises(InvalidOption, match="hybrid begins with a link predictor") as error:
        session.choose("hybrid", str(graph_folder), length)
    assert "--model biqe" in error.value.hint


@pytest.mark.parametrize("given", [{}, {"search": 0.0}, {"width": 32}, {"rank": 7}])
@pytest.mark.parametrize(("entities", "minutes", "rank"), [(10, 24, 64), (4_000, 1, 128), (15_000, 4, 200)])
def test_options_of_the_predictor_and_of_the_user_stand_together(given, entities, minutes, rank):
    found = links_first.options("hybrid", given, entities, minutes, False, ALONE)
    assert found.items() >= {"rank": rank, **given}.items()


def test_the_softmax_follows_from_the_time_that_an_epoch_takes(monkeypatch):
    assert links_first.softmax_for(ring(4_000), 64, 0.01, 1) == "full", "a sample would be no smaller"
    large = ring(20_000)
    assert links_first.softmax_for(large, 200, 1.0, 1) == "sampled"
    assert links_first.softmax_for(large, 200, 60.0, 2) == "full"
    for fast, times in ((False, 1.0), (True, links_first.SPEED_IN_BFLOAT16 / links_first.SPEED)):
        monkeypatch.setattr(links_first, "processor_multiplies_bfloat16", lambda fast=fast: fast)
        single, auto = (links_first.epochs_of(large, 256, 10.0, 2, precision) for precision in ("single", "auto"))
        assert auto == pytest.approx(times * single)


def ring(entities: int) -> Splits:
    """A graph in which each entity leads to the next one."""
    triples = [(i, 0, (i + 1) % entities) for i in range(entities)]
    return Splits(Vocabulary([f"e{i}" for i in range(entities)], ["next"], {}), as_triples(triples))
