"""Runs: learning, resuming to the bit after real kills, and refusals that lose nothing."""

from __future__ import annotations

import json
import os
import resource
import shutil
import signal
import subprocess
import sys
import time
import xml.etree.ElementTree as ET

import numpy as np
import pytest
from safetensors.numpy import load_file

from biqe.cli import main, train
from biqe.errors import BiqeError, EmptyResult, InvalidOption, RunFailed, VocabularyMismatch
from biqe.evaluate.pictures import BLUE
from biqe.graph import folder as graphs
from biqe.graph.knowledge_graph import Splits
from biqe.graph.triples import as_triples, difference
from biqe.graph.vocabulary import Vocabulary
from biqe.training import checkpoint, loop, session
from biqe.training.run import Run

OPTIONS = (
    "learning_rate=0.01 paths=200 dags=200 batch_tokens=300 warmup_steps=10 validations=4 heads=2 feed_forward=32"
).split()
ARGUMENTS = [
    "--epochs",
    "3",
    "--width",
    "16",
    "--layers",
    "1",
    "--threads",
    "1",
    *(w for o in OPTIONS for w in ("-O", o)),
]


def biqe(*words, **more):
    return subprocess.Popen(
        [sys.executable, "-m", "biqe", *map(str, words)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        **more,
    )


def finish(process, code=0):
    out, err = process.communicate(timeout=240)
    assert process.returncode == code, err
    return out, err


def final_state(run):
    return load_file(checkpoint.latest(run / "checkpoints"))


def wait_for(condition, process, seconds=120):
    end = time.monotonic() + seconds
    while not condition():
        assert process.poll() is None, process.communicate()[1]
        assert time.monotonic() < end, "waited too long"
        time.sleep(0.02)


def steps_in(run):
    trace = run / "trace.jsonl"
    return trace.read_text().count('"checkpoint"') if trace.exists() else 0


@pytest.fixture(scope="module")
def uninterrupted(graph_folder, tmp_path_factory):
    """A run of three epochs that was never stopped."""
    run = tmp_path_factory.mktemp("runs") / "whole"
    finish(biqe("train", graph_folder, "--out", run, *ARGUMENTS))
    return run


def test_a_run_learns_and_writes_what_it_promises(uninterrupted):
    events = Run.open(uninterrupted).trace()
    losses = [event["loss"] for event in events if event["event"] == "steps"]
    validations = [event["mrr"] for event in events if event["event"] == "validation"]
    assert len(validations) == 4
    assert losses[-1] < losses[0] - 0.1
    record = json.loads((uninterrupted / "run.json").read_text())
    assert record["train"]["epochs"] == 3 and record["versions"]["torch"] and record["graph"]["fingerprint"]
    assert (
        events[-1]["event"] == "ended" and events[-1]["reason"] == "finished" and events[-1]["peak_resident_mib"] > 50
    )
    picture = ET.fromstring((uninterrupted / "run.svg").read_text())
    # The axes' ticks and the dots of the curve are copies of a mark; the dots alone are blue.
    marks = picture.findall(".//{http://www.w3.org/2000/svg}use")
    assert sum(f"fill: {BLUE}" in mark.get("style") for mark in marks) == 4


@pytest.mark.slow
@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGINT, signal.SIGTERM])
def test_killed_and_resumed_is_the_same_to_the_bit(uninterrupted, graph_folder, tmp_path, how):
    """Killed several times, wherever it happens to be; the last weights are those of the run never stopped."""
    run = tmp_path / "run"
    process = biqe("train", graph_folder, "--out", run, *ARGUMENTS)
    for kill in range(3):
        wait_for(lambda kill=kill: steps_in(run) > kill, process)
        process.send_signal(how)
        process.communicate(timeout=60)
        stopped = not checkpoint.read_place(checkpoint.latest(run / "checkpoints")).finished
        if how != signal.SIGKILL and kill == 0:  # a later one may come before the loop has begun again
            assert process.returncode == (128 + how if stopped else 0), "as shells count"
        if how == signal.SIGKILL:
            assert process.returncode == -signal.SIGKILL
            # As if it had died while a checkpoint was being written.
            (run / "checkpoints" / ".step-000000999.safetensors.partial").write_bytes(b"half of it")
        if not stopped:
            break  # it was quicker than the signal
        process = biqe("train", "--resume", run)
    else:
        finish(process)
    assert kill > 0, "it was stopped at least once before its end"
    expected, found = final_state(uninterrupted), final_state(run)
    assert expected.keys() == found.keys()
    for name in expected:
        assert np.array_equal(expected[name], found[name]), name
    best = load_file(run / "model" / "weights.safetensors")
    for name, tensor in load_file(uninterrupted / "model" / "weights.safetensors").items():
        assert np.array_equal(best[name], tensor), name
    assert not list((run / "checkpoints").glob(".*"))


