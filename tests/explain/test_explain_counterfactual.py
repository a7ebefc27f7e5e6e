"""What becomes of a row: each change equals asking the changed query, or the changed model, by hand."""

from __future__ import annotations

from functools import partial

import numpy as np
import pytest
import torch

from biqe.errors import UnsupportedQuery
from biqe.explain import VIEWS, explain
from biqe.explain.counterfactual import CUT, DROPPED, HIDDEN_NAME, TAKEN, without_name, without_triple
from biqe.predict.conditional import row_share
from biqe.predict.predictor import Predictor
from biqe.query.bound import HIDDEN, TARGET, BoundQuery
from biqe.query.dag import orient
from biqe.query.tokens import tokens

explain = partial(explain, views=VIEWS)

T = TARGET
THREE = BoundQuery((0, T, T, T), ((0, 0, 1), (1, 1, 2), (2, 0, 3), (0, 1, 3)), (3, 1, 2), ("", "x", "y", "z"))


def explained(model, world, query, row):
    return explain(model, world.graph, query, row, world.vocabulary, views=["counterfactual"]).counterfactual


@pytest.mark.parametrize("inverses", [True, False])
def test_the_share_of_a_row_is_its_joint_probability(toy, inverses):
    model = toy.FactorModel(toy.random_weights(1, 4, 2), inverses=inverses)
    row = {1: 2, 2: 0, 3: 3}
    assert row_share(Predictor(model), THREE, row) == pytest.approx(model.share(THREE, row), rel=1e-9)


def test_a_model_that_reads_no_entity_in_the_place_of_a_target_is_asked_for_the_rest(toy):
    whole = toy.FactorModel(toy.random_weights(1, 4, 2))
    model = toy.FactorModel(
        whole.weights,
        refuse=lambda query: "no" if sum(v >= 0 for v in query.nodes) > 1 and len(query.edges) > 1 else None,
    )
    fork = BoundQuery((0, T, T), ((0, 0, 1), (0, 1, 2)), (1, 2))
    row = {1: 2, 2: 0}
    assert row_share(Predictor(model), fork, row) == pytest.approx(whole.share(fork, row), rel=1e-9)
    assert [len(query.edges) for query in model.asked] == [2, 1]


def test_targets_that_cannot_be_told_apart_are_asked_for_one_at_a_time(toy):
    whole = toy.FactorModel(toy.random_weights(1, 4, 2))
    model = toy.FactorModel(whole.weights, refuse=lambda query: "twins" if len(query.targets) > 1 else None)
    fork = BoundQuery((0, T, T), ((0, 0, 1), (0, 1, 2)), (1, 2))
    assert row_share(Predictor(model), fork, {1: 2, 2: 0}) == pytest.approx(whole.share(fork, {1: 2, 2: 0}), rel=1e-9)


def test_dropping_a_pattern_equals_asking_without_it(toy, rivers):
    model = toy.FactorModel(rivers.weights)
    found = explained(model, rivers, rivers.hidden, {0: 3})
    by_hand = [
        BoundQuery((T, HIDDEN, 6), ((0, 1, 1), (1, 0, 2)), (0,)),  # France alone
        BoundQuery((T, HIDDEN, 5), ((0, 1, 1), (1, 0, 2)), (0,)),  # Germany alone
    ]
    assert found.share == pytest.approx(model.share(rivers.hidden, {0: 3}))
    assert [change.how for change in found.patterns] == [DROPPED] * 3
    assert [change.pattern for change in found.patterns] == [0, 1, 2]
    shares = [change.share for change in found.patterns]
    assert shares[0] is None
    assert found.patterns[0].reason == "nothing is said about ?city any more"
    assert shares[1:] == pytest.approx([model.share(query, {0: 3}) for query in by_hand])


