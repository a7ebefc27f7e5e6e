"""``biqe config --solve``: a trained model is told how to solve queries, and nothing else of it changes."""

from __future__ import annotations

import json

import pytest
import torch

from biqe.cli import main
from biqe.graph.vocabulary import Vocabulary
from biqe.models import _catalogue, store

VOCABULARY = Vocabulary([f"e{n}" for n in range(9)], ["r", "s"])


@pytest.fixture
def folder_of(tmp_path):
    """Function from a model's name and options to a folder of one that was never trained."""

    def make(name, **options):
        torch.manual_seed(0)
        model = _catalogue.build(name, options, 9, 2)
        store.save(model, tmp_path / name, vocabulary=VOCABULARY, graph_fingerprint="0" * 16)
        return tmp_path / name

    return make


def run(capsys, *words):
    code = main([str(word) for word in words])
    told = capsys.readouterr()
    return code, told.out, told.err


@pytest.mark.parametrize(
    ("name", "options", "words", "changed"),
    [
        ("hybrid", {"width": 8, "heads": 2, "rank": 3}, ["search=0.25"], {"search": 0.25}),
        ("cqd", {"rank": 3}, ["known=one", "beam=7"], {"known": "one", "beam": 7}),
    ],
)
def test_what_is_changed_is_kept_and_weights_stay(folder_of, capsys, name, options, words, changed):
    folder = folder_of(name, **options)
    weights = (folder / "weights.safetensors").read_bytes()
    before = store.read_manifest(folder)
    said = [part for word in words for part in ("--solve", word)]
    code, out, err = run(capsys, "config", folder, *said, "--json")
    assert (code, err) == (0, "") and json.loads(out) == changed
    after = store.read_manifest(folder)
    assert after["config"] == {**before["config"], **changed}
    assert {**after, "config": None} == {**before, "config": None}
    assert (folder / "weights.safetensors").read_bytes() == weights
    loaded = store.load(folder).model
    assert all(getattr(loaded.config, key) == value for key, value in changed.items())
    assert all(str(value) in (folder / "card.md").read_text() for value in changed.values())


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["search=2"], "'search' of hybrid must be in [0, 1]. Got 2.0"),
        (["width=16"], "'width' of hybrid cannot be changed after training"),
        (["seed=1"], "'seed' is a setting of training, which is over"),
        (["serch=1"], "there is no setting 'serch'"),
        (["search"], "a setting is written NAME=VALUE. Got 'search'"),
    ],
)
def test_bad_changes_are_refused_and_nothing_is_written(folder_of, capsys, words, message):
    folder = folder_of("hybrid", width=8, heads=2, rank=3)
    before = (folder / "manifest.json").read_bytes()
    code, out, err = run(capsys, "config", folder, *(part for word in words for part in ("--solve", word)))
    assert code == 2 and out == "" and message in " ".join(err.split()), err
    assert (folder / "manifest.json").read_bytes() == before


def test_models_without_such_options_say_so(folder_of, capsys):
    code, out, err = run(capsys, "config", folder_of("biqe", width=8, heads=2), "--solve", "width=16")
    assert code == 2 and out == "" and "biqe has no options that can be changed after training" in " ".join(err.split())


@pytest.mark.parametrize("words", [["--defaults"], []])
def test_without_a_run_there_is_nothing_to_change(capsys, words):
    code, out, err = run(capsys, "config", *words, "--solve", "search=0.5")
    assert code == 2 and out == "" and "needs its run folder" in " ".join(err.split())


def test_a_folder_without_a_model_is_refused(tmp_path, capsys):
    code, _, err = run(capsys, "config", tmp_path, "--solve", "search=0.5")
    assert code == 2 and "is not a model folder" in " ".join(err.split())
