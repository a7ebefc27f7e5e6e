"""``biqe train``: what it says beside the run itself."""

from __future__ import annotations

import re

import pytest

from biqe.cli import main
from biqe.cli.train import lasted

TINY = (
    "atlas --epochs 0.02 --width 16 --layers 1 --threads 1 -O heads=2 -O feed_forward=16 -O paths=50 -O dags=50 "
    "-O validations=1 -O validation_queries=20"
).split()


@pytest.mark.parametrize(
    ("seconds", "said"), [(0.0, "0.0 s"), (31.7, "31.7 s"), (59.94, "59.9 s"), (59.96, "1.0 min"), (600, "10.0 min")]
)
def test_a_minute_is_counted_in_seconds_until_it_is_over(seconds, said):
    assert lasted(seconds) == said


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
