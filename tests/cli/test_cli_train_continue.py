"""``biqe train --continue``: a run goes on from another one's model, on a graph that has grown."""

from __future__ import annotations

import json

import pytest

import biqe
from biqe.knowledge_base import KnowledgeBase
from biqe.serve.live import LiveGraph

CITY = """INSERT DATA { :Rheinstadt :located_on :Rhine ; :located_in :Germany ; :near :Bonn , :Cologne , :Koblenz .
    :Bonn :near :Rheinstadt . :Cologne :near :Rheinstadt . :Koblenz :near :Rheinstadt }"""
SHORT = ["--threads", "1", "-O", "paths=200", "-O", "dags=200", "-O", "validation_queries=50"]


@pytest.fixture
def run_biqe(capsys):
    """Function from words to exit code, standard output and standard error."""
    from biqe.cli import main

    def run(*words: str) -> tuple[int, str, str]:
        try:
            code = main(list(words)) or 0
        except SystemExit as ended:
            code = int(ended.code or 0)
        found = capsys.readouterr()
        return code, found.out, found.err

    return run


def live_atlas(folder) -> tuple[KnowledgeBase, LiveGraph]:
    atlas = biqe.open("atlas")
    return atlas, LiveGraph(folder, atlas.splits, known=atlas.known, prefixes=atlas.prefixes)


@pytest.mark.slow
def test_a_new_city_can_be_predicted_after_the_model_took_it_in(tmp_path, run_biqe):
    atlas, live = live_atlas(tmp_path / "live")
    live.apply(CITY)
    question = "SELECT ?where WHERE { :Rheinstadt :near ?where }"
    before = atlas.at(live.snapshot()).ask(question, mode="predicted", top=3)
    assert len(before) == 3, "rules and kinds speak of what came after training"
    out = tmp_path / "newer"
    words = ["--continue", "atlas", "--graph", str(live.folder), "--epochs", "0.02", "--out", str(out), "--json"]
    code, text, errors = run_biqe("train", *words, *SHORT)
    assert code == 0, errors
    # Warm: what was learnt before is still there after a few steps.
    assert json.loads(text)["mrr"] > 0.3
    newer = biqe.open(out)
    assert newer.known == "train" and newer.prefixes == atlas.prefixes
    answers = newer.ask(question, mode="predicted", top=3)
    assert {"Wuppertal", "Düsseldorf"} <= {row["where"] for row in answers}
    assert newer.ask("SELECT ?r WHERE { :Rheinstadt :located_on ?r }", mode="known")[0].r == "Rhine"
    # The live graph goes on, and the new model answers over its newest version.
    live.apply("INSERT DATA { :Rheinstadt :near :Mainz }")
    later = newer.at(live.snapshot()).ask(question, mode="predicted", top=3)
    assert [row["where"] for row in later] == [row["where"] for row in answers] and later.note == ""
    assert live.is_of(atlas.splits.fingerprint) and live.is_of(newer.splits.fingerprint) and not live.is_of("0" * 16)
    record = json.loads((out / "run.json").read_text())
    assert record["continues"].endswith("model") and record["graph"]["path"] == str(out / "graph")


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["--continue", "atlas", "--graph", "atlas", "--width", "32", "--out", "OUT"], "stays as it was built"),
        (["--continue", "nowhere", "--graph", "atlas", "--out", "OUT"], "no model to continue"),
        (["--continue", "atlas", "--graph", "nowhere", "--out", "OUT"], "does not exist"),
        (["--continue", "atlas", "--out", "OUT"], "needs a graph"),
        (["--continue", "atlas", "atlas", "--graph", "atlas", "--out", "OUT"], "given twice"),
        (["--continue", "atlas", "--graph", "atlas", "--start-from", "x", "--out", "OUT"], "not both"),
        (["--continue", "atlas", "--graph", "atlas", "--resume", "x"], "nothing else"),
        (["--continue", "atlas", "--graph", "LIVE", "--out", "FULL"], "not empty"),
    ],
)
def test_what_cannot_be_continued_is_said_in_a_sentence(tmp_path, run_biqe, words, says):
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "precious.txt").write_text("keep me")
    places = {"OUT": str(tmp_path / "new"), "FULL": str(tmp_path / "full"), "LIVE": str(tmp_path / "live")}
    if "LIVE" in words:
        live_atlas(tmp_path / "live")[1].close()
    code, _, errors = run_biqe("train", *[places.get(word, word) for word in words], "--epochs", "1")
    assert code == 2 and says in errors and "Traceback" not in errors
    assert not (tmp_path / "new" / "run.json").exists()
    assert [path.name for path in (tmp_path / "full").iterdir()] == ["precious.txt"]
