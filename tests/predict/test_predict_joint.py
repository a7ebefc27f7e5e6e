"""Joint decoding against brute force over the whole joint distribution of a toy model."""

from __future__ import annotations

from itertools import product as pairs

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from biqe.errors import InvalidOption, UnsupportedQuery
from biqe.models._contract import Support, Tuples
from biqe.predict import rows as row_type
from biqe.predict.conditional import open_parts
from biqe.predict.config import JOINT, AskConfig, Joint
from biqe.predict.joint import decode, product
from biqe.predict.predictor import Predictor
from biqe.predict.rows import Listed
from biqe.query.bound import HIDDEN, TARGET, BoundQuery, selected_rows

NONE = np.zeros((0, 2), np.int32)
CHAIN = BoundQuery((0, TARGET, TARGET), ((0, 0, 1), (1, 1, 2)), (1, 2), ("", "x", "y"))
STAR = BoundQuery((0, 1, TARGET, TARGET), ((0, 0, 2), (1, 1, 2), (2, 1, 3)), (3, 2), ("", "", "x", "y"))
WITH_HIDDEN = BoundQuery((0, TARGET, HIDDEN, TARGET), ((0, 0, 1), (1, 1, 2), (2, 0, 3)), (1, 3), ("", "x", "h", "y"))
THREE = BoundQuery((2, TARGET, TARGET, TARGET), ((0, 0, 1), (1, 1, 2), (1, 0, 3)), (3, 1, 2), ("", "a", "b", "c"))
QUERIES = [CHAIN, STAR, WITH_HIDDEN, THREE]


def _marginals(model, query):
    predictor = Predictor(model)
    return predictor, predictor.log_probabilities([predictor.prepare(query)])


def _ask(model, query, exclude=None, *, count, **options):
    predictor, marginals = _marginals(model, query)
    exclude = np.zeros((0, len(query.targets)), np.int32) if exclude is None else np.array(exclude, np.int32)
    prepared, how = predictor.prepare(query), Joint(**{"decode": "beam", **options})
    return decode(predictor, query, prepared, marginals, exclude, count=count, joint=how)


@pytest.mark.parametrize("inverses", [False, True])
@pytest.mark.parametrize("query", QUERIES)
def test_wide_enough_is_brute_force(toy, query, inverses):
    for seed in range(2):
        model = toy.random_model(seed, 4, 2, inverses=inverses)
        truth = model.every_tuple(query)
        found = _ask(model, query, count=len(truth), width=len(truth))
        assert len(found.entities) == len(truth)
        assert tuple(found.entities[0]) == max(truth, key=truth.__getitem__)
        expected = np.array([truth[tuple(row)] for row in found.entities.tolist()])
        np.testing.assert_allclose(np.exp(found.scores), expected, rtol=1e-4)
        assert (np.diff(found.scores) <= 0).all()


def test_joint_and_product_differ_where_targets_depend_on_each_other(toy):
    # x is 0 or 1, evenly; y equals x. The product cannot know that.
    weights = np.full((2, 3, 3), 1e-4)
    weights[0, 2, :2] = [0.5, 0.49]
    weights[1, 0, 0] = weights[1, 1, 1] = 1.0
    model = toy.FactorModel(weights)
    query = BoundQuery((2, TARGET, TARGET), ((0, 0, 1), (1, 1, 2)), (1, 2))
    predictor, marginals = _marginals(model, query)
    paired = product(marginals, Listed(NONE), count=2).entities.tolist()
    found = decode(predictor, query, query, marginals, NONE, count=2, joint=Joint("beam")).entities.tolist()
    assert found == [[0, 0], [1, 1]]
    assert sorted(paired) != sorted(found)


