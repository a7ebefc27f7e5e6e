"""Models that answer over a graph that has grown since they were trained."""

from __future__ import annotations

import pytest
import torch

from biqe.errors import UnsupportedQuery
from biqe.models._contract import FindsTuples, HasAttention, SolvesOtherwise, UsesGraph, use_graph
from biqe.models._extended_vocabulary import ExtendedModel, over_graph
from biqe.query.bound import TARGET, BoundQuery
from biqe.query.queryset import QuerySet

from .grown_graphs import GROWN, MODELS, OLD, asked, build, graph_over


@pytest.mark.parametrize("name", MODELS)
def test_a_model_in_front_of_a_grown_graph_scores_as_before(name):
    old = build(name, OLD)
    use_graph(old, graph_over(OLD))
    model = over_graph(old, graph_over(GROWN))
    assert (model.entity_count, model.relation_count) == (14, 4)
    with torch.inference_mode():
        before = old.scores(old.encoder(asked(OLD)))
        after = model.scores(model.encoder(asked(GROWN)))
    torch.testing.assert_close(after[:, :12], before, atol=1e-5, rtol=1e-5)
    assert (after[:, 12:] == -torch.inf).all()


@pytest.mark.parametrize("name", MODELS)
def test_what_is_newer_than_a_model_is_refused_and_never_reaches_it(name):
    model = over_graph(build(name, OLD), graph_over(GROWN))
    for nodes, relation in (((12, TARGET), 0), ((0, TARGET), 3), ((0, TARGET), 7)):
        query = BoundQuery(nodes, ((0, relation, 1),), (1,))
        support = model.supports(query)
        assert not support.yes and "newer than the model" in support.reason and "--continue" in support.hint
        with pytest.raises(UnsupportedQuery):
            model.encode(QuerySet.of([query]))
    assert model.supports(BoundQuery((0, TARGET), ((0, 4 + 2, 1),), (1,))).yes == old_supports(name)


def old_supports(name: str) -> bool:
    return build(name, OLD).supports(BoundQuery((0, TARGET), ((0, 3 + 2, 1),), (1,))).yes


def test_a_graph_of_the_same_size_needs_nothing_in_front():
    model = build("biqe", OLD)
    assert over_graph(model, graph_over(OLD)) is model
    assert isinstance(over_graph(model, graph_over(GROWN)), ExtendedModel)


@pytest.mark.parametrize("name", MODELS)
def test_it_has_the_optional_abilities_of_the_model_and_no_others(name):
    old = build(name, OLD)
    model = over_graph(old, graph_over(GROWN))
    for protocol in (FindsTuples, HasAttention, SolvesOtherwise, UsesGraph):
        assert isinstance(model, protocol) == isinstance(old, protocol)
    if isinstance(model, SolvesOtherwise):
        other = model.solving(known="off")
        assert other.config.known == "off" and other.entity_count == 14 and isinstance(other, UsesGraph)
