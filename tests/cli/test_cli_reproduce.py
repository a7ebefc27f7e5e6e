"""``biqe models``, ``benchmarks``, ``reproduce`` and ``results`` from the outside."""

from __future__ import annotations

import json

import pytest

from biqe.cli import main
from biqe.models import _catalogue
from biqe.reproduce import recipe as recipes


def lines_fit(text):
    return [line for line in text.splitlines() if len(line) > 80] == []


def test_models_are_listed_with_what_they_answer(capsys):
    assert main(["models"]) == 0
    out = capsys.readouterr().out
    assert lines_fit(out)
    for name in (*_catalogue.names(), *_catalogue.presets()):
        assert name in out
    assert main(["models", "--json"]) == 0
    facts = {model["name"]: model for model in json.loads(capsys.readouterr().out)}
    assert set(facts) == set(_catalogue.names())
    assert facts["biqe"]["several_targets"] == {"path": True, "dag": True}
    assert facts["cqd"]["learns_from"] == "triples"
    assert set(facts["gqe"]["presets"]) == {"gqe-double", "gqe-mp"}


def test_a_preset_shows_its_model(capsys):
    assert main(["models", "gqe-mp"]) == 0
    out = capsys.readouterr().out
    assert out.startswith("gqe ") and "\ncqd" not in out


def test_an_unknown_model_or_table_is_answered_with_the_nearest(capsys):
    assert main(["models", "gqee"]) == 2
    assert "hint: did you mean 'gqe'?" in capsys.readouterr().err
    assert main(["reproduce", "q2b-fb15k23"]) == 2
    assert "hint: did you mean 'q2b-fb15k237'?" in capsys.readouterr().err
    assert main(["results", "--table", "postions"]) == 2
    assert "hint: did you mean 'positions'?" in capsys.readouterr().err


def test_the_help_names_every_table(capsys):
    assert main(["reproduce", "--help"]) == 0
    out = " ".join(capsys.readouterr().out.split())
    listed = out.split("Tables: ")[1].split(". ")[0].split(", ")
    assert listed == recipes.names()


def test_results_where_nothing_was_run(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert main(["results"]) == 0
    out = capsys.readouterr().out
    assert lines_fit(out)
    assert out.startswith("no results in results/: --results names another folder\n")
    assert out.count("not run") == sum(len(recipes.load(name).recipes) for name in recipes.names())
    assert main(["results", "--json"]) == 0
    assert {table["table"] for table in json.loads(capsys.readouterr().out)["tables"]} == set(recipes.names())
    assert main(["results", "--results", "nowhere"]) == 2


def test_the_results_of_this_repository_can_be_shown(root, capsys):
    assert main(["results", "--results", str(root / "results")]) == 0
    out = capsys.readouterr().out
    assert lines_fit(out)
    own = [json.loads(path.read_text()) for path in (root / "results" / "cq-fb15k237" / "biqe").glob("*.json")]
    assert any(f"{one['figures']['split']['mrr']:.3f}" in out for one in own), "the figure of cq-fb15k237/biqe"
    assert "no results in" not in out


def test_a_dry_run_says_what_would_be_done_and_does_nothing(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert main(["reproduce", "no-future", "--seeds", "2", "--dry-run"]) == 0
    out = capsys.readouterr().out
    assert lines_fit(out)
    assert "8 jobs, 4 trainings, 120 minutes of training in all" in out
    assert main(["reproduce", "no-future", "--dry-run", "--only", "joint", "--minutes", "2", "--json"]) == 0
    (job,) = json.loads(capsys.readouterr().out)
    assert job["job"] == "no-future/joint/seed-0-test-2min"
    assert {name: job["settings"]["train"][name] for name in ("clock", "minutes")} == {
        "clock": "processor",
        "minutes": 2.0,
    }
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    "arguments",
    [["--seeds", "0"], ["--minutes", "-1"], ["--split", "train"], ["--only", "nothing"], ["--work"]],
    ids=" ".join,
)
def test_bad_choices_are_2_and_leave_nothing(arguments, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert main(["reproduce", "cq-fb15k237", *arguments]) == 2
    assert "error: " in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


def test_benchmarks_say_what_is_at_hand_and_how_to_get_the_rest(tmp_path, capsys):
    from biqe import benchmarks

    assert main(["benchmarks", "--data", str(tmp_path), "--json"]) == 0
    listed = json.loads(capsys.readouterr().out)
    assert [facts["name"] for facts in listed] == benchmarks.names()
    assert not any(facts["at_hand"] for facts in listed if facts["name"] != "hpo"), "hpo may come with a package"
    assert main(["benchmarks", "fb15k237-q2b", "--data", str(tmp_path)]) == 0
    out = capsys.readouterr().out
    assert lines_fit(out)
    assert out.startswith("fb15k237-q2b   NOT at hand\n") and "\n  get them     " in out
    assert {recipes.load(name).recipes[0].benchmark for name in recipes.names()} <= set(benchmarks.names())


def test_fetch_tells_its_progress_and_then_what_is_at_hand(tmp_path, monkeypatch, capsys):
    from biqe.benchmarks import download

    asked = []

    def fetch(name, *, data=None, on_progress=None, **more):
        asked.append((name, data))
        for done in (10, 25):
            on_progress("q2b/x.pkl", done, 25)
        on_progress("q2b/y.pkl", 5, 5)
        return []

    monkeypatch.setattr(download, "fetch", fetch)
    assert main(["benchmarks", "fb15k237-q2b", "--fetch", "--data", str(tmp_path), "--json"]) == 0
    out, err = capsys.readouterr()
    assert asked == [("fb15k237-q2b", tmp_path)]
    assert json.loads(out)[0]["name"] == "fb15k237-q2b"
    assert "bytes: 30, " in err and "y.pkl" in err


def test_what_cannot_be_fetched_says_where_to_put_it(tmp_path, capsys):
    assert main(["benchmarks", "bio", "--fetch", "--data", str(tmp_path)]) == 2
    out, err = capsys.readouterr()
    assert out == "" and "no address" in err and "data folder as bio/" in " ".join(err.split())
    assert list(tmp_path.iterdir()) == []