def test_what_falls_apart_is_asked_apart(toy, rivers):
    model = toy.FactorModel(rivers.weights)
    query = BoundQuery((T, 5, T, 6), ((0, 0, 1), (2, 1, 0), (2, 0, 3)), (0, 2), ("river", "", "city", ""))
    found = explained(model, rivers, query, {0: 0, 2: 3})
    river, city = BoundQuery((T, 5), ((0, 0, 1),), (0,)), BoundQuery((T, 6), ((0, 0, 1),), (0,))
    assert found.patterns[1].share == pytest.approx(model.share(river, {0: 0}) * model.share(city, {0: 3}))


def test_a_stored_triple_is_taken_out_of_the_graph_that_a_model_sees(toy, rivers):
    model = toy.LookingModel(rivers.weights)
    model.use_graph(rivers.graph)
    before = model.share(rivers.query, rivers.known)
    found = explained(model, rivers, rivers.query, rivers.known)
    assert found.sees_graph
    assert found.share == pytest.approx(before)
    assert [change.how for change in found.triples] == [TAKEN, TAKEN]
    for change, triple in zip(found.triples, [(0, 0, 5), (2, 1, 0)], strict=True):
        model.use_graph(without_triple(rivers.graph, triple))
        assert change.share == pytest.approx(model.share(rivers.query, rivers.known))
        assert change.share < before


def test_the_model_that_is_explained_keeps_its_graph(toy, rivers):
    model = toy.LookingModel(rivers.weights)
    explain(model, rivers.graph, rivers.query, rivers.known, rivers.vocabulary)
    assert model.graph is None


def test_missing_links_cannot_be_withheld(toy, rivers):
    found = explained(toy.LookingModel(rivers.weights), rivers, rivers.query, rivers.predicted)
    assert [change.pattern for change in found.triples] == [0]


def test_a_name_is_hidden_from_a_model_that_looks_nothing_up(toy, rivers):
    model = toy.FactorModel(rivers.weights)
    found = explained(model, rivers, rivers.query, rivers.known)
    assert not found.sees_graph
    river, city = found.triples
    somewhere = BoundQuery((T, HIDDEN, T), rivers.query.edges, (0, 2))
    assert (river.how, river.share) == (HIDDEN_NAME, pytest.approx(model.share(somewhere, rivers.known)))
    # Nothing in the other pattern can be hidden, so it is cut, and nothing is left to say about the city.
    assert (city.how, city.share, city.reason) == (CUT, None, "nothing is said about ?city any more")


def test_only_one_pattern_loses_a_name_that_two_have():
    query = BoundQuery((T, 5), ((0, 0, 1), (0, 1, 1)), (0,), ("x", ""))
    changed, muted = without_name(query, 1)
    assert changed.edges == ((0, 0, 1), (0, 1, 2))
    assert changed.nodes == (T, 5, 5)
    assert muted == {2}
    assert without_name(BoundQuery((T, 5), ((0, 0, 1),), (0,)), 0) == (BoundQuery((T, 5), ((0, 0, 1),), (0,)), {1})
    assert without_name(BoundQuery((T, HIDDEN), ((0, 0, 1),), (0,)), 0) is None


def test_where_a_name_cannot_be_hidden_the_pattern_is_cut(toy, rivers):
    model = toy.FactorModel(
        rivers.weights, refuse=lambda query: "every root must be a constant" if _has_hidden_root(query) else None
    )
    found = explained(model, rivers, rivers.hidden, {0: 2})
    assert [change.how for change in found.triples] == [CUT, CUT, CUT]
    assert [change.share for change in found.triples] == [change.share for change in found.patterns]


def _has_hidden_root(query: BoundQuery) -> bool:
    reached = {object_ for _, _, object_ in query.edges}
    return any(value == HIDDEN and node not in reached for node, value in enumerate(query.nodes))


