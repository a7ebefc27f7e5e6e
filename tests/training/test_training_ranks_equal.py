"""Several ranks compute what one process computes: losses, gradients, weights after some steps, checkpoints."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from biqe.errors import UnreadableFile
from biqe.graph import folder
from biqe.models import biqe
from biqe.models._split_entities import Rows
from biqe.training import checkpoint
from biqe.training.config import TrainConfig
from biqe.training.optimizers import optimizer_of

SCRIPT = Path(__file__).with_name("ranks_equal.py")
ADAM = 1e-4
"""Adam divides by the size of gradients, so rounding in small ones grows; a step of the test moves weights by 1e-2."""


@pytest.fixture(scope="module")
def out(graph_folder, tmp_path_factory):
    """The figures of two ranks, then of four, which also read what the two wrote."""
    place = tmp_path_factory.mktemp("ranks")
    shutil.copytree(graph_folder, place / "town")
    for world, others in ((2, []), (4, ["2"])):
        launched = subprocess.run(
            [Path(sys.executable).with_name("torchrun"), "--nproc-per-node", str(world), SCRIPT, place, *others],
            capture_output=True,
            text=True,
            timeout=240,
            env={**os.environ, "OMP_NUM_THREADS": "1"},
        )
        assert launched.returncode == 0, launched.stderr
    return place


@pytest.mark.slow
@pytest.mark.parametrize("world", [2, 4])
def test_ranks_compute_what_one_process_computes(out, world):
    """Loss and gradients of replicas and of a split model, with one and several masks a target, soft answers, label
    smoothing, a link predictor and sampled entities; PyTorch's own parallel loss; weights after some steps."""
    found = json.loads((out / f"{world}.json").read_text())
    assert len(found) >= 33
    for name, difference in found.items():
        assert difference <= (ADAM if name.startswith("weights") else 1e-6), (name, difference)


@pytest.mark.slow
@pytest.mark.parametrize("world", [2, 4])
def test_one_process_reads_what_several_wrote(out, world):
    splits = folder.load(out / "town")
    sizes = len(splits.vocabulary.entities), len(splits.vocabulary.relations)
    model = biqe.BiQE(biqe.Config(width=16, layers=1, heads=2, feed_forward=32, dropout=0.0), *sizes)
    optimizer = optimizer_of(model, TrainConfig(epochs=1))
    newest = checkpoint.latest(out / f"by-{world}")
    assert newest.is_dir() and len(list(newest.glob("*.safetensors"))) == world
    place, average = checkpoint.load(newest, model, optimizer)
    assert place.step == 4
    for name, expected in load_file(out / f"expected-{world}.safetensors").items():
        assert torch.equal(model.state_dict()[name], expected), name
        assert average[name].shape == expected.shape
    for name, weight in model.named_parameters():
        assert optimizer.state[weight]["exp_avg"].shape == weight.shape, name


@pytest.mark.slow
def test_a_split_checkpoint_that_is_not_whole_is_told(out, tmp_path):
    newest = checkpoint.latest(out / "by-2")
    first, last = sorted(path.name for path in newest.glob("*.safetensors"))
    for number, damage in enumerate(
        (
            lambda copied: (copied / first).unlink(),
            lambda copied: (copied / last).unlink(),
            lambda copied: os.truncate(copied / last, 200),
            lambda copied: os.truncate(copied / first, (copied / first).stat().st_size - 8),
            lambda copied: (copied / "place.json").unlink(),
        )
    ):
        copied = shutil.copytree(newest, tmp_path / str(number))
        damage(copied)
        model = biqe.BiQE(biqe.Config(width=16, layers=1, heads=2, feed_forward=32, dropout=0.0), 72, 4)
        with pytest.raises(UnreadableFile, match="checkpoint"):
            checkpoint.load(copied, model, optimizer_of(model, TrainConfig(epochs=1)))


@pytest.mark.parametrize(("count", "world"), [(7, 2), (8, 4), (9, 4), (5, 5), (100, 7)])
def test_rows_are_placed_as_the_library_places_them(count, world):
    parts = [Rows(count, rank, world) for rank in range(world)]
    table = torch.arange(count)
    library = table.chunk(world)
    held = [rows.of(table) for rows in parts if rows.first < count]
    assert len(held) == len(library)
    assert all(torch.equal(a, b) for a, b in zip(held, library, strict=True))
