"""TractOR: the closed form is the sum over all possible worlds, and its losses are what they say."""

from __future__ import annotations

import itertools
from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from biqe.errors import InvalidOption, UnsupportedQuery
from biqe.graph.vocabulary import Vocabulary
from biqe.models import store
from biqe.models._contract import TRAINING
from biqe.models.tractor import Config, TractOR
from biqe.query.bound import HIDDEN, TARGET, AnswerSets, BoundQuery, QuerySet

ENTITIES, RELATIONS = 3, 2
TRIPLE = BoundQuery((1, TARGET), ((0, 1, 1),), (1,))
PATH = BoundQuery((0, HIDDEN, TARGET), ((0, 0, 1), (1, 1, 2)), (2,))
CONSTANTS = [TARGET, HIDDEN, *range(ENTITIES)]


def make(entities=ENTITIES, relations=RELATIONS, seed=0, **options):
    torch.manual_seed(seed)
    model = TractOR(Config(**{"components": 2, **options}), entities, relations).double().eval()
    with torch.no_grad():
        model.weights.normal_()
    return model


def scores(model, queries):
    with torch.inference_mode():
        return model.scores(model.encoder(QuerySet.of(list(queries))))


def events(model):
    """(K, E), (K, E), (K, R) and (K,): probabilities of S, O and T, and the weights."""
    with torch.no_grad():
        s, o = (torch.sigmoid(16.0 * table - 2.0) for table in (model.as_subject, model.as_object))
        t = torch.sigmoid(16.0 * model.of_relation)
        return s.t().numpy(), o.t().numpy(), t.t().numpy(), torch.softmax(model.weights, 0).numpy()


def groundings(query, target, candidate):
    """All ways to fill the variables of ``query``, with ``candidate`` at node ``target``, as edges between entities."""
    free = [node for node, value in enumerate(query.nodes) if value < 0 and node != target]
    for values in itertools.product(range(ENTITIES), repeat=len(free)):
        filled = {**dict(enumerate(query.nodes)), target: candidate, **dict(zip(free, values, strict=True))}
        yield [
            (filled[s], r, filled[o]) if r < RELATIONS else (filled[o], r - RELATIONS, filled[s])
            for s, r, o in query.edges
        ]


def by_enumeration(model, query):
    """(V, E) probability that the query holds of each entity: the sum over components and all of their worlds."""
    s, o, t, w = events(model)
    worlds = np.array(list(itertools.product([False, True], repeat=2 * ENTITIES + RELATIONS)))
    S, O, T = np.split(worlds, [ENTITIES, 2 * ENTITIES], 1)  # noqa: E741
    weight = np.zeros(len(worlds))
    for k in range(len(w)):
        p = np.concatenate([s[k], o[k], t[k]])
        weight += w[k] * np.where(worlds, p, 1.0 - p).prod(1)
    answer = np.zeros((len(query.targets), ENTITIES))
    for row, target in enumerate(query.targets):
        for candidate in range(ENTITIES):
            holds = np.zeros(len(worlds), bool)
            for facts in groundings(query, target, candidate):
                holds |= np.all([S[:, x] & T[:, r] & O[:, y] for x, r, y in facts], 0)
            answer[row, candidate] = weight[holds].sum()
    return answer


@st.composite
def connected_queries(draw):
    """Any connected query of up to five nodes with a target, loops and cycles among them."""
    count = draw(st.integers(2, 5))
    nodes = [TARGET, *(draw(st.sampled_from(CONSTANTS)) for _ in range(count - 1))]
    pairs = [draw(st.permutations([draw(st.integers(0, node - 1)), node])) for node in range(1, count)]
    pairs += draw(st.lists(st.tuples(st.integers(0, count - 1), st.integers(0, count - 1)), max_size=1))
    edges = tuple((s, draw(st.integers(0, 2 * RELATIONS - 1)), o) for s, o in pairs)
    return BoundQuery(tuple(nodes), edges, tuple(n for n, value in enumerate(nodes) if value == TARGET))


# The closed form


