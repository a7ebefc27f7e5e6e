"""How weights lie in memory when a model is asked a few questions at a time.

Weights come mapped from a file, where they begin at any byte and stand row by row. Products of few rows with them are
faster if they begin where a cache line does and stand column by column. The tables of entities stay as they are, mapped
and shared by processes: products with them are made in another order (_entity_products.py).
"""

from __future__ import annotations

import torch
from torch import nn

from biqe.models._contract import QueryModel


@torch.no_grad()
def for_few_rows(model: QueryModel) -> QueryModel:
    """The same model, with the weights that hidden states are multiplied with copied to where small products are
    fast."""
    for module in model.modules():
        if isinstance(module, nn.Linear):
            module.weight.data = module.weight.data.t().contiguous().t()
    return model
