"""The explanation in words and as JSON: golden texts, 80 columns whatever the names are, files by their endings."""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rich.cells import cell_len

from biqe.errors import InvalidOption, RunFailed, VocabularyMismatch
from biqe.explain import VIEWS, explain
from biqe.graph import words
from biqe.query.bound import BoundQuery

explain = partial(explain, views=VIEWS)

GOLDEN = Path(__file__).parent / "golden"


@pytest.mark.parametrize("row", ["predicted", "known", "hidden", "looking", "alone"])
def test_golden_text(toy, rivers, row):
    model = toy.LookingModel(rivers.weights) if row == "looking" else toy.WatchedModel(rivers.weights)
    query, values = rivers.query, rivers.known if row in ("known", "alone") else rivers.predicted
    if row == "hidden":
        query, values = rivers.hidden, {0: 4}
    why = explain(None if row == "alone" else model, rivers.graph, query, values, rivers.vocabulary)
    written = why.to_text()
    assert max(map(len, written.splitlines())) <= 80
    assert written + "\n" == (GOLDEN / f"{row}.txt").read_text("utf-8")
    assert str(why) == written


def test_facts_of_a_witness_stand_below_each_other(toy, rivers):
    # One fact for two patterns: two cities that are the same.
    query = BoundQuery((0, -1, -1, 5), ((1, 1, 0), (0, 0, 3), (2, 1, 0)), (1, 2), ("", "a", "b", ""))
    why = explain(toy.WatchedModel(rivers.weights), rivers.graph, query, {1: 3, 2: 3}, rivers.vocabulary)
    lines = [line for line in why.to_text().splitlines() if "  stored  " in line or "  missing  " in line]
    assert [line.split("  ")[1] for line in lines] == ["1, 3", "2"]
    assert len({line.index("Bonn" if "Bonn" in line else "Rhine") for line in lines}) == 1


NAMES = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=120)


@settings(max_examples=60)
@given(names=st.lists(NAMES, min_size=3, max_size=3), width=st.integers(40, 120))
def test_no_line_is_too_wide_and_nothing_is_obeyed(toy, rivers, names, width):
    river, relation, variable = names
    graph = toy.graph_of(rivers.triples, [f"{river}0", *rivers.names[1:-1], f"{river}6"], ["flows_through", relation])
    query = BoundQuery(rivers.query.nodes, rivers.query.edges, rivers.query.targets, (variable, "", "city"))
    why = explain(toy.WatchedModel(rivers.weights), graph, query, rivers.predicted, graph.vocabulary)
    written = why.to_text(width=width)
    assert max(map(cell_len, written.split("\n"))) <= width
    assert all(line == words.visible(line) for line in written.split("\n"))
    assert json.loads(why.write("json"))["row"] == {variable: f"{river}0", "city": "Bonn"}


def test_json_holds_everything(toy, rivers):
    model = toy.WatchedModel(rivers.weights)
    why = explain(model, rivers.graph, rivers.hidden, {0: 3}, rivers.vocabulary)
    document = json.loads(why.write("json"))
    assert document == why.to_json()
    assert document["format"] == "biqe-explanation"
    assert document["row"] == {"city": "Bonn"}
    assert document["labels"] == {"Bonn": "Bonn am Rhein"}
    assert document["patterns"][1] == {"number": 2, "subject": "?r", "relation": "flows_through", "object": "Germany"}
    assert document["witness"]["hidden"] == {"r": "Rhine"}
    assert [link["stored"] for link in document["witness"]["links"]] == [False, True, True]
    assert document["witness"]["links"][0]["subject"] == "Bonn"
    assert [sum(row) for row in document["attention"]["mean"]] == pytest.approx([1.0])
    assert len(document["attention"]["parts"]) == len(document["attention"]["last"][0])
    assert document["attention"]["unknowns"] == ["?city"]
    assert document["counterfactual"]["share"] == document["share"] == document["probability"]
    assert [change["pattern"] for change in document["counterfactual"]["patterns"]] == [1, 2, 3]
    assert [change["subject"] for change in document["counterfactual"]["triples"]] == ["Rhine", "Rhine"]
    assert document["skipped"] == {}


def test_only_what_is_asked_for(toy, rivers):
    model = toy.WatchedModel(rivers.weights)
    for view in VIEWS:
        why = explain(model, rivers.graph, rivers.query, rivers.predicted, rivers.vocabulary, views=[view])
        assert [other for other in VIEWS if other.upper() in why.to_text()] == [view]
        share = model.share(rivers.query, rivers.predicted)
        assert why.share == (pytest.approx(share) if view == "counterfactual" else None)
        why.to_svg()