@given(st.integers(0, 50), st.integers(1, 16), st.sets(st.tuples(st.integers(0, 3), st.integers(0, 3))))
def test_product_is_the_sorted_list_of_all_products(toy, seed, count, exclude):
    model = toy.random_model(seed, 4, 2)
    marginals = Predictor(model).log_probabilities([CHAIN])
    found = product(marginals, Listed(np.array(sorted(exclude), np.int32).reshape(-1, 2)), count=count)
    table = marginals[0][:, None].astype(float) + marginals[1][None, :]
    allowed = [table[a, b] for a in range(4) for b in range(4) if (a, b) not in exclude]
    np.testing.assert_allclose(found.scores, sorted(allowed, reverse=True)[:count], rtol=1e-6)
    assert not {tuple(row) for row in found.entities.tolist()} & exclude


def test_product_of_three_targets_visits_every_tuple_once():
    rng = np.random.default_rng(0)
    marginals = rng.normal(size=(3, 5)).astype(np.float32)
    found = product(marginals, Listed(np.zeros((0, 3), np.int32)), count=1000)
    assert len({tuple(row) for row in found.entities.tolist()}) == len(found.entities) == 125
    assert (np.diff(found.scores) <= 1e-9).all()


def test_product_gives_up_where_nearly_everything_is_excluded(monkeypatch):
    monkeypatch.setattr("biqe.predict.joint.TRIED", 100)

    class Everything:
        def holds(self, rows):
            return np.ones(len(rows), bool)

        def completing(self, filled, column):
            raise AssertionError("product completes nothing")

    marginals = np.zeros((2, 1000), np.float32)
    assert len(product(marginals, Everything(), count=5).entities) == 0


@given(
    st.integers(0, 50),
    st.sets(st.tuples(st.integers(0, 3), st.integers(0, 3))),
    st.integers(1, 20),
    st.sampled_from(JOINT),
)
def test_excluded_tuples_are_left_out_and_leave_no_gap(toy, seed, exclude, width, way):
    model = toy.random_model(seed, 4, 2)
    found = _ask(model, CHAIN, sorted(exclude) or None, count=16, width=width, decode=way)
    rows = list(map(tuple, found.entities.tolist()))
    assert len(set(rows)) == len(rows)
    assert not set(rows) & exclude
    if width >= 4 or way == "product":  # every value of the first target survives the first step
        assert len(rows) == 16 - len(exclude)


@pytest.mark.parametrize("way", JOINT)
def test_injective_tuples_have_different_entities(toy, way):
    model = toy.random_model(6, 4, 2)
    free = _ask(model, THREE, count=64, width=64, decode=way)
    strict = _ask(model, THREE, count=64, width=64, decode=way, injective=True)
    assert len(strict.entities) == 4 * 3 * 2
    assert len(free.entities) == 64
    assert all(len(set(row)) == 3 for row in strict.entities.tolist())
    scores = {tuple(row): score for row, score in zip(free.entities.tolist(), free.scores, strict=True)}
    np.testing.assert_allclose(strict.scores, [scores[tuple(row)] for row in strict.entities.tolist()], rtol=1e-5)


def test_one_target_is_its_distribution(toy):
    model = toy.random_model(1, 5, 1)
    query = BoundQuery((3, TARGET), ((0, 0, 1),), (1,))
    truth = model.every_tuple(query)
    for way in JOINT:
        found = _ask(model, query, count=5, decode=way)
        assert [tuple(row) for row in found.entities.tolist()] == sorted(truth, key=truth.__getitem__, reverse=True)
    assert model.calls == len(JOINT)


def test_one_model_call_a_step(toy):
    model = toy.random_model(1, 4, 2)
    _ask(model, THREE, count=10, width=10)
    assert model.calls == 3


def test_scores_that_do_not_fit_go_in_several_calls_with_the_same_result(toy, monkeypatch):
    for way in JOINT:
        whole = _ask(toy.random_model(4, 4, 2), THREE, count=64, width=20, decode=way)
        with monkeypatch.context() as patch:
            patch.setattr("biqe.predict.predictor.SCORES_AT_ONCE", 10)
            model = toy.random_model(4, 4, 2)
            pieces = _ask(model, THREE, count=64, width=20, decode=way)
        assert model.calls > 6 or way == "product"
        np.testing.assert_array_equal(whole.entities, pieces.entities)
        np.testing.assert_allclose(whole.scores, pieces.scores)


