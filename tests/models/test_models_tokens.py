"""Embeddings of tokens: entities and the others in two tables under one space of ids."""

from __future__ import annotations

import torch

from biqe.models._tokens import embed
from biqe.query.tokens import FIRST_ENTITY, token_count

from .conftest import ENTITIES, RELATIONS


def test_the_same_rows_as_one_table_and_the_same_gradients(make_model):
    model = make_model()
    tokens = torch.randint(token_count(ENTITIES, RELATIONS), (77,))
    others = model.embed_others.weight
    table = torch.cat([others[:FIRST_ENTITY], model.embed_entities.weight, others[FIRST_ENTITY:]])
    table = table.detach().requires_grad_()
    expected = torch.nn.functional.embedding(tokens, table)
    found = embed(tokens, model.embed_entities, model.embed_others)
    assert torch.equal(expected, found)
    weights = torch.randn_like(found)
    (expected * weights).sum().backward()
    (found * weights).sum().backward()
    last = FIRST_ENTITY + ENTITIES
    assert torch.equal(table.grad[FIRST_ENTITY:last], model.embed_entities.weight.grad)
    rest = torch.cat([table.grad[:FIRST_ENTITY], table.grad[last:]])
    assert torch.equal(rest, others.grad)