def test_a_hidden_name_is_one_token_less_and_nothing_else(rivers):
    from biqe.models.biqe import BiQE, Config

    torch.manual_seed(0)
    model = BiQE(Config(width=16, layers=1, heads=2, feed_forward=16), 7, 2)
    predictor = Predictor(model)
    changed, muted = without_name(rivers.hidden, 1)
    before, after = tokens(predictor.prepare(rivers.hidden)), tokens(predictor.prepare(changed, muted))
    (lost,) = [place for place, id_ in enumerate(before.ids) if before.kinds[place] == "entity" and id_ == 5]
    for column in ("kinds", "ids", "positions", "paths"):
        values = list(getattr(before, column))
        assert list(getattr(after, column)) == values[:lost] + values[lost + 1 :]


def test_biqe_is_asked_as_it_was_trained(rivers):
    from biqe.models.biqe import BiQE, Config
    from biqe.query.bound import QuerySet

    torch.manual_seed(0)
    model = BiQE(Config(width=16, layers=1, heads=2, feed_forward=16), 7, 2).eval()
    found = explained(model, rivers, rivers.hidden, {0: 3})
    with torch.no_grad():
        scores = model.scores(model.encoder(QuerySet.of([orient(rivers.hidden, 2)])))
    assert found.share == pytest.approx(float(scores[0, 3].exp()), rel=1e-5)
    assert [change.how for change in found.triples] == [HIDDEN_NAME, HIDDEN_NAME]
    assert all(0 < change.share < 1 for change in found.triples)


def test_a_query_that_the_model_cannot_read_still_has_a_witness(toy, rivers):
    model = toy.FactorModel(rivers.weights, refuse=lambda query: "no" if len(query.edges) > 1 else None)
    why = explain(model, rivers.graph, rivers.hidden, {0: 2}, rivers.vocabulary)
    assert why.share is None
    assert why.counterfactual is None
    assert why.skipped["counterfactual"] == "no."
    assert why.witness.missing == ()
    with pytest.raises(UnsupportedQuery, match="no"):
        row_share(Predictor(model), rivers.hidden, {0: 2})


def test_cqd_is_asked_with_and_without_a_triple(rivers):
    from biqe.models.cqd import CQD, Config

    torch.manual_seed(0)
    model = CQD(Config(rank=4, spread=0.5, known="one"), 7, 2).eval()
    why = explain(model, rivers.graph, rivers.hidden, {0: 2}, rivers.vocabulary)
    found = why.counterfactual
    assert found.sees_graph
    assert [change.how for change in found.triples] == [TAKEN] * 3
    # Every link is stored, so the row is as true as can be; with any of them gone it is not.
    assert found.share == pytest.approx(1.0)
    for change, triple in zip(found.triples, [(2, 1, 0), (0, 0, 5), (0, 0, 6)], strict=True):
        model.use_graph(without_triple(rivers.graph, triple))
        assert change.share == pytest.approx(row_share(Predictor(model), rivers.hidden, {0: 2}))
        assert change.share < 1.0
    assert why.skipped == {"attention": "cqd has no attention to show."}


def test_a_part_that_the_graph_holds_counts_as_1_in_a_predicted_row(toy, rivers):
    separate = "it has separate parts"
    model = toy.FactorModel(rivers.weights, refuse=lambda query: separate if len(query.edges) > 1 else None)
    # Which river flows through Germany, and which city is on the Elbe? Nothing joins the two.
    query = BoundQuery((T, 5, T, 1), ((0, 0, 1), (2, 1, 3)), (0, 2), ("river", "", "city", ""))
    river, city = BoundQuery((T, 5), ((0, 0, 1),), (0,)), BoundQuery((T, 1), ((0, 1, 1),), (0,))
    found = explained(model, rivers, query, {0: 0, 2: 3})
    assert found.share == pytest.approx(model.share(city, {0: 3}))
    # Without the fact that settles the river, the river has to be predicted, too, and its name is not told.
    (change,) = found.triples
    somewhere = BoundQuery((T, HIDDEN), ((0, 0, 1),), (0,))
    assert (change.how, change.name) == (HIDDEN_NAME, 1)
    assert change.share == pytest.approx(found.share * model.share(somewhere, {0: 0}))
    assert [change.reason for change in found.patterns] == [
        f"nothing is said about ?{name} any more" for name in ("river", "city")
    ]
    # What the model alone thinks of a known row has nothing to do with what is stored.
    known = explained(model, rivers, query, {0: 0, 2: 4})
    assert known.share == pytest.approx(model.share(river, {0: 0}) * model.share(city, {0: 4}))
    # A model that reads both at once is asked so.
    whole = toy.FactorModel(rivers.weights)
    assert explained(whole, rivers, query, {0: 0, 2: 3}).share == pytest.approx(whole.share(query, {0: 0, 2: 3}))


