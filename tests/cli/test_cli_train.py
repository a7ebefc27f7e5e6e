"""``biqe train``: what it says beside the run itself."""

from __future__ import annotations

import re

import pytest

from biqe.cli import main
from biqe.cli.train import duration

TINY = (
    "atlas --epochs 0.02 --width 16 --layers 1 --threads 1 -O heads=2 -O feed_forward=16 -O paths=50 -O dags=50 "
    "-O validations=1 -O validation_queries=20"
).split()


@pytest.mark.parametrize(
    ("seconds", "said"), [(0.0, "0.0 s"), (31.7, "31.7 s"), (59.94, "59.9 s"), (59.96, "1.0 min"), (600, "10.0 min")]
)
def test_a_minute_is_counted_in_seconds_until_it_is_over(seconds, said):
    assert duration(seconds) == said


@pytest.mark.slow
def test_a_short_run_says_how_many_seconds_it_took_and_what_had_no_effect(tmp_path, capsys):
    assert main(["train", *TINY, "--shard-entities", "--out", str(tmp_path / "run")]) == 0
    told = capsys.readouterr()
    assert re.search(r"finished\s+after\s+\d+\s+steps\s+in\s+[\d.]+ s;", told.out), told.out
    assert "--shard-entities has no effect on one process" in told.err and "torchrun" in told.err


@pytest.mark.slow
def test_a_run_on_one_process_without_shards_warns_of_nothing(tmp_path, capsys):
    assert main(["train", *TINY, "--out", str(tmp_path / "run")]) == 0
    assert "warning" not in capsys.readouterr().err


@pytest.mark.slow
@pytest.mark.parametrize("length", ["minutes=0.0001", "epochs=0.01"])
def test_the_length_may_be_given_as_any_other_setting(tmp_path, length):
    words = [word for word in TINY if word not in ("--epochs", "0.02")]
    assert main(["train", *words, "-O", length, "--out", str(tmp_path / "run")]) == 0


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--seed", "1", "-O", "seed=2"], "'seed' is given twice, as --seed and with -O"),
        (["--epochs", "1", "-O", "epochs=2"], "'epochs' is given twice"),
        (["--width", "16", "-O", "width=8"], "'width' is given twice"),
        (["--softmax", "full", "-O", "softmax=sampled"], "'softmax' is given twice"),
        (["--shard-entities", "-O", "shard-entities=no"], "'shard_entities' is given twice, as --shard-entities"),
        (["--fixed", "-O", "online=yes"], "'online' is given twice, as --online"),
        (["--minutes", "1", "-O", "epochs=2"], "either 'minutes' or 'epochs'"),
        (["--epochs", "inf"], "'epochs' must be a finite number"),
        (["--seed", "99999999999999999999"], "'seed' must be at most"),
        (["--data", "somewhere"], "--data is for benchmarks only"),
    ],
)
def test_words_that_contradict_each_other_are_refused(tmp_path, capsys, words, said):
    assert main(["train", "atlas", *words, "--out", str(tmp_path / "run")]) == 2
    err = " ".join(capsys.readouterr().err.split())
    assert said in err and "hint:" in err
    assert not (tmp_path / "run").exists()


def test_a_data_folder_beside_a_mined_set_is_refused_as_evaluate_refuses_it(tmp_path, capsys):
    (tmp_path / "set").mkdir()
    words = ["--set", str(tmp_path / "set"), "--data", str(tmp_path)]
    assert main(["train", "atlas", *words, "--out", str(tmp_path / "run")]) == 2
    assert "--data is for benchmarks only" in " ".join(capsys.readouterr().err.split())


def test_a_name_means_the_benchmark_here_as_in_evaluate(tmp_path, monkeypatch, capsys):
    """A folder of that name is ./NAME."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("BIQE_DATA", str(tmp_path / "nothing"))
    (tmp_path / "fb15k237-q2b").mkdir()
    assert main(["train", "atlas", "--set", "fb15k237-q2b", "--out", "run"]) == 2
    assert "are not at hand" in " ".join(capsys.readouterr().err.split())
    assert main(["train", "atlas", "--set", "./fb15k237-q2b", "--out", "run"]) == 2
    assert "is not a mined set" in " ".join(capsys.readouterr().err.split())
