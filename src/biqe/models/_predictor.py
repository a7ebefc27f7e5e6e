"""A frozen link predictor inside another model: what it says about each target of a query.

The predictor is ComplEx: the links (u, r, ?) have logits ``(u o r) . e`` over all entities e, where o is the product
of complex numbers. A query is walked from its constants:

    q_v = sum over edges (u, r, v) of  u o r         what arrives at node v
    p_v = softmax(q_v . E)                           where several edges arrive, their probabilities are multiplied
    v   = sum over entities e of p_v(e) e            the state that goes on from v

so the logits at a target are ``q_v . E``: one vector a target, however many branches end there. For single edges and
for intersections of them this is CQD with the product t-norm; on longer branches it passes on the expected entity
where CQD searches, which costs one product with the entity table a hidden node.
"""

from __future__ import annotations

import torch
from torch import nn

from biqe.models._complex import product
from biqe.models._entity_products import with_all
from biqe.models._plan import PlanBatch

CHUNK_BYTES = 16 << 20
"""Size of one buffer of probabilities."""


class LinkPredictor(nn.Module):
    """Tables of a trained ComplEx. They are saved with the model and never trained further."""

    entities: torch.Tensor
    """(E, 2 rank) real parts, then imaginary parts."""
    relations: torch.Tensor
    """(2R, 2 rank) likewise."""

    def __init__(self, rank: int, entity_count: int, relation_count: int) -> None:
        super().__init__()
        self.register_buffer("entities", torch.zeros(entity_count, 2 * rank))
        self.register_buffer("relations", torch.zeros(2 * relation_count, 2 * rank))

    def scores(self, heads: torch.Tensor, relations: torch.Tensor) -> torch.Tensor:
        """(n, E) logits of every entity as the tail of each link."""
        return with_all(product(self.entities[heads], self.relations[relations]), self.entities)

    @torch.no_grad()
    def arriving(self, plan: PlanBatch) -> torch.Tensor:
        """(V, 2 rank) what arrives at each target; its product with ``entities`` are logits."""
        nodes = len(plan.anchors) + sum(n for level in plan.levels for n, _ in level.groups)
        needed = torch.zeros(nodes, dtype=torch.bool)
        for level in plan.levels:
            needed[level.sources] = True
        states = self.entities.index_select(0, plan.anchors)
        arrived = torch.zeros_like(states)
        for level in plan.levels:
            links = product(states.index_select(0, level.sources), self.relations[level.relations])
            parts = torch.split(links, [n * k for n, k in level.groups])
            reached = torch.cat([part.view(n, k, -1).sum(1) for part, (n, k) in zip(parts, level.groups, strict=True)])
            onward = torch.zeros_like(reached)
            going_on = needed[len(states) : len(states) + len(reached)].nonzero().squeeze(1)
            if len(going_on):
                onward[going_on] = self._expected(reached[going_on])
            arrived, states = torch.cat([arrived, reached]), torch.cat([states, onward])
        return arrived.index_select(0, plan.target_slots)

    def _expected(self, arrived: torch.Tensor) -> torch.Tensor:
        """(n, 2 rank) the mean entity under the softmax of what arrives."""
        rows = max(1, CHUNK_BYTES // (4 * len(self.entities)))
        return torch.cat(
            [torch.softmax(with_all(part, self.entities), 1) @ self.entities for part in arrived.split(rows)]
        )


def principal(table: torch.Tensor, width: int, scale: float) -> torch.Tensor:
    """(n, width) the table in its first ``width`` principal directions, as many as it has, with standard deviation
    ``scale``; what is missing is noise."""
    centred = table - table.mean(0)
    _, _, directions = torch.linalg.svd(centred, full_matrices=False)
    kept = centred @ directions[:width].t()
    kept = kept * (scale / kept.std().clamp_min(1e-12))
    if kept.shape[1] < width:
        kept = torch.cat([kept, scale * torch.randn(len(kept), width - kept.shape[1])], 1)
    return kept