@pytest.mark.parametrize("tied", [False, True])
def test_facts_are_the_mixture_of_products(tied):
    model = make(tied=tied)
    s, o, t, w = events(model)
    expected = np.log(np.einsum("k,k,k,ke->e", w, s[:, 1], t[:, 1], o))
    np.testing.assert_allclose(scores(model, [TRIPLE])[0], expected)
    if tied:
        backwards = BoundQuery((1, TARGET), ((1, 1, 0),), (1,))
        torch.testing.assert_close(scores(model, [backwards]), scores(model, [TRIPLE]))


NAMED = {
    "2p": PATH,
    "3p": BoundQuery((0, HIDDEN, HIDDEN, TARGET), ((0, 0, 1), (1, 1, 2), (2, 0, 3)), (3,)),
    "2i": BoundQuery((0, 1, TARGET), ((0, 0, 2), (1, 1, 2)), (2,)),
    "pi": BoundQuery((0, HIDDEN, 1, TARGET), ((0, 0, 1), (1, 1, 3), (2, 1, 3)), (3,)),
    "ip": BoundQuery((0, 1, HIDDEN, TARGET), ((0, 0, 2), (1, 0, 2), (2, 1, 3)), (3,)),
    "two targets": BoundQuery((0, TARGET, TARGET), ((0, 0, 1), (1, 1, 2)), (1, 2)),
    "siblings: the constant is its own": BoundQuery((0, HIDDEN, TARGET), ((0, 1, 1), (2, 1, 1)), (2,)),
    "a hidden end, no constant": BoundQuery((HIDDEN, TARGET), ((1, 0, 0),), (1,)),
    "cycle": BoundQuery((HIDDEN, TARGET), ((0, 0, 1), (1, 1, 0)), (1,)),
}


@pytest.mark.parametrize("query", NAMED.values(), ids=NAMED.keys())
@pytest.mark.parametrize("tied", [False, True])
def test_the_closed_form_is_the_sum_over_worlds(query, tied):
    model = make(tied=tied)
    np.testing.assert_allclose(scores(model, [query]).exp(), by_enumeration(model, query), rtol=1e-9)


@settings(max_examples=40, deadline=None)
@given(connected_queries(), st.integers(0, 5))
def test_the_closed_form_is_the_sum_over_worlds_for_any_query(query, seed):
    model = make(seed=seed)
    np.testing.assert_allclose(scores(model, [query]).exp(), by_enumeration(model, query), rtol=1e-9)


@settings(max_examples=15, deadline=None)
@given(st.lists(connected_queries(), min_size=1, max_size=4))
def test_a_batch_is_its_queries_one_by_one(queries):
    model = make()
    torch.testing.assert_close(scores(model, queries), torch.cat([scores(model, [query]) for query in queries]))


def test_rare_events_lose_no_digits_in_single_precision():
    """Where hardly any value exists, 1 - (1 - p) would be rounding noise; the sum is arranged without it."""
    model = make()
    with torch.no_grad():
        model.as_subject.sub_(0.4)
        model.as_object.sub_(0.4)
    exact = scores(model, [PATH])
    torch.testing.assert_close(scores(model.float(), [PATH]).double(), exact, rtol=1e-4, atol=1e-4)


def test_certain_events_stay_finite():
    model = make().float()
    with torch.no_grad():
        model.as_subject.fill_(50.0)
        model.as_object.fill_(50.0)
    queries = with_gold([PATH, NAMED["ip"]])
    model.loss(model.encoder(queries)).backward()
    assert torch.isfinite(scores(model, [PATH, NAMED["ip"]])).all()
    assert all(torch.isfinite(parameter.grad).all() for parameter in model.parameters())


@pytest.mark.parametrize("loss", ["softmax", "likelihood"])
def test_a_component_that_no_entity_has_a_part_in_stays_finite(loss):
    """Its expected number of entities is 0 in single precision, and the logarithm of that has no gradient."""
    model = make(loss=loss).float()
    with torch.no_grad():
        model.as_subject[:, 0] = model.as_object[:, 0] = -20.0
    for queries in ([TRIPLE, PATH], [TRIPLE]):  # a triple alone has a sum of its own
        found = model.loss(model.encoder(with_gold(queries)))
        found.backward()
        assert torch.isfinite(found)
        assert all(torch.isfinite(parameter.grad).all() for parameter in model.parameters())


# Losses