@given(st.integers(0, 100), st.integers(1, 12), st.integers(1, 6))
def test_members_that_cannot_win_are_not_asked_and_nothing_is_lost(toy, seed, count, head):
    # Without inverses the order of the columns is given, so only who is asked can differ.
    everyone, few = toy.random_model(seed, 6, 2), toy.random_model(seed, 6, 2)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("biqe.predict.joint.LAST_HEAD", 1000)
        whole = _ask(everyone, CHAIN, count=count, width=6)
        patch.setattr("biqe.predict.joint.LAST_HEAD", head)
        pruned = _ask(few, CHAIN, count=count, width=6)
    np.testing.assert_array_equal(whole.entities, pruned.entities)
    np.testing.assert_allclose(whole.scores, pruned.scores)


def test_a_sure_head_saves_a_call(toy, monkeypatch):
    weights = np.full((2, 6, 6), 1e-6)
    weights[0, 0, 3] = weights[1, 3, 4] = 1.0
    model = toy.FactorModel(weights)
    monkeypatch.setattr("biqe.predict.joint.LAST_HEAD", 1)
    assert _ask(model, CHAIN, count=1).entities.tolist() == [[3, 4]]
    assert model.calls == 2
    _ask(model, CHAIN, count=30)
    assert model.calls == 2 + 3


@pytest.mark.parametrize("way", JOINT)
def test_entities_without_probability_are_in_no_tuple(toy, way):
    predictor = Predictor(toy.random_model(2, 5, 2)).restricted({"y": np.arange(5) < 2})
    marginals = predictor.log_probabilities([predictor.prepare(CHAIN)])
    found = decode(predictor, CHAIN, CHAIN, marginals, NONE, count=25, joint=Joint(way, width=25))
    assert sorted(map(tuple, found.entities.tolist())) == [(x, y) for x in range(5) for y in range(2)]
    assert np.isfinite(found.scores).all()
    marginals[:] = -np.inf
    assert len(decode(predictor, CHAIN, CHAIN, marginals, NONE, count=25, joint=Joint(way)).entities) == 0


def test_rows_come_in_select_order_whatever_the_order_of_nodes(toy):
    model = toy.random_model(2, 4, 2)
    turned = BoundQuery(CHAIN.nodes, CHAIN.edges, CHAIN.targets[::-1])
    for way in JOINT:
        there = _ask(model, CHAIN, count=16, width=16, decode=way)
        back = _ask(model, turned, count=16, width=16, decode=way)
        np.testing.assert_array_equal(there.entities, back.entities[:, ::-1])


def test_without_inverses_sources_are_filled_first(toy):
    # The tail is certain and its source is not; a model that knows constants at sources only must start there.
    weights = np.full((2, 3, 3), 1.0)
    weights[1, :, 2] = 1000.0
    asked = []

    class Recorder(toy.FactorModel):
        def encoder(self, queries):
            asked.extend(queries)
            return queries

    _ask(Recorder(weights), CHAIN, count=3)
    assert len(asked) == 4
    assert all(query.edges == ((0, 1, 1),) and query.nodes[1] == TARGET for query in asked[1:])


def test_a_model_that_reads_no_filled_targets_is_asked_for_the_rest(toy):
    class Sources(toy.FactorModel):
        def supports(self, query, *, strict=True):
            ends = [query.nodes[object_] for _, _, object_ in query.edges]
            return Support(all(value < 0 for value in ends), "constants at sources only")

    weights = toy.random_model(3, 4, 2).weights
    model = Sources(weights)
    truth = model.every_tuple(CHAIN)
    found = _ask(model, CHAIN, count=16, width=16)
    np.testing.assert_allclose(np.exp(found.scores), [truth[tuple(row)] for row in found.entities.tolist()], rtol=1e-4)


