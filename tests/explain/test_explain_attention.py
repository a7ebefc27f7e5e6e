"""Attention by parts of the question: shares that sum to 1, from the model's own tensors."""

from __future__ import annotations

from functools import partial

import numpy as np
import pytest
import torch

from biqe.explain import VIEWS, explain
from biqe.models.biqe import BiQE, Config
from biqe.query.bound import HIDDEN, TARGET, BoundQuery, QuerySet
from biqe.query.dag import orient
from biqe.query.tokens import tokens

explain = partial(explain, views=VIEWS)


@pytest.fixture(scope="module")
def model() -> BiQE:
    torch.manual_seed(3)
    return BiQE(Config(width=16, layers=2, heads=4, feed_forward=16), 7, 2).eval()


# Two ways to the tail, so that tokens repeat: Germany and France to a river, from there to a city.
QUERY = BoundQuery((TARGET, TARGET, 5, 6), ((0, 1, 1), (1, 0, 2), (1, 0, 3)), (0, 1), ("city", "river", "", ""))


def attention(model, world, query, row):
    return explain(model, world.graph, query, row, world.vocabulary, views=["attention"]).attention


def test_shares_sum_to_one_in_every_layer(model, rivers):
    found = attention(model, rivers, QUERY, {0: 3, 1: 0})
    assert found.nodes == (0, 1, 2, 3)
    assert found.patterns == (0, 1, 2)
    assert (found.heads, len(found.by_layer)) == (4, 2)
    for table in (*found.by_layer, found.mean, found.last):
        assert np.sum(table, axis=1) == pytest.approx(np.ones(2), abs=1e-6)
        assert np.shape(table) == (2, 7)
    assert np.array(found.mean) == pytest.approx(np.mean(found.by_layer, axis=0))
    assert found.last == found.by_layer[-1]


def test_shares_are_those_of_the_models_tensors(model, rivers):
    found = attention(model, rivers, QUERY, {0: 3, 1: 0})
    read = orient(QUERY, 2)
    with torch.no_grad():
        layers = model.trace(model.encoder(QuerySet.of([read]))).attention
    elements = tokens(read).elements
    for layer, table in zip(layers, found.by_layer, strict=True):
        weights = layer[0].mean(0).numpy()  # (T, T)
        for row, target in enumerate(found.targets):
            masks = [place for place, element in enumerate(elements) if element == target]
            for column, part in enumerate([*found.nodes, *(4 + number for number in found.patterns)]):
                columns = [place for place, element in enumerate(elements) if element == part]
                assert table[row][column] == pytest.approx(weights[np.ix_(masks, columns)].sum() / len(masks), abs=1e-6)


def test_unknowns_stand_in_the_order_of_select(model, rivers):
    found = attention(model, rivers, QUERY, {0: 3, 1: 0})
    turned = BoundQuery(QUERY.nodes, QUERY.edges, (1, 0), QUERY.names)
    other = attention(model, rivers, turned, {0: 3, 1: 0})
    assert other.targets == (1, 0)
    assert other.mean == found.mean[::-1]


def test_hidden_variables_are_not_read(model, rivers):
    query = BoundQuery((TARGET, HIDDEN, 5), ((0, 1, 1), (1, 0, 2)), (0,), ("city", "r", ""))
    found = attention(model, rivers, query, {0: 3})
    assert found.nodes == (0, 2)
    assert found.patterns == (0, 1)


def test_a_model_without_attention_says_so(rivers):
    from biqe.models.gqe import GQE
    from biqe.models.gqe import Config as GqeConfig

    torch.manual_seed(0)
    why = explain(GQE(GqeConfig(width=8), 7, 2), rivers.graph, QUERY, {0: 3, 1: 0}, rivers.vocabulary)
    assert why.attention is None
    assert "attention" in why.skipped["attention"]
    assert f"ATTENTION is left out: {why.skipped['attention']}" in " ".join(why.to_text().split())


def test_the_model_is_left_in_training_mode_if_it_was(rivers):
    torch.manual_seed(0)
    model = BiQE(Config(width=16, layers=1, heads=2, feed_forward=16, dropout=0.5), 7, 2).train()
    first, second = (explain(model, rivers.graph, QUERY, {0: 3, 1: 0}, rivers.vocabulary) for _ in range(2))
    assert model.training
    assert first.to_json() == second.to_json()
