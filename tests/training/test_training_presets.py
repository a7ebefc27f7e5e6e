"""Presets: what they say is what is trained, recorded and shown; what the user says goes before them."""

from __future__ import annotations

import json
from dataclasses import fields

import pytest

from biqe.cli import main
from biqe.models import _catalogue
from biqe.query.bound import TARGET, BoundQuery
from biqe.training import session
from biqe.training.config import TrainConfig
from biqe.training.presets import PRESETS

TINY = (
    "--epochs 0.02 --width 16 --layers 1 --threads 1 -O heads=2 -O feed_forward=16 -O validations=1 "
    "-O validation_queries=20"
).split()


@pytest.fixture(scope="module")
def town(tmp_path_factory):
    """A small graph with all splits."""
    place = tmp_path_factory.mktemp("town")
    links = [f"e{i % 23}\tr{i % 3}\te{(i * i + i % 5) % 23}" for i in range(150)]
    (place / "town.tsv").write_text("\n".join(dict.fromkeys(links)) + "\n")
    assert main(["import", str(place / "town.tsv"), "--split", "0.2,0.2", "--out", str(place / "graph")]) == 0
    return place / "graph"


@pytest.mark.parametrize("name", PRESETS)
def test_a_preset_is_the_papers_experiment(name):
    preset = PRESETS[name]
    model = _catalogue.build(preset.model, {**preset.model_config, "width": 24, "layers": 1, "heads": 2}, 10, 2)
    assert model.name == "biqe" and not hasattr(model, "links")
    config = model.config
    assert (config.positions, config.norm, config.mask_average) == ("paper", "post", "probability")
    assert config.context == "full" and not config.inverses
    train = session.settings(preset.model, minutes=1, **preset.train)
    assert not train.online and train.answers == "one" and train.triple_answers == 1 and train.softmax == "full"
    off = ("label_smoothing", "average", "hide_share", "reveal_share", "inverse_share", "links_minutes")
    assert all(getattr(train, setting) == 0 for setting in off)
    assert set(preset.train) <= {field.name for field in fields(TrainConfig)}
    # Two unknowns at one depth are what the paper excludes.
    twins = BoundQuery((1, TARGET, 2, TARGET, TARGET), ((0, 0, 1), (1, 0, 4), (2, 1, 3), (3, 1, 4)), (1, 3, 4))
    assert not model.supports(twins)


@pytest.mark.slow
def test_a_run_by_a_preset_mines_its_set_once_and_says_what_it_is(town, tmp_path, capsys):
    run = tmp_path / "run"
    assert main(["train", str(town), "--preset", "paper", *TINY, "-O", "label_smoothing=0.05", "--out", str(run)]) == 0
    told = capsys.readouterr()
    assert "was mined to train on" in told.err
    record = json.loads((run / "run.json").read_text())
    assert (record["preset"], record["model"]) == ("paper", "biqe")
    assert record["set"]["path"] == str((run / "queries").resolve()) and record["set"]["recipe"] == "cq"
    assert record["model_config"]["width"] == 16 and record["model_config"]["positions"] == "paper"
    assert not record["train"]["online"]
    assert record["train"]["label_smoothing"] == 0.05 and record["train"]["average"] == 0.0
    assert main(["config", str(run)]) == 0
    assert capsys.readouterr().out.startswith("preset = paper\n")
    assert main(["evaluate", str(run), "--set", str(run / "queries"), "--split", "test"]) == 0


@pytest.mark.slow
def test_what_the_user_says_goes_before_the_preset(town, tmp_path):
    run = tmp_path / "run"
    words = ["--online", "--positions", "structure", "-O", "paths=20", "-O", "dags=20"]
    assert main(["train", str(town), "--preset", "paper", *TINY, *words, "--out", str(run)]) == 0
    record = json.loads((run / "run.json").read_text())
    assert record["train"]["online"] and record["set"] is None and not (run / "queries").exists()
    assert record["model_config"]["positions"] == "structure" and record["model_config"]["norm"] == "post"


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--preset", "papr"], "did you mean 'paper'?"),
        (["--preset", "paper", "--model", "gqe"], "preset 'paper' is of model biqe"),
        (["--preset", "paper", "--continue", "atlas"], "keeps its own settings"),
        (["--preset", "paper", "--width", "100"], "'heads' must divide 'width'"),
    ],
)
def test_what_contradicts_a_preset_is_refused_and_leaves_nothing(town, tmp_path, capsys, words, said):
    assert main(["train", str(town), *words, "--out", str(tmp_path / "run")]) == 2
    assert said in " ".join(capsys.readouterr().err.split())
    assert not (tmp_path / "run").exists()


def test_several_processes_are_told_to_mine_first(town, tmp_path, monkeypatch, capsys):
    from biqe.training import presets

    monkeypatch.setenv("WORLD_SIZE", "2")
    with pytest.raises(presets.InvalidOption) as refused, presets.mined_once(str(town), tmp_path / "run", 0):
        pass
    assert "biqe mine" in refused.value.hint and not (tmp_path / "run").exists()
