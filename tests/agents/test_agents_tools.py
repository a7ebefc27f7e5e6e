"""What the tools answer: the same as the library, known and predicted apart, bounded, and with advice."""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

import biqe
from biqe.agents import tools as room
from biqe.agents.tools import MOST_CHARACTERS, Tools, _bounded
from biqe.errors import InvalidOption, UnknownName

BONN = "SELECT ?river { :Bonn :located_on ?river }"
DANUBE = "SELECT ?country { :Danube :flows_through ?country }"


@pytest.fixture(scope="module")
def tools() -> Tools:
    return Tools(biqe.open("atlas"))


def test_rows_are_those_of_the_library_with_known_and_predicted_apart(tools: Tools) -> None:
    answers, told = tools.kb.ask(DANUBE, top=3), tools.ask(DANUBE, top=3)
    assert [row["values"]["country"] for row in told["known"]] == [row.country for row in answers.known]
    assert all(row["probability"] == 1 and "why" not in row for row in told["known"])
    for row, own in zip(told["predicted"], answers.predicted, strict=True):
        assert row["values"] == own.values and row["row"] == own.number and row["why"] == own.why
        assert row["probability"] == pytest.approx(own.probability, abs=1e-4)
        assert [link["probability"] for link in row["missing"]] == [pytest.approx(own.probability, abs=1e-4)]
    assert told["known_complete"] and told["known_in_all"] == answers.known_count
    assert told["abstain"] is False and "advice" not in told


@pytest.mark.parametrize(("below", "abstains"), [(0.5, True), (0.1, False)])
def test_the_advice_to_abstain_follows_the_threshold(tools: Tools, below: float, abstains: bool) -> None:
    told = Tools(tools.kb, abstain_below=below).ask(BONN)
    best = max(row["probability"] for row in told["predicted"])
    assert 0.1 < best < 0.5 and told["known"] == []
    assert told["abstain"] is abstains
    assert ("say that you do not know" in told["advice"]) is abstains


def test_nothing_known_and_nothing_predicted_is_told(tools: Tools) -> None:
    told = tools.ask(BONN, mode="known")
    assert told["known"] == told["predicted"] == [] and told["abstain"] is True
    assert "the graph does not tell" in told["advice"]