def with_gold(queries, answers=None):
    table = QuerySet.of(list(queries))
    gold = np.where(table.nodes == TARGET, np.arange(len(table.nodes)) % ENTITIES, table.nodes)
    table = replace(table, gold=gold.astype(np.int32))
    if answers is None:
        return table
    offsets = np.cumsum([0, *map(len, answers)])
    return table.with_filters(**{TRAINING: AnswerSets(offsets, np.concatenate(answers).astype(np.int32))})


TRIPLES = [TRIPLE, BoundQuery((2, TARGET), ((0, 3, 1),), (1,)), BoundQuery((0, TARGET), ((0, 2, 1), (1, 1, 0)), (1,))]


@pytest.mark.parametrize("queries", [TRIPLES[:2], TRIPLES, [PATH, NAMED["pi"], NAMED["two targets"]]])
def test_the_softmax_loss_is_cross_entropy_of_the_scores(queries):
    model = make()
    batch = model.encoder(with_gold(queries))
    expected = torch.nn.functional.cross_entropy(model.scores(batch), batch.targets.gold)
    torch.testing.assert_close(model.loss(batch), expected)
    grads = torch.autograd.grad(model.loss(batch), list(model.parameters()))
    torch.testing.assert_close(grads, torch.autograd.grad(expected, list(model.parameters())))


@pytest.mark.parametrize("queries", [TRIPLES[:2], [TRIPLE, PATH]])
@pytest.mark.parametrize("filter_negatives", [False, True])
def test_the_likelihood_is_that_of_all_facts_where_all_are_drawn(queries, filter_negatives):
    model = make(loss="likelihood", negatives=ENTITIES, filter_negatives=filter_negatives)
    batch = model.encoder(with_gold(queries))
    p = model.scores(batch).exp()
    expected = 0.0
    for row, gold in enumerate(batch.targets.gold.tolist()):
        expected -= p[row, gold].log()
        for e in range(ENTITIES):
            expected -= 0.0 if filter_negatives and e == gold else (1.0 - p[row, e]).log()
    torch.testing.assert_close(model.loss(batch), expected / len(p))


def test_the_likelihood_is_the_mean_over_what_may_be_sampled():
    model, full = make(loss="likelihood", negatives=1), make(loss="likelihood", negatives=ENTITIES)
    batch = model.encoder(with_gold([TRIPLE, PATH]))
    torch.manual_seed(0)
    with torch.inference_mode():
        drawn = {round(float(model.loss(batch)), 9) for _ in range(60)}
        assert len(drawn) == ENTITIES
        assert sum(drawn) / ENTITIES == pytest.approx(float(full.loss(batch)))


def test_positives_are_drawn_from_all_answers():
    model = make()
    batch = model.encoder(with_gold([TRIPLE], [[0, 2]]))
    logs = torch.log_softmax(model.scores(batch), 1)[0]
    torch.manual_seed(0)
    with torch.inference_mode():
        drawn = {round(float(-model.loss(batch)), 9) for _ in range(20)}
        assert drawn == {round(float(logs[0]), 9), round(float(logs[2]), 9)}


# Keeping and refusing


def test_tied_weights_are_saved_and_loaded(tmp_path):
    model = TractOR(Config(components=2, tied=True), ENTITIES, RELATIONS).eval()
    vocabulary = Vocabulary([f"e{i}" for i in range(ENTITIES)], ["a", "b"])
    store.save(model, tmp_path, vocabulary=vocabulary, graph_fingerprint="g")
    assert torch.equal(scores(store.load(tmp_path).model, [PATH]), scores(model, [PATH]))


def test_says_what_it_supports():
    model = make()
    assert model.supports(NAMED["cycle"]) and model.supports(NAMED["two targets"])
    apart = BoundQuery((0, TARGET, 1, HIDDEN), ((0, 1, 1), (2, 1, 3)), (1,))
    assert "separate parts" in model.supports(apart).reason
    alone = BoundQuery((TARGET,), (), (0,))
    assert "states none" in model.supports(alone).reason
    with pytest.raises(UnsupportedQuery, match="no pattern"):
        model.encode(QuerySet.of([alone]))


@pytest.mark.parametrize(("option", "value"), [("components", 0), ("negatives", 0), ("loss", "margin")])
def test_options_are_checked(option, value):
    with pytest.raises(InvalidOption, match=option):
        Config(**{option: value})