def test_parts_drop_patterns_between_constants_and_fall_apart():
    # a -> x -> y and a <- w: with x filled, w hangs on a and y on x.
    query = BoundQuery((7, TARGET, TARGET, TARGET), ((0, 0, 1), (1, 1, 2), (3, 0, 0)), (1, 2, 3), ("", "x", "y", "w"))
    first, second = open_parts(query, {1: 5})
    assert (first.query.nodes, first.query.edges, first.columns) == ((5, TARGET), ((0, 1, 1),), (1,))
    assert (second.query.nodes, second.query.edges, second.columns) == ((7, TARGET), ((1, 0, 0),), (2,))
    assert first.places == (1, 2)
    assert first.query.names == ("x", "y")


def test_targets_that_a_model_cannot_tell_apart_are_asked_one_at_a_time(toy):
    # b and c both hang on a; with a filled the model takes only one of them.
    weights = toy.random_model(3, 3, 2).weights
    query = BoundQuery((2, TARGET, TARGET, TARGET), ((0, 0, 1), (1, 1, 2), (1, 0, 3)), (1, 2, 3))
    model = toy.FactorModel(weights)
    model.supports = lambda query, strict=True: Support(len(query.targets) in (1, 3), "not two at once")
    truth = model.every_tuple(query)
    found = _ask(model, query, count=27, width=27)
    np.testing.assert_allclose(np.exp(found.scores), [truth[tuple(row)] for row in found.entities.tolist()], rtol=1e-4)


def test_a_refusal_carries_the_models_reason_and_a_way_out(toy):
    model = toy.random_model(0, 3, 2, refuses="it has a cycle")
    with pytest.raises(UnsupportedQuery, match="it has a cycle") as caught:
        _ask(model, CHAIN, count=1)
    assert "known" in caught.value.hint


@pytest.mark.parametrize(("option", "value"), [("decode", "best"), ("decode", "blended"), ("width", 0)])
def test_options_are_checked(option, value):
    with pytest.raises(InvalidOption, match=str(value)):
        Joint(**{option: value})


def test_link_probabilities_are_the_objects_share(toy):
    model = toy.random_model(5, 4, 2)
    links = [(0, 1, 2), (3, 0, 0), (0, 1, 3), (0, 1, 2)]
    found = Predictor(model).link_probabilities(links)
    expected = [model.weights[r, s, o] / model.weights[r, s].sum() for s, r, o in links]
    np.testing.assert_allclose(found, expected, rtol=1e-5)
    assert model.calls == 1
    assert Predictor(model).link_probabilities([]) == []


class LinkedModel:
    """A factor model that ranks tuples by itself: its marginals times the weights of the links between variables."""

    def __init__(self, inner):
        self.inner, self.asked = inner, []

    def __getattr__(self, name):
        return getattr(self.inner, name)

    def truth(self, query, marginals):
        """{tuple in the order of nodes: score}"""
        nodes = sorted(query.targets)
        found = {}
        for values in pairs(range(self.inner.entity_count), repeat=len(nodes)):
            at = dict(zip(nodes, values, strict=True))
            score = sum(float(marginals[place, value]) for place, value in enumerate(values))
            for s, r, o in query.edges:
                if s in at and o in at:
                    score += float(np.log(self.inner.weights[r, at[s], at[o]]))
            found[values] = score
        return found

    def tuples(self, queries, count, marginals=None, width=None):
        (query,) = queries
        self.asked.append(count)
        truth = self.truth(query, marginals.numpy())
        best = [row for row in sorted(truth, key=lambda row: -truth[row]) if np.isfinite(truth[row])][:count]
        return [Tuples(np.array(best, np.int32).reshape(-1, len(query.targets)), np.array([truth[r] for r in best]))]


