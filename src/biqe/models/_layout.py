"""How weights lie in memory when a model is asked a few questions at a time.

Weights come mapped from a file, where they begin at any byte and stand row by row. Products of few rows with them are
faster if they begin where a cache line does and stand column by column. The entities' embeddings are copied only where
they are few: a large table stays mapped, and processes share it.
"""

from __future__ import annotations

import torch
from torch import nn

from biqe.models._contract import QueryModel

COPIED = 64 << 20
"""Bytes of entities' embeddings that are copied at most."""


@torch.no_grad()
def for_few_rows(model: QueryModel) -> QueryModel:
    """The same model, with the weights that hidden states are multiplied with copied to where small products are
    fast."""
    weights = [module.weight for module in model.modules() if isinstance(module, nn.Linear)]
    entities = getattr(model, "embed_entities", None)
    if isinstance(entities, nn.Embedding) and entities.weight.nbytes <= COPIED:
        weights.append(entities.weight)
    for weight in weights:
        weight.data = weight.data.t().contiguous().t()
    return model
