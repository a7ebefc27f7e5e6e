"""A model whose weights were laid out for asking says what it said before."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import nn

from biqe.graph.vocabulary import Vocabulary
from biqe.models import _catalogue, store
from biqe.models._layout import for_few_rows
from biqe.query.bound import TARGET, BoundQuery
from biqe.query.queryset import QuerySet

ENTITIES, RELATIONS = 30, 4


@pytest.mark.parametrize("name", _catalogue.names())
def test_scores_are_the_same_and_linear_weights_stand_column_by_column(name):
    torch.manual_seed(0)
    model = _catalogue.build(name, {}, 12, 3).eval()
    query = BoundQuery((4, TARGET), ((0, 1, 1),), (1,))
    with torch.inference_mode():
        before = model.scores(model.encoder(QuerySet.of([query]))).clone()
        after = for_few_rows(model).scores(model.encoder(QuerySet.of([query])))
    assert np.allclose(before, after, atol=1e-5)
    assert all(module.weight.t().is_contiguous() for module in model.modules() if isinstance(module, nn.Linear))


def test_the_table_of_entities_stays_where_it_is(make_model):
    model = make_model()
    place = model.embed_entities.weight.data_ptr()
    assert for_few_rows(model).embed_entities.weight.data_ptr() == place


def test_a_model_that_was_laid_out_is_saved_as_any_other(tmp_path, make_model):
    vocabulary = Vocabulary([f"e{n}" for n in range(ENTITIES)], [f"r{n}" for n in range(RELATIONS)])
    model = make_model()
    for name, laid_out in (("before", False), ("after", True)):
        store.save(
            for_few_rows(model) if laid_out else model, tmp_path / name, vocabulary=vocabulary, graph_fingerprint=""
        )
    weights = [(tmp_path / name / "weights.safetensors").read_bytes() for name in ("before", "after")]
    assert weights[0] == weights[1]
