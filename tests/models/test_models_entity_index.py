"""The best entities by blocks and by an approximate index, against the whole row of logits."""

from __future__ import annotations

import sys

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from biqe.errors import InvalidOption
from biqe.models import _catalogue, _entity_index
from biqe.models._entity_index import EntityIndex, best_entities
from biqe.query.queryset import QuerySet

from .conftest import ENTITIES, QUERIES


@settings(max_examples=40)
@given(st.integers(1, 50), st.integers(1, 5), st.integers(1, 60), st.integers(0, 99), st.integers(1, 2000))
def test_blocks_find_what_the_whole_row_has(entities, targets, count, seed, block):
    torch.manual_seed(seed)
    hidden, weight = torch.randn(targets, 4), torch.randint(-1, 2, (entities, 4)).float()  # many are equal
    bias = torch.randint(0, 2, (entities,)).float()
    before, _entity_index.BLOCK_BYTES = _entity_index.BLOCK_BYTES, block
    try:
        found = best_entities(hidden, weight, bias, count)
    finally:
        _entity_index.BLOCK_BYTES = before
    logits = hidden @ weight.T + bias
    expected = logits.sort(dim=1, descending=True)
    torch.testing.assert_close(found.logits, expected.values[:, :count])
    torch.testing.assert_close(found.log_sum, logits.logsumexp(1))
    torch.testing.assert_close(logits.gather(1, found.entities), found.logits)
    assert all(len(set(row)) == len(row) for row in found.entities.tolist())


def test_probabilities_are_those_of_the_model(make_model):
    model = make_model()
    batch = model.encoder(QuerySet.of(QUERIES))
    with torch.inference_mode():
        found = best_entities(model.at_targets(batch), model.entity_weight, model.entity_bias, 5)
        scores = model.scores(batch)
    torch.testing.assert_close(found.logits - found.log_sum[:, None], scores.topk(5, 1).values, rtol=1e-4, atol=1e-5)


@pytest.fixture(scope="module")
def clustered():
    """Entities in clusters, biases, and hidden states to search for."""
    pytest.importorskip("faiss")
    torch.manual_seed(0)
    centres = torch.randn(20, 8)
    weight = centres[torch.randint(20, (3000,))] + 0.2 * torch.randn(3000, 8)
    return weight, 0.3 * torch.randn(3000), torch.randn(64, 8)


def test_looking_into_every_list_is_exact(clustered):
    weight, bias, hidden = clustered
    index = EntityIndex(weight, bias, lists=30)
    index.probes = 30
    ids, logits = index.search(hidden, 10)
    exact = best_entities(hidden, weight, bias, 10)
    torch.testing.assert_close(logits, exact.logits, rtol=1e-4, atol=1e-4)
    assert index.recall(hidden, 10) > 0.999
    torch.testing.assert_close((hidden @ weight.T + bias).gather(1, ids), logits, rtol=1e-4, atol=1e-4)


def test_tuning_reaches_the_recall_asked_for_with_fewer_lists(clustered):
    weight, bias, hidden = clustered
    index = EntityIndex(weight, bias)
    few = index.tune(hidden, count=10, recall=0.5), index.probes
    many = index.tune(hidden, count=10, recall=0.99), index.probes
    assert few[0] >= 0.5 and many[0] >= 0.99 and few[1] <= many[1] < index.lists
    assert index.recall(hidden, 10) == many[0], "what it says is what it does"


def test_fewer_entities_than_asked_for(make_model):
    pytest.importorskip("faiss")
    model = make_model()
    index = EntityIndex.of(model)
    index.probes = 1
    with torch.inference_mode():
        ids, logits = index.search(model.at_targets(model.encoder(QuerySet.of(QUERIES))), 100)
    assert ids.shape[1] == ENTITIES and ((ids >= 0) == torch.isfinite(logits)).all()


def test_refusals(clustered):
    weight, bias, hidden = clustered
    with pytest.raises(InvalidOption, match="lists"):
        EntityIndex(weight, bias, lists=3001)
    with pytest.raises(InvalidOption, match="recall"):
        EntityIndex(weight, bias, lists=3).tune(hidden, recall=1.5)
    with pytest.raises(InvalidOption, match="gqe does not score"):
        EntityIndex.of(_catalogue.build("gqe", {"width": 8}, 10, 2))


def test_without_faiss_it_says_what_to_install(make_model, monkeypatch):
    monkeypatch.setitem(sys.modules, "faiss", None)
    with pytest.raises(InvalidOption, match="faiss") as refused:
        EntityIndex.of(make_model())
    assert "biqe[ann]" in refused.value.hint
