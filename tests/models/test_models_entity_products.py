"""Products with the table of all entities are what the plain product is, whatever way they are made."""

from __future__ import annotations

import pytest
import torch
from torch.nn.functional import linear

from biqe.models import _entity_products
from biqe.models._entity_products import FEW_ROWS, with_all


@pytest.fixture(autouse=True)
def every_table_is_large(monkeypatch):
    monkeypatch.setattr(_entity_products, "SMALL_TABLE", 0)


@pytest.mark.parametrize("entities", [1, 16, 37])
@pytest.mark.parametrize("rows", [0, 1, 2, 9, FEW_ROWS, FEW_ROWS + 1, 3 * FEW_ROWS])
@pytest.mark.parametrize("has_bias", [False, True])
def test_they_are_the_plain_product(rows, entities, has_bias):
    torch.manual_seed(0)
    hidden, table = torch.randn(rows, 8), torch.randn(entities, 8)
    bias = torch.randn(entities) if has_bias else None
    with torch.inference_mode():
        found = with_all(hidden, table, bias)
    assert found.shape == (rows, entities) and found.is_contiguous()
    assert torch.allclose(found, linear(hidden, table, bias), atol=1e-5)


def test_few_rows_of_a_huge_table_are_not_turned(monkeypatch):
    """The turned copy of many results costs more than the product."""
    monkeypatch.setattr(_entity_products, "FEW_RESULTS", 100)
    hidden, table = torch.randn(5, 8), torch.randn(50, 8)
    with torch.inference_mode():
        assert torch.allclose(with_all(hidden, table), hidden @ table.t(), atol=1e-5)
        assert torch.allclose(with_all(hidden[:1], table), hidden[:1] @ table.t(), atol=1e-5)


def test_gradients_flow():
    hidden, table = torch.randn(3, 8, requires_grad=True), torch.randn(20, 8, requires_grad=True)
    with_all(hidden, table).square().sum().backward()
    own = hidden.grad.clone(), table.grad.clone()
    hidden.grad = table.grad = None
    (hidden @ table.t()).square().sum().backward()
    assert torch.allclose(own[0], hidden.grad, atol=1e-4) and torch.allclose(own[1], table.grad, atol=1e-4)