def test_mined_queries_have_no_names(toy, rivers):
    query = BoundQuery(rivers.hidden.nodes, rivers.hidden.edges, rivers.hidden.targets)
    why = explain(toy.WatchedModel(rivers.weights), rivers.graph, query, {0: 3}, rivers.vocabulary)
    assert [node.word for node in why.nodes] == ["?1", "?h1", "Germany", "France"]
    assert why.row == {"1": "Bonn"}


def test_without_a_model_there_is_a_witness(rivers):
    why = explain(None, rivers.graph, rivers.query, rivers.known, rivers.vocabulary)
    assert set(why.skipped) == {"attention", "counterfactual"}
    assert (why.status, why.model, why.share) == ("known", None, None)


def test_files_by_their_endings(toy, rivers, tmp_path):
    why = explain(toy.WatchedModel(rivers.weights), rivers.graph, rivers.query, rivers.predicted, rivers.vocabulary)
    for ending in ("txt", "json", "svg", "png", "SVG"):
        why.save(tmp_path / f"why.{ending}")
    assert (tmp_path / "why.txt").read_text("utf-8") == why.to_text() + "\n"
    assert json.loads((tmp_path / "why.json").read_text("utf-8")) == why.to_json()
    assert (tmp_path / "why.svg").read_text("utf-8") == why.to_svg() == (tmp_path / "why.SVG").read_text("utf-8")
    assert (tmp_path / "why.png").read_bytes() == why.to_png()
    why.save(tmp_path / "why", "svg")
    assert (tmp_path / "why").read_text("utf-8") == why.to_svg()
    with pytest.raises(InvalidOption, match=r"must end in one of .txt, .json, .svg, .png. Got 'why.gif'"):
        why.save(tmp_path / "why.gif")
    with pytest.raises(RunFailed, match="could not be written"):
        why.save(tmp_path / "no" / "such" / "folder" / "why.svg")
    with pytest.raises(InvalidOption, match="must be one of text, json, svg, png. Got 'gif'"):
        why.write("gif")


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        ({"views": ["witness", "magic"]}, InvalidOption, "a view must be one of .* Got 'magic'"),
        ({"views": []}, InvalidOption, "'views' must be a list"),
        ({"row": {0: 0}}, InvalidOption, r"each of the target nodes \[0, 2\]. Got nodes \[0\]"),
        ({"row": {0: 0, 2: 7}}, InvalidOption, r"must be in \[0, 7\). Got 7"),
        ({"row": {0: -1, 2: 0}}, InvalidOption, r"must be in \[0, 7\). Got -1"),
        ({"probability": 1.5}, InvalidOption, r"must be in \[0, 1\]. Got 1.5"),
        ({"query": BoundQuery((0, 5), ((0, 0, 1),), ())}, InvalidOption, r"the target nodes \[\]. Got nodes \[0, 2\]"),
        ({"asked": BoundQuery((0, 5), ((0, 0, 1),), ())}, InvalidOption, "must have the nodes and patterns"),
    ],
)
def test_what_does_not_fit_is_refused(toy, rivers, change, error, message):
    options = {"query": rivers.query, "row": rivers.predicted} | change
    query, row = options.pop("query"), options.pop("row")
    with pytest.raises(error, match=message):
        explain(toy.WatchedModel(rivers.weights), rivers.graph, query, row, rivers.vocabulary, **options)


def test_what_a_baseline_is_is_said_where_it_is_not_the_probability(toy, rivers):
    model = toy.FactorModel(rivers.weights)
    told = {"query": rivers.query, "row": rivers.predicted}
    plain = explain(model, rivers.graph, **told, vocabulary=rivers.vocabulary)
    assert plain.baseline == plain.to_json()["baseline"] == ""
    for remark, said in (("", "found in another way"), ("It was calibrated.", "It was calibrated.")):
        why = explain(model, rivers.graph, **told, vocabulary=rivers.vocabulary, probability=0.9, remark=remark)
        assert said in why.baseline
        assert f"gives the row {words.probability(why.share)}. {why.baseline}" in " ".join(why.to_text().split())


def test_a_model_of_another_graph_is_refused(toy, rivers):
    model = toy.FactorModel(toy.random_weights(0, 4, 2))
    with pytest.raises(VocabularyMismatch, match="the model has 4 entities and 2 relations"):
        explain(model, rivers.graph, rivers.query, rivers.predicted, rivers.vocabulary)


@given(text=st.text(max_size=60), width=st.integers(4, 30))
def test_cut_and_padded_fit(text, width):
    text = words.visible(text)
    assert cell_len(words.cut(text, width)) <= width
    assert cell_len(words.padded(text, width)) == width


@given(parts=st.lists(st.text("ab川", max_size=12), max_size=8), width=st.integers(8, 30))
def test_wrapping_loses_nothing(parts, width):
    text = " ".join(parts)
    lines = words.wrapped(text, width, first="  ", rest="  ")
    assert all(cell_len(line) <= width for line in lines)
    assert "".join(lines).replace(" ", "") == text.replace(" ", "")
