"""What rows rest on: against every assignment of the hidden variables, on graphs small enough to try them all."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from biqe.exact.answers import tuples
from biqe.models._contract import Support
from biqe.predict.evidence import EvidenceSearch
from biqe.predict.predictor import Predictor
from biqe.query.bound import HIDDEN, TARGET, BoundQuery, forward

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


triples_ = st.sets(st.tuples(*[st.integers(0, n - 1) for n in (ENTITIES, RELATIONS, ENTITIES)]), max_size=8)


def assignments(graph, query, row, allowed=None):
    """Links of every assignment of the hidden variables, as they are stored."""
    hidden = [node for node, value in enumerate(query.nodes) if value == HIDDEN]
    for values in product(range(graph.entity_count), repeat=len(hidden)):
        if not all(allowed[n][v] for n, v in zip(hidden, values, strict=True) if n in (allowed or {})):
            continue
        nodes = list(query.nodes)
        for node, entity in [*zip(query.targets, row, strict=True), *zip(hidden, values, strict=True)]:
            nodes[node] = entity
        yield [forward((nodes[s], r, nodes[o]), graph.relation_count) for s, r, o in query.edges]


def found_of(graph, query, row, model=None, allowed=None):
    """Evidence of one row, and the probabilities of its missing links."""
    (found,), chances = EvidenceSearch(graph, query, allowed).find([row], model and Predictor(model))
    return found, chances


@settings(max_examples=60)
@given(
    shape=st.sampled_from(sorted(set(SHAPES) - {"loop", "hidden alone"})),  # a search needs a place to start from
    seed=st.integers(0, 10_000),
    triples=triples_,
    values=st.lists(st.integers(0, ENTITIES - 1), min_size=2, max_size=2),
    masks=st.lists(st.sets(st.integers(0, ENTITIES - 1), min_size=1), max_size=2),
)
def test_the_assignment_has_the_largest_product_of_all(toy, shape, seed, triples, values, masks):
    query = SHAPES[shape]
    graph = toy.graph_of(triples, ENTITIES, RELATIONS)
    model = toy.random_model(seed, ENTITIES, RELATIONS)
    row = values[: len(query.targets)]
    hidden = [node for node, value in enumerate(query.nodes) if value == HIDDEN]
    allowed = {n: np.isin(np.arange(ENTITIES), list(mask)) for n, mask in zip(hidden, masks, strict=False)}
    found, chances = found_of(graph, query, row, model, allowed)
    assert all(mask[found.nodes[node]] for node, mask in allowed.items())

    def weight(links):
        return float(np.prod([model.link(*link) for link in links if link not in triples]))

    best = max(map(weight, assignments(graph, query, row, allowed)))
    assert weight([tuple(link) for link in found.links]) == pytest.approx(best, rel=1e-4)
    assert found.is_complete
    # What is said about each link is true of the entities that are named.
    for (s, r, o), link, is_stored in zip(query.edges, found.links, found.stored, strict=True):
        assert link == forward((found.nodes[s], r, found.nodes[o]), RELATIONS)
        assert is_stored == (tuple(link) in triples) == graph.holds(*link)
        assert is_stored or chances[link] == pytest.approx(model.link(*link), rel=1e-4)
    assert [found.nodes[node] for node in query.targets] == row


@settings(max_examples=60)
@given(shape=st.sampled_from(sorted(SHAPES)), triples=triples_, value=st.integers(0, ENTITIES - 1), data=st.data())
def test_without_a_model_as_few_links_as_possible_are_missing(toy, shape, triples, value, data):
    query = SHAPES[shape]
    graph = toy.graph_of(triples, ENTITIES, RELATIONS)
    row = [value, *(data.draw(st.integers(0, ENTITIES - 1)) for _ in query.targets[1:])]
    found, chances = found_of(graph, query, row)
    assert chances == {}
    least = min(sum(link not in triples for link in links) for links in assignments(graph, query, row))
    assert found.stored.count(False) == least


def test_a_variable_that_no_stored_link_reaches_stays_open_without_a_model(toy):
    query = BoundQuery((0, HIDDEN, TARGET), ((0, 0, 1), (1, 1, 2)), (2,), ("", "h", "x"))
    found, _ = found_of(toy.graph_of([], 4, 2), query, [2])
    assert found.missing == ((0, 0, -2), (-2, 1, 2))
    assert found.nodes == (0, -2, 2) and found.held == ()


@settings(max_examples=100, deadline=None)
@given(st.integers(0, 10_000), st.booleans())
def test_on_graphs_too_large_to_try_all_known_rows_are_found_known(toy, seed, with_model):
    """Where the exact engine finds a match, all links are stored, however many hidden variables there are."""
    rng = np.random.default_rng(seed)
    graph = toy.graph_of(np.unique(rng.integers([12, 2, 12], size=(40, 3)), axis=0).tolist(), 12, 2)
    query = list(SHAPES.values())[seed % len(SHAPES)]
    model = toy.random_model(seed, 12, 2) if with_model and len(query.nodes) < 4 else None
    rows = tuples(graph, query, limit=3)
    known, _ = EvidenceSearch(graph, query).find(rows.tolist(), model and Predictor(model))
    assert all(all(found.stored) and found.is_complete for found in known)
    other = rng.integers(12, size=len(query.targets)).tolist()
    found, _ = found_of(graph, query, other, model)
    assert all(found.stored) == (other in tuples(graph, query).tolist())


def test_a_known_row_needs_nothing_of_the_model(toy, rivers):
    query = BoundQuery((TARGET, HIDDEN, 5, 6), ((0, 1, 1), (1, 0, 2), (1, 0, 3)), (0,))
    model = toy.FactorModel(rivers.model.weights)
    found, chances = found_of(rivers.graph, query, [2], model)
    assert (found.stored, found.nodes, chances) == ((True, True, True), (2, 0, 5, 6), {})


def test_a_model_that_cannot_read_single_links_says_nothing(toy, rivers):
    model = toy.FactorModel(rivers.model.weights)
    model.supports = lambda query, strict=True: Support(len(query.edges) > 1, "too small")
    found, chances = found_of(rivers.graph, rivers.query, [0, 3], model)
    assert (found.stored, chances) == ((True, False), {})


def test_any_number_of_objects_is_one_call(toy):
    # 40 rivers flow through e41; which of them x is on, one call tells.
    graph = toy.graph_of([(river, 0, 41) for river in range(40)], 43, 2)
    weights = np.ones((2, 43, 43))
    weights[1, 42, 39] = 50.0
    model = toy.FactorModel(weights)
    query = BoundQuery((TARGET, HIDDEN, 41), ((0, 1, 1), (1, 0, 2)), (0,), ("x", "r", ""))
    found, _ = found_of(graph, query, [42], model)
    assert (found.nodes[1], found.stored, found.is_complete) == (39, (False, True), True)
    assert model.calls == 1


def test_subjects_that_the_model_finds_likely_are_compared(toy):
    # Nothing leads to e9, so ?h is whatever the model finds likely: by both ends of the link, not by one alone.
    graph = toy.graph_of([(0, 0, 1)], 12, 1)
    weights = np.ones((1, 12, 12))
    weights[0, 5, 9] = 30.0
    weights[0, 7, 9], weights[0, 7, 2] = 40.0, 4000.0
    query = BoundQuery((TARGET, HIDDEN), ((1, 0, 0),), (0,))
    found, chances = found_of(graph, query, [9], toy.FactorModel(weights))
    assert found.missing == ((5, 0, 9),) and found.is_complete
    assert chances[found.missing[0]] == pytest.approx(30 / 41)


def test_a_triple_that_several_patterns_need_is_missing_once(toy):
    graph = toy.graph_of([], 3, 1)
    query = BoundQuery((TARGET,) * 3, ((0, 0, 1), (1, 0, 2), (2, 0, 0)), (0, 1, 2), ("a", "b", "c"))
    assert found_of(graph, query, [1, 1, 1])[0].missing == ((1, 0, 1),)
    assert found_of(graph, query, [1, 1, 2])[0].missing == ((1, 0, 1), (1, 0, 2), (2, 0, 1))


def test_inverse_relations_are_shown_as_the_graph_stores_them(toy):
    query = BoundQuery((0, TARGET), ((0, 0 + 2, 1),), (1,), ("", "x"))
    (known, other), _ = EvidenceSearch(toy.graph_of([(1, 0, 0)], 3, 2), query).find([[1], [2]])
    assert known.held == ((1, 0, 0),) and other.missing == ((2, 0, 0),)


def test_many_hidden_patterns_are_not_searched_for_ever(toy, monkeypatch):
    monkeypatch.setattr("biqe.predict.evidence.SEARCH", 5)
    # A star of patterns around two hidden variables, of which no two hold together.
    size = 7
    graph = toy.graph_of([(leaf, 0, leaf + size) for leaf in range(size)], 2 * size, 1)
    nodes = (*range(size), HIDDEN, HIDDEN, TARGET)
    edges = (*((leaf, 0, size) for leaf in range(size)), (size, 0, size + 1), (size + 1, 0, size + 2))
    found, _ = found_of(graph, BoundQuery(nodes, edges, (size + 2,)), [size])
    assert 1 <= len(found.held) <= 2
    assert not found.is_complete


@settings(max_examples=50, deadline=None)
@given(st.integers(0, 10_000))
def test_what_was_found_before_is_what_would_be_found_anew(toy, seed):
    """One search for many rows remembers neighbours, matches and groups; it must not mix them up."""
    rng = np.random.default_rng(seed)
    graph = toy.graph_of(np.unique(rng.integers([4, 2, 4], size=(5, 3)), axis=0).tolist(), 4, 2)
    edges = ((0, 0, 2), (2, 0, 3), (3, int(rng.integers(4)), 1), (2, int(rng.integers(4)), 1))
    query = BoundQuery((int(rng.integers(4)), TARGET, HIDDEN, HIDDEN), edges, (1,))
    model = toy.random_model(seed, 4, 2)
    rows = [[target] for target in range(4)]
    for predictor in (None, Predictor(model)):
        search = EvidenceSearch(graph, query)
        together, _ = search.find(rows, predictor)
        again = [search.find([row], predictor)[0][0] for row in rows[::-1]][::-1]
        assert together == again == [EvidenceSearch(graph, query).find([row], predictor)[0][0] for row in rows]
