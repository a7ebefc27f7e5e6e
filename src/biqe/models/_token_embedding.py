"""Embeddings of the tokens that BiQE reads, in two tables under one space of ids (query/token_table.py).

entities   (E, D)        a parameter of its own, so that it can be split over ranks and updated row by row
others     (1 + 2R, D)   [MASK], then the relations and their inverses

Until the tables were parted, one table held [MASK], the entities and the relations, in the order of the ids. Weights,
averages and moments saved so are cut where the entities begin and end.
"""

from __future__ import annotations

from collections.abc import Mapping

import torch
import torch.nn.functional as F
from torch import nn

from biqe.query.token_table import FIRST_ENTITY, token_count

ONE_TABLE = "embed_tokens.weight"
"""Name of the one table of earlier versions."""


def cut(table: torch.Tensor, entities: int) -> tuple[torch.Tensor, torch.Tensor]:
    """(E, D) rows of the entities and (1 + 2R, D) rows of everything else, of a table in the order of the ids."""
    last = FIRST_ENTITY + entities
    return table[FIRST_ENTITY:last], torch.cat([table[:FIRST_ENTITY], table[last:]])


def parted(tensors: Mapping[str, torch.Tensor], entities: int) -> dict[str, torch.Tensor]:
    """``tensors`` by name, the one table of earlier versions cut in two. Numbers, such as a count of steps, belong to
    both parts."""
    found = {name: tensor for name, tensor in tensors.items() if name != ONE_TABLE}
    if ONE_TABLE in tensors:
        table = tensors[ONE_TABLE]
        parts = (table, table.clone()) if table.dim() == 0 else cut(table, entities)
        found["embed_entities.weight"], found["embed_others.weight"] = (part.contiguous() for part in parts)
    return found


@torch.no_grad()
def draw(entities: nn.Embedding, others: nn.Embedding, std: float) -> None:
    """Fill both tables at random. They are drawn as one, so that a seed gives the weights that it always gave."""
    if entities.weight.is_meta:
        return  # there is nothing to fill; weights of a file follow
    size = token_count(entities.num_embeddings, (others.num_embeddings - FIRST_ENTITY) // 2)
    table = torch.empty(size, entities.embedding_dim, device=entities.weight.device).normal_(std=std)
    for part, drawn in zip((entities, others), cut(table, entities.num_embeddings), strict=True):
        part.weight.copy_(drawn)


def embed(tokens: torch.Tensor, entities: nn.Embedding, others: nn.Embedding) -> torch.Tensor:
    """(..., D) embeddings of token ids."""
    last = FIRST_ENTITY + entities.num_embeddings
    flat = tokens.flatten()
    is_entity = (flat >= FIRST_ENTITY) & (flat < last)
    places = is_entity.nonzero().squeeze(1)
    # Entities' places are looked up as [MASK] first, and then overwritten: their gradient there is 0.
    rest = torch.where(flat < FIRST_ENTITY, flat, flat - entities.num_embeddings).masked_fill_(is_entity, 0)
    found = F.embedding(rest, others.weight).index_copy(0, places, entities(flat[places] - FIRST_ENTITY))
    return found.view(*tokens.shape, -1)
