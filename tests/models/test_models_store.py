"""The model folder: what comes back is what was written, and damage is told, not met."""

from __future__ import annotations

import json
import os
import resource
from pathlib import Path

import pytest
import torch

from biqe.errors import BiqeError, UnreadableFile
from biqe.graph.vocabulary import Vocabulary
from biqe.models import load as load_any
from biqe.models import store
from biqe.query.bound import TARGET, BoundQuery, QuerySet

VOCABULARY = Vocabulary([f"e\n{i} ü" for i in range(30)], [f"r{i}" for i in range(4)], {3: "Köln"})
QUERY = QuerySet.of([BoundQuery((3, TARGET), ((0, 1, 1),), (1,))])


@pytest.fixture
def folder(tmp_path, make_model):
    store.save(make_model(), tmp_path / "model", vocabulary=VOCABULARY, graph_fingerprint="g", trained={"mrr": 0.5})
    return tmp_path / "model"


def test_round_trip(folder, make_model):
    loaded = store.load(folder)
    assert list(loaded.vocabulary.entities) == list(VOCABULARY.entities)
    assert loaded.vocabulary.label(3) == "Köln"
    assert loaded.manifest["trained"] == {"mrr": 0.5}
    saved = make_model()
    for name, weight in saved.state_dict().items():
        torch.testing.assert_close(loaded.model.state_dict()[name], weight, rtol=0, atol=0)
    with torch.inference_mode():
        # Mapped weights begin at any byte, and some processors then add in another order.
        expected = saved.scores(saved.encoder(QUERY))
        torch.testing.assert_close(loaded.model.scores(loaded.model.encoder(QUERY)), expected, rtol=1e-5, atol=1e-5)


def test_half_the_size_for_almost_the_same_scores(folder, tmp_path, make_model):
    store.save(make_model(), tmp_path / "half", vocabulary=VOCABULARY, graph_fingerprint="g", half=True)
    size = lambda f: (f / "weights.safetensors").stat().st_size  # noqa: E731
    assert size(tmp_path / "half") < 0.7 * size(folder)
    full, half = store.load(folder).model, store.load(tmp_path / "half").model
    with torch.inference_mode():
        torch.testing.assert_close(
            half.scores(half.encoder(QUERY)), full.scores(full.encoder(QUERY)), rtol=0.02, atol=0.02
        )


def test_a_run_folder_gives_its_best_model(folder):
    assert load_any(folder.parent).model.name == "biqe"


@pytest.mark.parametrize("name", ["manifest.json", "weights.safetensors", "vocabulary.json"])
@pytest.mark.parametrize("damage", ["missing", "empty", "truncated", "garbage"])
def test_damaged_files_are_told(folder, name, damage):
    path = folder / name
    whole = path.read_bytes()
    if damage == "missing":
        path.unlink()
    else:
        path.write_bytes(
            {"empty": b"", "truncated": whole[: len(whole) // 2], "garbage": b"\x80\x04\x95." * 50}[damage]
        )
    with pytest.raises(UnreadableFile) as caught:
        store.load(folder)
    assert caught.value.hint


@pytest.mark.parametrize(
    "change",
    [
        {"version": 99},
        {"format": "other"},
        {"model": "no-such-model"},
        {"config": {"width": 16, "wings": 2}},
        {"entities": 31},
        {"vocabulary_fingerprint": "0" * 16},
    ],
)
def test_a_manifest_that_does_not_fit_is_told(folder, change):
    path = folder / "manifest.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **change}))
    with pytest.raises(BiqeError):
        store.load(folder)


def test_weights_are_replaced_whole_or_not_at_all(folder, make_model, monkeypatch):
    before = (folder / "weights.safetensors").read_bytes()

    def full_disk(*args):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(store, "save_file", full_disk)
    with pytest.raises(BiqeError, match="No space left"):
        store.save(make_model(seed=1), folder, vocabulary=VOCABULARY, graph_fingerprint="g")
    assert (folder / "weights.safetensors").read_bytes() == before
    names = sorted(path.name for path in folder.iterdir())
    assert names == ["card.md", "manifest.json", "vocabulary.json", "weights.safetensors"]


@pytest.mark.parametrize(
    "change",
    [
        {"config": {"layers": 100_000_000}},
        {"config": {"width": 1_000_000_000, "heads": 1}},
        {"config": {"width": 10**30, "heads": 1}},
        {"config": {"width": "wide"}},
        {"config": {"width": None}},
        {"config": {"layers": -3}},
        {"config": {"heads": 0}},
        {"config": {"max_position": 2**62}},
        {"config": {"inverses": 7}},
        {"config": []},
        {"model": ["biqe"]},
        {"entities": -1},
        {"entities": True},
        {"entities": 10**40},
        {"relations": 2**31 - 1},
        {"vocabulary_fingerprint": 5},
    ],
)
def test_a_manifest_is_compared_with_the_weights_before_anything_is_built(folder, change):
    path = folder / "manifest.json"
    manifest = json.loads(path.read_text())
    if isinstance(change.get("config"), dict):
        change = {"config": {**manifest["config"], **change["config"]}}
    path.write_text(json.dumps({**manifest, **change}))
    soft, hard = resource.getrlimit(resource.RLIMIT_AS)
    in_use = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (in_use + (1 << 29), hard))
    try:
        with pytest.raises(BiqeError):
            store.load(folder)
    finally:
        resource.setrlimit(resource.RLIMIT_AS, (soft, hard))


@pytest.mark.parametrize("value", [float("nan"), float("inf"), float("-inf")])
def test_weights_that_are_no_numbers_are_told(folder, value):
    tensors = store.read_tensors(folder / "weights.safetensors")
    name, tensor = sorted(tensors.items())[-1]
    tensors = {key: each.clone() for key, each in tensors.items()}
    tensors[name].view(-1)[tensor.numel() // 2] = value
    store.write_tensors(folder / "weights.safetensors", tensors)
    with pytest.raises(UnreadableFile, match="not a number"):
        store.load(folder)


def test_weights_of_another_type_are_told(folder):
    path = folder / "weights.safetensors"
    path.write_bytes(path.read_bytes().replace(b'"F32"', b'"I32"'))
    with pytest.raises(UnreadableFile, match="of type I32, not float"):
        store.load(folder)


@pytest.mark.parametrize("name", ["manifest.json", "vocabulary.json", "weights.safetensors"])
@pytest.mark.parametrize("kind", ["pipe", "endless", "folder"])
def test_what_is_no_regular_file_is_told_and_not_waited_for(folder, name, kind):
    (folder / name).unlink()
    {
        "pipe": os.mkfifo,
        "endless": lambda path: path.symlink_to("/dev/zero"),
        "folder": os.mkdir,
    }[kind](folder / name)
    with pytest.raises(UnreadableFile):
        store.load(folder)
