"""An explanation as a whole: its witness, its status, and what it is told about the row."""

from __future__ import annotations

import numpy as np
import pytest

from biqe.errors import InvalidOption
from biqe.explain import explain
from biqe.predict import evidence
from biqe.predict.evidence import Evidence, IdLink
from biqe.query.bound import HIDDEN, TARGET, BoundQuery


def test_known_and_predicted_rows(toy, rivers):
    model = toy.FactorModel(rivers.weights)
    known = explain(model, rivers.graph, rivers.query, rivers.known, rivers.vocabulary)
    predicted = explain(model, rivers.graph, rivers.query, rivers.predicted, rivers.vocabulary)
    assert (known.status, predicted.status) == ("known", "predicted")
    assert known.witness.missing == ()
    (missing,) = predicted.witness.missing
    assert missing.pattern == 1
    assert missing.probability == pytest.approx(model.link(3, 1, 0))
    assert known.row == {"river": "Rhine", "city": "Cologne"}
    assert known.probability == 1.0 and known.sentence == "the graph holds every fact that it needs"
    assert predicted.probability == missing.probability and predicted.share is None
    given = explain(model, rivers.graph, rivers.query, rivers.predicted, rivers.vocabulary, probability=0.75)
    assert given.probability == 0.75


def test_the_hidden_river_is_the_one_with_fewest_missing_links(toy, rivers):
    # Dresden is on the Elbe, which does not flow through France: one missing link, by the Elbe or by the Rhine.
    model = toy.FactorModel(rivers.weights)
    why = explain(model, rivers.graph, rivers.hidden, {0: 4}, rivers.vocabulary)
    chances = {"Elbe": model.link(1, 0, 6), "Rhine": model.link(4, 1, 0)}
    best = pytest.approx(max(chances.values()))
    assert chances[why.nodes[1].entity] == best
    assert [link.probability for link in why.witness.missing] == [best]


def test_a_model_that_cannot_read_single_links(toy, rivers):
    model = toy.FactorModel(rivers.weights, refuse=lambda query: "too small" if len(query.edges) == 1 else None)
    why = explain(model, rivers.graph, rivers.query, rivers.predicted, rivers.vocabulary, views=["witness"])
    assert [link.probability for link in why.witness.links] == [1.0, None]
    assert why.status == "predicted"


def test_the_same_fact_for_two_patterns_is_listed_once(toy, rivers):
    model = toy.FactorModel(rivers.weights)
    query = BoundQuery((TARGET, TARGET), ((0, 0, 1), (1, 0, 0)), (0, 1), ("a", "b"))
    why = explain(model, rivers.graph, query, {0: 3, 1: 3}, rivers.vocabulary, views=["witness"])
    assert [link.pattern for link in why.witness.missing] == [0, 1]
    assert [line for line in why.to_text().splitlines() if "missing " in line][1:] == [
        "  1, 2  missing   0.14  Bonn am Rhein flows_through Bonn am Rhein"
    ]


def test_what_was_found_in_answering_is_what_is_explained(toy, rivers):
    # Cologne by the Elbe: two links are missing, whatever the model thinks of them.
    links = (IdLink(2, 1, 1), IdLink(1, 0, 5), IdLink(1, 0, 6))
    by_elbe = Evidence((2, 1, 5, 6), links, (False, True, False), is_complete=False)
    why = explain(
        toy.FactorModel(rivers.weights),
        rivers.graph,
        rivers.hidden,
        {0: 2},
        rivers.vocabulary,
        views=["witness"],
        evidence=by_elbe,
        link_probabilities={links[0]: 0.5, links[2]: 0.25},
    )
    assert why.nodes[1].entity == "Elbe"
    assert [link.probability for link in why.witness.links] == [0.5, 1.0, 0.25]
    assert not why.witness.is_complete and why.status == "predicted"


def test_conditions_on_hidden_variables(toy, rivers):
    # Cologne is on the Rhine; but the river must be another one.
    model = toy.FactorModel(rivers.weights)
    allowed = {1: np.arange(7) != 0}
    why = explain(model, rivers.graph, rivers.hidden, {0: 2}, rivers.vocabulary, allowed=allowed)
    chances = [model.link(2, 1, r) * model.link(r, 0, 5) * model.link(r, 0, 6) for r in range(7)]
    chances[1] = model.link(2, 1, 1) * model.link(1, 0, 6)  # that the Elbe flows through Germany is stored
    assert (why.status, why.nodes[1].entity) == ("predicted", rivers.names[1 + int(np.argmax(chances[1:]))])
    nobody = {1: np.zeros(7, bool)}
    why = explain(model, rivers.graph, rivers.hidden, {0: 2}, rivers.vocabulary, allowed=nobody, views=["witness"])
    assert why.nodes[1].entity is None
    with pytest.raises(InvalidOption, match=r"masks of 7 entities for hidden variables. Got one of shape \(3,\)"):
        explain(model, rivers.graph, rivers.hidden, {0: 2}, rivers.vocabulary, allowed={1: np.ones(3, bool)})


def test_a_search_that_stops_early_says_so(toy, rivers, monkeypatch):
    monkeypatch.setattr(evidence, "COMPARED", 1)
    # Rhine and Elbe flow through Germany; which of them through Cologne? Each is a question of its own.
    query = BoundQuery((TARGET, HIDDEN, 5), ((1, 0, 0), (1, 0, 2)), (0,), ("x", "r", ""))
    why = explain(toy.FactorModel(rivers.weights), rivers.graph, query, {0: 2}, rivers.vocabulary)
    assert not why.witness.is_complete and len(why.witness.missing) == 1
    assert "there may be a better one" in " ".join(why.to_text().split())