@pytest.mark.slow
def test_killed_at_random_moments_never_leaves_a_broken_checkpoint(graph_folder, tmp_path):
    """kill -9 in quick succession while checkpoints are written all the time."""
    run = tmp_path / "run"
    words = [
        "--epochs",
        "50",
        "--width",
        "64",
        "--layers",
        "1",
        "--threads",
        "1",
        "-O",
        "paths=50",
        "-O",
        "dags=50",
        "-O",
        "heads=2",
        "-O",
        "checkpoint_minutes=0.0001",
        "-O",
        "batch_tokens=100",
    ]
    process = biqe("train", graph_folder, "--out", run, *words)
    wait_for(lambda: steps_in(run) > 2, process)
    for delay in (0.0, 0.013, 0.171):
        time.sleep(delay)
        process.kill()
        process.communicate()
        newest = checkpoint.latest(run / "checkpoints")
        place = checkpoint.read_place(newest)
        assert place.step == int(newest.stem.split("-")[1])
        assert set(load_file(newest)) >= {"random", "model.embed_entities.weight", "average.embed_others.weight"}
        before = steps_in(run)
        process = biqe("train", "--resume", run)
        wait_for(lambda before=before: steps_in(run) > before + 1, process)
    process.kill()
    process.communicate()
    assert any(event["event"] == "resumed" and event["step"] > 0 for event in Run.open(run).trace())


@pytest.mark.slow
def test_a_run_measured_in_minutes_resumes_with_the_time_it_used(graph_folder, tmp_path, quiet, settings_of, tiny):
    run = tmp_path / "run"
    words = [*ARGUMENTS[2:], "--minutes", "0.2", "--links-minutes", "0", "-O", "checkpoint_minutes=0.01"]
    process = biqe("train", graph_folder, "--out", run, *words)
    wait_for(lambda: steps_in(run) > 0, process)
    process.kill()
    process.communicate()
    used = checkpoint.read_place(checkpoint.latest(run / "checkpoints")).seconds
    started = time.monotonic()
    result = session.resume(run, listener=quiet)
    took = time.monotonic() - started
    assert result.reason == "finished"
    assert max(used, 0.2 * 60) <= result.place.seconds <= used + took, "time already used counts"


def test_a_validation_that_was_due_when_the_run_was_stopped_is_not_late(
    graph_folder, tmp_path, quiet, settings_of, tiny, monkeypatch
):
    """Stopped after the last step before a validation; resumed, the run validates there and not a step later."""

    def validations(run):
        return [(e["step"], e["mrr"]) for e in Run.open(run).trace() if e["event"] == "validation"]

    config = settings_of(epochs=2)
    session.start(str(graph_folder), tmp_path / "whole", train_config=config, model_options=tiny, listener=quiet)
    expected, take_step = validations(tmp_path / "whole"), loop.take_step

    def stopped(processes, batch, optimizer, average, config, step, fraction):
        if step == expected[0][0] - 1:
            signal.raise_signal(signal.SIGINT)
        return take_step(processes, batch, optimizer, average, config, step, fraction)

    monkeypatch.setattr(loop, "take_step", stopped)
    run = tmp_path / "run"
    result = session.start(str(graph_folder), run, train_config=config, model_options=tiny, listener=quiet)
    assert result.reason == "interrupted" and result.place.step == expected[0][0] and not validations(run)
    monkeypatch.setattr(loop, "take_step", take_step)
    session.resume(run, listener=quiet)
    assert validations(run) == expected


def test_a_changed_query_set_is_refused(graph_folder, tmp_path, quiet, settings_of, tiny):
    """As a changed graph is: a run goes on with what it began with."""

    def mined(seed):
        main(
            [
                "mine",
                str(graph_folder),
                "--recipe",
                "cq",
                "--seed",
                str(seed),
                "--paths",
                "50",
                "--dags",
                "50",
                "--out",
                str(tmp_path / f"set{seed}"),
            ]
        )
        return tmp_path / f"set{seed}"

    queries, run = mined(0), tmp_path / "run"
    session.start(
        str(graph_folder),
        run,
        train_config=settings_of(epochs=1),
        model_options=tiny,
        listener=quiet,
        query_set=str(queries),
    )
    shutil.rmtree(queries)
    mined(1).rename(queries)
    with pytest.raises(VocabularyMismatch, match="query set .* is not the one"):
        session.resume(run, listener=quiet)


def test_a_finished_run_has_nothing_to_resume(uninterrupted, quiet):
    with pytest.raises(RunFailed, match="has finished"):
        session.resume(uninterrupted, listener=quiet)