def test_scores_that_are_no_probabilities_lead_to_abstention(tools: Tools, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(type(tools.kb.predictor), "note", "links have scores")
    told = Tools(tools.kb, abstain_below=0.0).ask(BONN)
    assert told["abstain"] is True and "scores, not probabilities" in told["advice"]


def test_ask_and_count_have_their_own_words(tools: Tools) -> None:
    assert tools.ask("ASK { :Bonn :located_on :Rhine }")["holds"] is False
    known = tools.ask("ASK { :Cologne :located_on :Rhine }")
    assert known["holds"] is True and known["probability"] == 1.0 and known["abstain"] is False
    counted = tools.ask("SELECT (COUNT(?c) AS ?n) { ?c :located_on :Rhine }")
    assert counted["known"][0]["values"]["n"] == 11
    assert counted["predicted"][0]["values"]["n"] > 0 and "how many more" in counted["advice"]
    grouped = tools.ask("SELECT ?r (COUNT(?c) AS ?n) { ?c :located_on ?r } GROUP BY ?r", mode="known")
    assert len(grouped["known"]) <= room.MOST_ROWS < grouped["known_in_all"]


def test_rows_of_values_have_probabilities_reasons_and_advice_too(tools: Tools) -> None:
    told = tools.ask("SELECT ?p ?o { :Bonn ?p ?o }", top=3)
    own = tools.kb.ask("SELECT ?p ?o { :Bonn ?p ?o }", top=3)
    assert [row["values"] for row in told["known"]] == [row.values for row in own.known]
    assert told["abstain"] is False and len(told["predicted"]) == 3
    for row, expected in zip(told["predicted"], own.predicted, strict=True):
        assert row["values"] == expected.values and row["why"] == expected.why
        assert row["probability"] == pytest.approx(expected.probability, abs=1e-4)
        assert row["missing"][0]["relation"] == row["values"]["p"]
    again = tools.explain("SELECT ?p ?o { :Bonn ?p ?o }", row=told["predicted"][0]["row"])
    assert again["why"] == told["predicted"][0]["why"] and again["status"] == "predicted"
    between = tools.ask("SELECT ?p { :Bonn ?p :Rhine }")
    assert between["known"] == [] and between["abstain"] is True and "say that you do not know" in between["advice"]
    verdict = tools.ask("ASK { :Bonn ?p :Rhine }")
    assert verdict["holds"] is False and verdict["probability"] == pytest.approx(
        between["predicted"][0]["probability"], abs=1e-3
    )


def test_a_row_that_is_explained_is_the_row_that_was_told(tools: Tools) -> None:
    told = tools.ask(DANUBE, top=4)["predicted"][3]
    why = tools.explain(DANUBE, told["row"])
    assert why["row"] == told["values"] and why["why"] == told["why"] and why["probability"] == told["probability"]
    assert why["links"][0]["stored"] is False and any(line.startswith("+ ") for line in why["reasons"][0]["speaks"])
    known = tools.explain(DANUBE, 0)
    assert known["status"] == "known" and known["probability"] == 1.0 and known["links"][0]["stored"] is True
    with pytest.raises(InvalidOption, match="there are only"):
        tools.explain(DANUBE, 99)


def test_what_find_and_schema_give_can_be_asked(tools: Tools) -> None:
    relation = next(row["query"] for row in tools.schema()["relations"] if row["query"] == ":located_on")
    entity = tools.find("COLOGNE")["found"][0]["query"]
    assert tools.ask(f"SELECT ?r {{ {entity} {relation} ?r }}")["known"][0]["values"] == {"r": "Rhine"}
    assert tools.schema(limit=2)["relations_in_all"] == 16
    assert "advice" in tools.find("no such name")


def test_suggestions_are_missing_facts_with_reasons(tools: Tools) -> None:
    told = tools.suggest(relation=":on_continent", top=3)
    for row in told["suggestions"]:
        assert tools.ask("ASK {{ <{}> <{}> <{}> }}".format(*row["fact"]))["holds"] is False
        assert row["why"] and 0 < row["probability"] < 1
    assert told["abstain"] is True and "0 of 3" in told["advice"]
    with pytest.raises(UnknownName):
        tools.suggest(relation=":on_continents")


def test_answers_are_bounded_and_say_what_is_left_out() -> None:
    name = "x" * 5_000
    graph = biqe.Graph.from_triples([(f"{name[:4000]}{n}", "on", "hub") for n in range(300)])
    told = Tools(biqe.open(graph)).ask("SELECT ?x { ?x :on :hub }")
    assert len(json.dumps(told, ensure_ascii=False)) <= MOST_CHARACTERS
    assert 0 < len(told["known"]) + told["left_out"] <= 100 and told["known_in_all"] == 300
    assert json.loads(json.dumps(_bounded({"known": []}))) == {"known": []}


def test_accepted_facts_are_appended_once_and_can_be_imported(tmp_path: Path) -> None:
    file = tmp_path / "accepted.tsv"
    tools = Tools(biqe.open(biqe.Graph.from_triples([("Bonn", "on", "Rhine"), ("Ulm", "on", "Danube")])), accepted=file)
    assert tools.accept(":Bonn", ":on", ":Rhine")["status"] == "known" and not file.exists()
    assert tools.accept("Bonn", ":on", "Danube") == {
        "fact": ["Bonn", "on", "Danube"],
        "status": "accepted",
        "facts_in_file": 1,
    }
    assert tools.accept(":Bonn", "on", ":Danube")["status"] == "accepted before"
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(lambda _: tools.accept("Ulm", "on", "Rhine"), range(8)))
    assert list(biqe.Graph.from_file(file)) == [("Bonn", "on", "Danube"), ("Ulm", "on", "Rhine")]
    with pytest.raises(UnknownName):
        tools.accept("Bonn", "on", "Elbe")
