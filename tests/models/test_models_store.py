"""The model folder: what comes back is what was written, and damage is told, not met."""

from __future__ import annotations

import json

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
    with pytest.raises(UnreadableFile):
        store.load(folder)


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