def test_a_changed_graph_is_refused_and_nothing_is_touched(uninterrupted, graph_folder, tmp_path, quiet):
    run = tmp_path / "run"
    shutil.copytree(uninterrupted, run)
    splits = graphs.load(graph_folder)
    graphs.save(Splits(splits.vocabulary, difference(splits.train, splits.train[:1]), splits.valid), tmp_path / "other")
    record = json.loads((run / "run.json").read_text())
    record["graph"]["path"] = str(tmp_path / "other")
    (run / "run.json").write_text(json.dumps(record))
    before = {path: path.read_bytes() for path in run.rglob("*") if path.is_file() and path.name != ".lock"}
    with pytest.raises(VocabularyMismatch, match="is not the one"):
        session.resume(run, listener=quiet)
    record["graph"]["path"] = str(tmp_path / "gone")
    (run / "run.json").write_text(json.dumps(record))
    before[run / "run.json"] = (run / "run.json").read_bytes()
    with pytest.raises(BiqeError):
        session.resume(run, listener=quiet)
    assert before == {path: path.read_bytes() for path in run.rglob("*") if path.is_file() and path.name != ".lock"}


def test_a_used_folder_is_refused(uninterrupted, graph_folder, tmp_path, quiet, settings_of, tiny):
    with pytest.raises(RunFailed, match="nothing was overwritten") as refused:
        session.start(
            str(graph_folder), uninterrupted, train_config=settings_of(epochs=1), model_options=tiny, listener=quiet
        )
    assert "--resume" in refused.value.hint
    (tmp_path / "note.txt").write_text("mine")
    with pytest.raises(RunFailed, match="not empty"):
        session.start(
            str(graph_folder), tmp_path, train_config=settings_of(epochs=1), model_options=tiny, listener=quiet
        )
    assert (tmp_path / "note.txt").read_text() == "mine"


@pytest.mark.slow
def test_a_full_disk_is_an_error_and_the_last_checkpoint_stays(graph_folder, tmp_path):
    """The system refuses to let files grow, as on a full disk; the run ends with an error and can be resumed."""
    run = tmp_path / "run"
    process = biqe("train", graph_folder, "--out", run, *ARGUMENTS)
    wait_for(lambda: steps_in(run) > 0, process)
    process.kill()
    process.communicate()
    newest = checkpoint.latest(run / "checkpoints")
    whole = newest.read_bytes()

    def no_space():
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (60_000, 60_000))

    _, err = finish(biqe("train", "--resume", run, preexec_fn=no_space), 2)
    assert "cannot write" in err and "hint:" in err and "Traceback" not in err
    assert newest.read_bytes() == whole
    assert checkpoint.latest(run / "checkpoints") == newest
    finish(biqe("train", "--resume", run))


def test_a_wrong_option_leaves_nothing_behind(graph_folder, tmp_path, quiet, settings_of):
    with pytest.raises(InvalidOption, match="did you mean|has no option"):
        session.start(
            str(graph_folder),
            tmp_path / "run",
            train_config=settings_of(epochs=1),
            model_options={"widht": 8},
            listener=quiet,
        )
    assert not (tmp_path / "run").exists()


@pytest.fixture
def small_graph(graph_folder, tmp_path):
    """39 triples of the town, and no validation split: too few to hold any out."""
    splits = graphs.load(graph_folder)
    graphs.save(Splits(splits.vocabulary, splits.train[:39]), tmp_path / "g")
    return tmp_path / "g"


def test_a_graph_too_small_to_validate_keeps_the_last_weights_and_says_so(
    small_graph, tmp_path, quiet, settings_of, tiny
):
    notes = []
    config = settings_of(epochs=2, patience=1, average=0.0)
    out = tmp_path / "run"
    result = session.start(
        str(small_graph), out, train_config=config, model_options=tiny, listener=quiet, note=notes.append
    )
    assert (result.reason, result.validated, result.metrics, quiet.validations) == ("finished", False, {}, [])
    assert "a graph of 39 training triples is too small to learn much from" in notes[0]
    assert len(notes) == 2 and "none of its 39 training triples can be held out" in notes[1]
    assert Run.open(out).record["held_out"] is None and not (out / "held_out.npy").exists()
    events = Run.open(out).trace()
    assert sum(event["event"] == "kept" for event in events) == 4, "as often as it would have been validated"
    last, kept = final_state(out), load_file(out / "model" / "weights.safetensors")
    for name, tensor in kept.items():
        assert np.array_equal(last[f"model.{name}"], tensor), name
    assert "nothing yet" in (out / "run.svg").read_text()


