"""Checkpoints: whole or not at all, the newest two, and refused where they are damaged."""

from __future__ import annotations

import pytest
import torch

from biqe.errors import UnreadableFile
from biqe.models import _catalogue
from biqe.training import checkpoint
from biqe.training.checkpoint import Place
from biqe.training.config import TrainConfig
from biqe.training.optimizers import RunningAverage, optimizer_of


@pytest.fixture
def state():
    """A small model after one step, its average and its optimizer."""
    torch.manual_seed(0)
    model = _catalogue.build("gqe", {"width": 4}, 6, 2)
    optimizer, average = optimizer_of(model, TrainConfig(epochs=1)), RunningAverage(model)
    for weight in model.parameters():
        weight.grad = torch.randn_like(weight)
    average.before_step()
    optimizer.step()
    average.after_step(0.5)
    return model, average, optimizer


def test_what_is_saved_is_loaded(tmp_path, state):
    model, average, optimizer = state
    path = checkpoint.save(tmp_path, Place(epoch=1, step=7, best=0.5), model, average.tensors(), optimizer)
    fresh = _catalogue.build("gqe", {"width": 4}, 6, 2)
    again = optimizer_of(fresh, TrainConfig(epochs=1))
    place, saved = checkpoint.load(path, fresh, again)
    assert place == Place(epoch=1, step=7, best=0.5) == checkpoint.read_place(path)
    for name, weight in model.named_parameters():
        assert torch.equal(dict(fresh.named_parameters())[name], weight)
        assert torch.equal(saved[name], average.weights()[name])
        assert torch.equal(
            again.state[dict(fresh.named_parameters())[name]]["exp_avg"], optimizer.state[weight]["exp_avg"]
        )


def test_the_newest_two_are_kept_and_leftovers_are_removed(tmp_path, state):
    model, average, optimizer = state
    for step in (1, 2, 10):
        checkpoint.save(tmp_path, Place(step=step), model, average.tensors(), optimizer)
    (tmp_path / ".step-000000011.safetensors.partial").write_bytes(b"half")
    assert checkpoint.read_place(checkpoint.latest(tmp_path)).step == 10
    assert sorted(int(path.stem.split("-")[1]) for path in tmp_path.iterdir()) == [2, 10]
    assert checkpoint.latest(tmp_path / "nothing") is None


@pytest.mark.parametrize("kept", [0, 5, 100, -100])
def test_a_damaged_checkpoint_is_told(tmp_path, state, kept):
    model, average, optimizer = state
    path = checkpoint.save(tmp_path, Place(), model, average.tensors(), optimizer)
    path.write_bytes(path.read_bytes()[:kept])
    with pytest.raises(UnreadableFile):
        checkpoint.read_place(path)


def test_a_checkpoint_of_another_model_is_told(tmp_path, state):
    model, average, optimizer = state
    path = checkpoint.save(tmp_path, Place(), model, average.tensors(), optimizer)
    other = _catalogue.build("gqe", {"width": 8}, 6, 2)
    with pytest.raises(UnreadableFile, match="not a checkpoint of this run"):
        checkpoint.load(path, other, optimizer_of(other, TrainConfig(epochs=1)))