@pytest.mark.parametrize("query", [CHAIN, STAR, THREE])
def test_linked_rows_are_the_models_own_without_those_left_out(toy, query):
    model = LinkedModel(toy.random_model(5, 4, 2))
    predictor, marginals = _marginals(model, query)
    order = selected_rows([query])
    truth = model.truth(query, marginals[np.argsort(order)])
    in_select_order = {tuple(row[place] for place in order): score for row, score in truth.items()}
    best = sorted(in_select_order, key=lambda row: -in_select_order[row])
    found = _ask(model, query, best[:3], count=6, decode="links")
    assert [tuple(row) for row in found.entities.tolist()] == best[3:9]
    shares = np.array([in_select_order[row] for row in best[3:9]]) - np.logaddexp.reduce(list(truth.values()))
    np.testing.assert_allclose(found.scores, shares, rtol=1e-5)


def test_linked_asks_for_more_where_most_are_known(toy, monkeypatch):
    monkeypatch.setattr("biqe.predict.joint.LISTED", 8)
    model = LinkedModel(toy.random_model(5, 5, 2))
    truth = model.truth(CHAIN, _marginals(model, CHAIN)[1])
    *known, last = sorted(truth, key=lambda row: -truth[row])
    found = _ask(model, CHAIN, known, count=1, decode="links")
    assert found.entities.tolist() == [list(last)] and found.scores[0] <= 0
    assert model.asked == [8, 64]
    nothing = _ask(model, CHAIN, [*known, last], count=1, decode="links")
    assert len(nothing.entities) == 0


def test_linked_keeps_to_conditions_and_to_different_entities(toy):
    model = LinkedModel(toy.random_model(5, 5, 2))
    predictor = Predictor(model).restricted({"y": np.array([True, True, False, False, True])})
    marginals = predictor.log_probabilities([CHAIN])
    found = decode(predictor, CHAIN, CHAIN, marginals, NONE, count=25, joint=Joint("links", injective=True))
    rows = [tuple(row) for row in found.entities.tolist()]
    assert sorted(rows) == [(a, b) for a in range(5) for b in (0, 1, 4) if a != b]


def test_a_model_without_links_of_its_own_gets_the_beam(toy):
    model = toy.random_model(5, 5, 2)
    beamed, found = (_ask(model, CHAIN, count=9, decode=way) for way in ("beam", "links"))
    np.testing.assert_array_equal(found.entities, beamed.entities)
    np.testing.assert_array_equal(found.scores, beamed.scores)


def test_models_with_links_find_rows_by_them_unless_told_otherwise(toy):
    """What a user gets who says nothing: links where the model has some, the beam where not."""
    plain = toy.random_model(5, 4, 2)
    with_links = LinkedModel(plain)
    assert Predictor(plain).joint == "beam" and Predictor(with_links).joint == "links"
    assert AskConfig().joint_of(Predictor(with_links).joint).decode == "links"
    assert AskConfig(joint="product").joint_of(Predictor(with_links).joint).decode == "product"


def test_a_share_does_not_depend_on_how_many_rows_are_wanted(toy, monkeypatch):
    monkeypatch.setattr("biqe.predict.joint.LISTED", 8)
    model = LinkedModel(toy.random_model(5, 5, 2))
    few, many = (_ask(model, CHAIN, count=count, decode="links") for count in (2, 20))
    np.testing.assert_allclose(few.scores, many.scores[:2])
    assert np.exp(many.scores[:8]).sum() == pytest.approx(1.0)


@pytest.mark.parametrize("mixer", [row_type.MIXER, np.uint64(1 << 60)], ids=["keys differ", "keys collide"])
@given(data=st.data(), targets=st.integers(0, 4))
def test_listed_tuples_are_found_whatever_their_keys(mixer, data, targets):
    rows = st.lists(st.tuples(*[st.integers(0, 3)] * targets), max_size=12)
    stored, asked = data.draw(rows), data.draw(rows)
    as_array = [np.array(part, np.int32).reshape(len(part), targets) for part in (stored, asked)]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(row_type, "MIXER", mixer)
        assert Listed(as_array[0]).holds(as_array[1]).tolist() == [row in stored for row in asked]
