"""The witness: against every assignment of the hidden variables, on graphs small enough to try them all."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest
from biqe.explain.asking import Asker
from hypothesis import given, settings
from hypothesis import strategies as st

from biqe.errors import InvalidOption
from biqe.explain import explain, search, weigh, witness
from biqe.query.bound import HIDDEN, TARGET, BoundQuery

ENTITIES, RELATIONS = 5, 2
T, H = TARGET, HIDDEN
SHAPES = {
    "one link": BoundQuery((0, T), ((0, 0, 1),), (1,)),
    "chain": BoundQuery((0, H, T), ((0, 0, 1), (1, 1, 2)), (2,)),
    "towards the constant": BoundQuery((T, H, 1), ((0, 0, 1), (1, 1, 2)), (0,)),
    "inverse relation": BoundQuery((0, H, T), ((0, RELATIONS, 1), (1, 1, 2)), (2,)),
    "two hidden": BoundQuery((0, H, H, T), ((0, 0, 1), (1, 1, 2), (2, 0, 3)), (3,)),
    "meeting": BoundQuery((0, 1, H, T), ((0, 0, 2), (1, 1, 2), (2, 0, 3)), (3,)),
    "two groups": BoundQuery((0, H, T, H), ((0, 0, 1), (1, 1, 2), (2, 0, 3)), (2,)),
    "ring": BoundQuery((T, H, H), ((0, 0, 1), (1, 1, 2), (2, 0, 0)), (0,)),
    "loop": BoundQuery((T, H), ((0, 0, 1), (1, 1, 1)), (0,)),
    "hidden alone": BoundQuery((T, 0, H, H), ((1, 0, 0), (2, 1, 3)), (0,)),
    "two targets": BoundQuery((T, H, T), ((0, 0, 1), (1, 1, 2)), (0, 2)),
}


def best(model, graph, query, row, allowed) -> tuple[int, float]:
    """Most stored links, then the largest product of missing ones, over all assignments."""
    stored = set(map(tuple, graph.triples.tolist()))
    hidden = [node for node, value in enumerate(query.nodes) if value == HIDDEN]
    found = []
    for values in product(range(graph.entity_count), repeat=len(hidden)):
        if not all(allowed[node][value] for node, value in zip(hidden, values, strict=True) if node in allowed):
            continue
        nodes = [row.get(node, value) for node, value in enumerate(query.nodes)]
        for node, value in zip(hidden, values, strict=True):
            nodes[node] = value
        links = [witness.forward((nodes[s], r, nodes[o]), graph.relation_count) for s, r, o in query.edges]
        missing = [model.link(*link) for link in links if link not in stored]
        found.append((len(links) - len(missing), float(np.prod(missing))))
    return max(found)


@settings(max_examples=60)
@given(
    shape=st.sampled_from(sorted(SHAPES)),
    seed=st.integers(0, 10_000),
    triples=st.sets(st.tuples(*[st.integers(0, n - 1) for n in (ENTITIES, RELATIONS, ENTITIES)]), max_size=8),
    values=st.lists(st.integers(0, ENTITIES - 1), min_size=2, max_size=2),
    masks=st.lists(st.sets(st.integers(0, ENTITIES - 1), min_size=1), max_size=2),
)
def test_the_witness_is_the_best_of_all_assignments(toy, shape, seed, triples, values, masks):
    query = SHAPES[shape]
    graph = toy.graph_of(triples, ENTITIES, RELATIONS)
    model = toy.FactorModel(toy.random_weights(seed, ENTITIES, RELATIONS))
    row = dict(zip(query.targets, values, strict=False))
    hidden = [node for node, value in enumerate(query.nodes) if value == HIDDEN]
    allowed = {n: np.isin(np.arange(ENTITIES), list(mask)) for n, mask in zip(hidden, masks, strict=False)}
    found = witness.find(graph, query, row, Asker(model), allowed)
    assert all(mask[found.nodes[node]] for node, mask in allowed.items())
    stored, weight = best(model, graph, query, row, allowed)
    assert sum(found.stored) == stored
    missing = [chance for chance, is_stored in zip(found.probabilities, found.stored, strict=True) if not is_stored]
    assert np.prod(missing) == pytest.approx(weight, rel=1e-9)
    assert found.is_complete
    # What is said about each link is true of the entities that are named.
    for (s, r, o), is_stored, chance in zip(query.edges, found.stored, found.probabilities, strict=True):
        link = witness.forward((found.nodes[s], r, found.nodes[o]), RELATIONS)
        assert is_stored == (link in triples) == witness.holds(graph, link)
        assert chance == (1.0 if is_stored else pytest.approx(model.link(*link)))
    assert all(found.nodes[node] == entity for node, entity in row.items())


def test_a_known_row_needs_nothing_of_the_model(toy, rivers):
    model = toy.FactorModel(rivers.weights)
    found = witness.find(rivers.graph, rivers.hidden, {0: 2}, Asker(model))
    assert (found.stored, found.probabilities) == ((True, True, True), (1.0, 1.0, 1.0))
    assert found.nodes == (2, 0, 5, 6)
    assert model.asked == []


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
    assert known.share == pytest.approx(model.share(rivers.query, rivers.known))
    assert predicted.probability == predicted.share
    given = explain(model, rivers.graph, rivers.query, rivers.predicted, rivers.vocabulary, probability=0.75)
    assert (given.probability, given.share) == (0.75, predicted.share)


def test_the_hidden_river_is_the_one_with_fewest_missing_links(toy, rivers):
    # Dresden is on the Elbe, which does not flow through France: one missing link, by the Elbe or by the Rhine.
    model = toy.FactorModel(rivers.weights)
    why = explain(model, rivers.graph, rivers.hidden, {0: 4}, rivers.vocabulary)
    chances = {"Elbe": model.link(1, 0, 6), "Rhine": model.link(4, 1, 0)}
    likely = max(chances, key=chances.get)
    assert why.nodes[1].entity == likely
    assert [link.probability for link in why.witness.missing] == [pytest.approx(chances[likely])]


def test_without_a_model(rivers):
    found = witness.find(rivers.graph, rivers.hidden, {0: 3}, None)
    assert found.stored == (False, True, True)
    assert found.probabilities == (None, 1.0, 1.0)
    nowhere = BoundQuery((TARGET, HIDDEN, 2), ((0, 0, 1), (1, 0, 2)), (0,), ("x", "h", ""))
    found = witness.find(rivers.graph, nowhere, {0: 2}, None)
    assert found.nodes == (2, witness.NOBODY, 2)
    assert found.probabilities == (None, None)


def test_a_model_that_cannot_read_single_links(toy, rivers):
    model = toy.FactorModel(rivers.weights, refuse=lambda query: "too small" if len(query.edges) == 1 else None)
    why = explain(model, rivers.graph, rivers.query, rivers.predicted, rivers.vocabulary, views=["witness"])
    assert [link.probability for link in why.witness.links] == [1.0, None]
    assert why.status == "predicted"


def test_a_search_that_stops_early_says_so(toy, rivers, monkeypatch):
    model = toy.FactorModel(rivers.weights)
    monkeypatch.setattr(search, "SUBJECTS", 1)
    # Rhine and Elbe flow through Germany; which of them through Cologne? Each is a question of its own.
    query = BoundQuery((TARGET, HIDDEN, 5), ((1, 0, 0), (1, 0, 2)), (0,), ("x", "r", ""))
    found = witness.find(rivers.graph, query, {0: 2}, Asker(model))
    assert not found.is_complete
    assert sum(found.stored) == 1
    why = explain(model, rivers.graph, query, {0: 2}, rivers.vocabulary)
    assert "there may be a better one" in " ".join(why.to_text().split())


def test_a_large_graph_is_searched_by_what_the_model_finds_likely(toy, monkeypatch):
    monkeypatch.setattr(weigh, "PROPOSALS", 2)
    graph = toy.graph_of([(0, 0, 1)], ENTITIES, RELATIONS)
    model = toy.FactorModel(toy.random_weights(3, ENTITIES, RELATIONS))
    query = BoundQuery((2, HIDDEN, TARGET), ((0, 0, 1), (1, 1, 2)), (2,))
    found = witness.find(graph, query, {2: 4}, Asker(model))
    assert not found.is_complete
    chances = [model.link(2, 0, h) * model.link(h, 1, 4) for h in range(ENTITIES)]
    joint = [model.share(query, {1: h, 2: 4}) for h in range(ENTITIES)]
    likely = np.argsort(joint)[-2:]
    assert found.nodes[1] == max(likely, key=lambda h: chances[h])


def test_calibrated_links_take_the_place_of_shares(toy, rivers):
    asked = []

    def calibrated(links):
        asked.extend(links)
        return [0.9] * len(links)

    model = toy.FactorModel(rivers.weights)
    why = explain(
        model,
        rivers.graph,
        rivers.query,
        rivers.predicted,
        rivers.vocabulary,
        views=["witness"],
        link_probabilities=calibrated,
    )
    assert asked == [(3, 1, 0)]
    assert [link.probability for link in why.witness.links] == [1.0, 0.9]


def test_conditions_on_hidden_variables(toy, rivers):
    # Cologne is on the Rhine; but the river must be another one.
    model = toy.FactorModel(rivers.weights)
    allowed = {1: np.arange(7) != 0}
    why = explain(model, rivers.graph, rivers.hidden, {0: 2}, rivers.vocabulary, allowed=allowed)
    assert (why.status, why.nodes[1].entity) == ("predicted", "Elbe")
    nobody = {1: np.zeros(7, bool)}
    found = witness.find(rivers.graph, rivers.hidden, {0: 2}, Asker(model), nobody)
    assert found.nodes[1] == witness.NOBODY
    with pytest.raises(InvalidOption, match=r"masks of 7 entities for hidden variables. Got one of shape \(3,\)"):
        explain(model, rivers.graph, rivers.hidden, {0: 2}, rivers.vocabulary, allowed={1: np.ones(3, bool)})


def test_any_number_of_objects_is_one_question(toy):
    # 40 rivers flow through e41; which of them x is on, one question tells.
    graph = toy.graph_of([(river, 0, 41) for river in range(40)], 43, 2)
    weights = np.ones((2, 43, 43))
    weights[1, 42, 39] = 50.0
    model = toy.FactorModel(weights)
    query = BoundQuery((TARGET, HIDDEN, 41), ((0, 1, 1), (1, 0, 2)), (0,), ("x", "r", ""))
    found = witness.find(graph, query, {0: 42}, Asker(model))
    assert (found.nodes[1], found.stored, found.is_complete) == (39, (False, True), True)
    assert {(asked.nodes, asked.edges) for asked in model.asked} == {((42, TARGET), ((0, 1, 1),))}


def test_the_same_fact_for_two_patterns_is_listed_once(toy, rivers):
    model = toy.FactorModel(rivers.weights)
    query = BoundQuery((TARGET, TARGET), ((0, 0, 1), (1, 0, 0)), (0, 1), ("a", "b"))
    why = explain(model, rivers.graph, query, {0: 3, 1: 3}, rivers.vocabulary, views=["witness"])
    assert [link.pattern for link in why.witness.missing] == [0, 1]
    assert [line for line in why.to_text().splitlines() if "missing " in line][1:] == [
        "  1, 2  missing   0.14  Bonn am Rhein flows_through Bonn am Rhein"
    ]


def test_what_was_found_in_answering_is_what_is_explained(toy, rivers):
    model = toy.FactorModel(rivers.weights)
    by_elbe = search.Evidence(filled=((1, 1),), is_complete=False)
    found = witness.find(
        rivers.graph, rivers.hidden, {0: 2}, Asker(model, lambda links: [0.5] * len(links)), None, by_elbe
    )
    assert found.nodes == (2, 1, 5, 6)
    assert (found.stored, found.probabilities) == ((False, True, False), (0.5, 1.0, 0.5))
    assert not found.is_complete