def test_a_graph_of_one_entity_is_refused_before_anything_is_written(tmp_path, capsys):
    graphs.save(Splits(Vocabulary(["a"], ["knows"], {}), as_triples([(0, 0, 0)])), tmp_path / "g")
    assert main(["train", str(tmp_path / "g"), "--minutes", "0.05", "--out", str(tmp_path / "run")]) == 2
    assert "a graph of one entity has nothing to predict" in capsys.readouterr().err
    assert not (tmp_path / "run").exists()


def test_the_command_trains_without_validation(small_graph, tmp_path, capsys):
    words = ["train", small_graph, "--out", tmp_path / "run", *ARGUMENTS, "--json"]
    assert main([str(word) for word in words]) == 0
    out, err = capsys.readouterr()
    assert json.loads(out)["best"] is None
    assert "note: the graph has no validation triples" in err
    assert main(["ask", str(tmp_path / "run"), "SELECT ?t WHERE { :town0 :next ?t }"]) == 0


def test_a_refused_run_can_be_asked_for_again(graph_folder, tmp_path, quiet, settings_of, tiny, monkeypatch):
    """Whatever refuses it, before the folder is made or after, nothing is left in the way of the next try."""
    out = tmp_path / "run"

    def refuse(*any_, **more):
        raise EmptyResult("nothing to validate with")

    def start():
        return session.start(
            str(graph_folder), out, train_config=settings_of(epochs=0.2), model_options=tiny, listener=quiet
        )

    for place in ("validation", "Stream"):
        with monkeypatch.context() as patch:
            patch.setattr(session, place, refuse)
            with pytest.raises(EmptyResult, match="nothing to validate"):
                start()
        assert not out.exists()
    assert start().reason == "finished"


def test_a_run_that_fails_on_the_way_is_not_thrown_away(graph_folder, tmp_path, quiet, settings_of, tiny):
    out = tmp_path / "run"
    quiet.validated = lambda facts: (_ for _ in ()).throw(EmptyResult("on the way"))
    with pytest.raises(EmptyResult, match="on the way"):
        session.start(str(graph_folder), out, train_config=settings_of(epochs=1), model_options=tiny, listener=quiet)
    assert (out / "run.json").exists() and (out / "model").exists()


@pytest.mark.parametrize(
    ("words", "named"),
    [
        (["--minutes", "99", "--seed", "5"], "--minutes, --seed"),
        (["--seed", "0"], "--seed"),  # even where it is the default
        (["--fixed", "-O", "dropout=0.2", "--json"], "--online/--fixed, --option"),
        (["--out", "x"], "--out"),
        (["g"], "GRAPH"),
    ],
)
def test_resume_names_the_options_that_it_does_not_take(uninterrupted, words, named, capsys):
    assert main(["train", "--resume", str(uninterrupted), *words]) == 2
    out, err = capsys.readouterr()
    said = " ".join(err.split())
    assert out == "" and f"Got {named}" in said and "hint:" in said and "has finished" not in said


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.parametrize("words", [[], ["--json"]])
def test_a_stopped_run_says_so_by_its_exit_code(graph_folder, tmp_path, monkeypatch, capsys, number, words):
    monkeypatch.setattr(train._Display, "validated", lambda self, facts: signal.raise_signal(number))
    out = tmp_path / "run"
    assert main([str(word) for word in ["train", graph_folder, "--out", out, *ARGUMENTS, *words]]) == 128 + number
    said, _ = capsys.readouterr()
    if words:
        assert json.loads(said)["reason"] == "interrupted"
    else:
        assert "interrupted after" in " ".join(said.split()) and "--resume" in said
    assert not checkpoint.read_place(checkpoint.latest(out / "checkpoints")).finished


def test_early_stop(graph_folder, tmp_path, quiet, settings_of, tiny):
    config = settings_of(epochs=40, validations=40, patience=1, learning_rate=1e-9)
    result = session.start(str(graph_folder), tmp_path / "run", train_config=config, model_options=tiny, listener=quiet)
    assert result.reason == "stopped early"
    assert len(quiet.validations) < 40


def test_the_command_refuses_bad_words(tmp_path):
    for words in (
        ["train"],
        ["train", "nowhere", "--out", tmp_path / "r"],
        ["train", "--resume", tmp_path / "none"],
        ["train", "g", "--out", tmp_path / "r", "-O", "dropuot=1"],
        ["train", "g", "--resume", "x"],
        ["train", "g", "--out", tmp_path / "r", "-O", "dropout=often"],
        ["config"],
        ["config", tmp_path],
    ):
        _, err = finish(biqe(*words), 2)
        assert "error" in err.lower() and "Traceback" not in err, words
    assert os.listdir(tmp_path) == []