def test_a_question_is_explained_as_it_was_asked(toy, rivers):
    model = toy.FactorModel(rivers.weights)
    query = BoundQuery((T, T), ((0, 1, 1),), (0, 1), ("city", "river"))
    pinned = BoundQuery((T, 0), ((0, 1, 1),), (0,), ("city", ""))
    why = explain(model, rivers.graph, query, {0: 2, 1: 0}, rivers.vocabulary, asked=pinned)
    assert why.row == {"city": "Cologne", "river": "Rhine"}
    assert why.share == why.counterfactual.share == pytest.approx(model.share(pinned, {0: 2}))
    (change,) = why.counterfactual.triples
    somewhere = BoundQuery((T, HIDDEN), ((0, 1, 1),), (0,))
    assert (change.how, change.name, change.share) == (HIDDEN_NAME, 1, pytest.approx(model.share(somewhere, {0: 2})))
    assert "without Cologne located_on Rhine (Rhine hidden)" in why.to_text()


def test_the_surest_unknown_is_one_that_conditions_permit(toy):
    whole = toy.FactorModel(toy.random_weights(1, 4, 2))
    fork = BoundQuery((0, T, T), ((0, 0, 1), (0, 1, 2)), (1, 2))
    for barred in (1, 2):
        del whole.asked[:]
        share = row_share(Predictor(whole), fork, {1: 2, 2: 0}, permitted={barred: np.zeros(4, bool)})
        assert share == pytest.approx(whole.share(fork, {1: 2, 2: 0}), rel=1e-9)
        # The other one is filled first, so that the last question is about this one alone.
        assert [edge[1] for edge in whole.asked[-1].edges] == [barred - 1]


@pytest.mark.parametrize("model", ["FactorModel", "LookingModel"])
def test_a_question_without_unknowns_is_as_probable_as_its_missing_links(toy, rivers, model):
    model = getattr(toy, model)(rivers.weights)
    if hasattr(model, "use_graph"):
        model.use_graph(rivers.graph)
    # Is Bonn on a river that flows through Germany?
    query = BoundQuery((3, HIDDEN, 5), ((0, 1, 1), (1, 0, 2)), (), ("", "r", ""))
    why = explain(model, rivers.graph, query, {}, rivers.vocabulary)
    assert (why.status, why.nodes[1].entity, why.row) == ("predicted", "Rhine", {})
    link = model.link(3, 1, 0)
    assert why.share == why.probability == pytest.approx(link)
    found = why.counterfactual
    assert [change.share for change in found.patterns] == pytest.approx([1.0, link])
    if hasattr(model, "use_graph"):
        model.use_graph(without_triple(rivers.graph, (0, 0, 5)))
    assert [change.how for change in found.triples] == [TAKEN]
    assert found.triples[0].share == pytest.approx(link * model.link(0, 0, 5))
    assert why.skipped == {"attention": "the question has no unknown that could look at something."}
    assert why.to_text().startswith("That it holds: predicted by ")
    why.to_svg()
    # What the graph holds is certain; one pattern alone leaves no question when it is dropped.
    known = explained(model, rivers, BoundQuery((2, 0), ((0, 1, 1),), ()), {})
    assert known.share == 1.0
    assert (known.patterns[0].share, known.patterns[0].reason) == (None, "nothing is left of the question")
