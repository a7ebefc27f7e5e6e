"""The run folder: its record, its lock and its trace."""

from __future__ import annotations

import pytest

from biqe.errors import RunFailed, UnreadableFile
from biqe.training.config import TrainConfig
from biqe.training.run import Run


@pytest.fixture
def folder(tmp_path):
    """A run that has not begun to train."""
    graph = {"name": "g", "path": "g", "fingerprint": "0"}
    config = TrainConfig(epochs=1)
    Run.create(tmp_path / "run", model="biqe", model_config={}, train=config, graph=graph, query_set=None)
    return tmp_path / "run"


def test_two_processes_cannot_train_in_one_folder(folder):
    run = Run.open(folder)
    with run.locked(), pytest.raises(RunFailed, match="another process"):
        with Run.open(folder).locked():
            pass


def test_a_trace_whose_last_line_was_cut_short_is_read_up_to_it(folder):
    run = Run.open(folder)
    run.log("steps", step=1)
    run.log("steps", step=2)
    trace = folder / "trace.jsonl"
    trace.write_bytes(trace.read_bytes()[:-5])
    assert [event["step"] for event in run.trace()] == [1]


def test_only_one_rank_writes_the_trace(folder):
    Run(folder, {}, writes=False).log("steps", step=1)
    assert Run.open(folder).trace() == []


def test_a_refused_run_leaves_nothing_and_one_that_trained_stays(folder):
    (folder / "checkpoints").mkdir()
    Run.open(folder).discard()
    assert (folder / "run.json").exists()
    (folder / "checkpoints").rmdir()
    Run.open(folder).discard()
    assert not folder.exists()


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{",
        "[]",
        '{"format": "other"}',
        '{"format": "biqe-run", "version": 9}',
        '{"format": "biqe-run", "version": 1}',
    ],
)
def test_damaged_run_records_are_told(tmp_path, text):
    (tmp_path / "run.json").write_text(text)
    with pytest.raises(UnreadableFile):
        Run.open(tmp_path)
