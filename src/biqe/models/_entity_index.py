"""The best entities for a target without looking at all of them at once, or without looking at all of them.

``best_entities`` is exact: it goes through the table in blocks and keeps the best so far, so that no row of E logits is
ever made. ``EntityIndex`` is approximate: entities are put into lists of neighbours once (extra ``ann``, faiss), and a
search looks into a few lists. How many of the true best it finds depends on the model and on the number of lists that
are looked into, so an index measures that on queries of its own graph before it is used:

    index = EntityIndex.of(model)
    index.tune(hidden, recall=0.95)        # (V, D) hidden states at targets: model.at_targets(batch)
    ids, logits = index.search(hidden, 20)

Logits are exact for what is found; probabilities need the sum over all entities, which only the exact road has.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import torch

from biqe.errors import InvalidOption
from biqe.models._contract import QueryModel

BLOCK_BYTES = 32 << 20
"""Size of one block of logits."""


@dataclass(frozen=True)
class Best:
    """The ``count`` best entities of V targets."""

    entities: torch.Tensor
    """(V, count) ids, best first; equal ones in any order."""
    logits: torch.Tensor
    """(V, count)"""
    log_sum: torch.Tensor
    """(V,) logarithm of the sum of exp(logit) over all entities: ``logits - log_sum`` are log-probabilities."""


@torch.no_grad()
def best_entities(hidden: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor, count: int) -> Best:
    """The entities with the largest ``hidden @ weight.T + bias``, block by block."""
    targets, entities = len(hidden), len(weight)
    count = min(count, entities)
    step = max(count, BLOCK_BYTES // max(1, 4 * targets))
    logits, ids = hidden.new_empty(targets, 0), torch.empty(targets, 0, dtype=torch.long)
    log_sum = hidden.new_full((targets,), -math.inf)
    for start in range(0, entities, step):
        block = torch.addmm(bias[start : start + step], hidden, weight[start : start + step].t())
        log_sum = torch.logaddexp(log_sum, block.logsumexp(1))
        found = block.topk(min(count, block.shape[1]), 1)
        logits, ids = torch.cat([logits, found.values], 1), torch.cat([ids, found.indices + start], 1)
        logits, kept = logits.topk(min(count, logits.shape[1]), 1)
        ids = ids.gather(1, kept)
    return Best(ids, logits, log_sum)


class EntityIndex:
    """Entities in lists of neighbours; a search looks into ``probes`` of the lists."""

    def __init__(self, weight: torch.Tensor, bias: torch.Tensor, *, lists: int = 0, seed: int = 0) -> None:
        """``lists`` of about equal size, or a number that suits the number of entities."""
        faiss = _faiss()
        self._weight, self._bias = weight.detach(), bias.detach()
        entities = len(weight)
        self.lists = lists or max(1, min(entities, round(4 * entities**0.5)))
        if not 1 <= self.lists <= entities:
            raise InvalidOption(f"'lists' must be in [1, {entities:,}], the number of entities. Got {self.lists}")
        # A bias is one more direction, in which every target looks at 1.
        vectors = torch.cat([self._weight, self._bias.unsqueeze(1)], 1).contiguous().numpy()
        self._index = faiss.IndexIVFFlat(
            faiss.IndexFlatIP(vectors.shape[1]), vectors.shape[1], self.lists, faiss.METRIC_INNER_PRODUCT
        )
        self._index.cp.seed = seed
        self._index.cp.min_points_per_centroid = 1  # small graphs are no reason for a warning
        self._index.train(vectors)
        self._index.add(vectors)
        self.probes = max(1, self.lists // 16)

    @classmethod
    def of(cls, model: QueryModel, *, lists: int = 0, seed: int = 0) -> EntityIndex:
        """Of a model whose logits are products with a table of entities."""
        weight, bias = getattr(model, "entity_weight", None), getattr(model, "entity_bias", None)
        if weight is None or bias is None or getattr(model.config, "predictor_rank", 0) > 0:
            raise InvalidOption(
                f"{model.name} does not score entities by products with a table",
                hint="an index is for biqe without a link predictor inside",
            )
        return cls(weight, bias, lists=lists, seed=seed)

    def search(self, hidden: torch.Tensor, count: int) -> tuple[torch.Tensor, torch.Tensor]:
        """(V, count) ids and logits of the best entities that are found; -1 and -inf where fewer are."""
        asked = torch.cat([hidden.detach(), hidden.new_ones(len(hidden), 1)], 1).contiguous().numpy()
        self._index.nprobe = min(self.probes, self.lists)
        logits, ids = self._index.search(asked, min(count, len(self._weight)))
        found = torch.from_numpy(ids)
        return found, torch.where(found >= 0, torch.from_numpy(logits), -math.inf)

    def recall(self, hidden: torch.Tensor, count: int) -> float:
        """Share of the true ``count`` best that a search finds."""
        true = best_entities(hidden, self._weight, self._bias, count).entities
        found, _ = self.search(hidden, count)
        return float((true.unsqueeze(2) == found.unsqueeze(1)).any(2).float().mean())

    def tune(self, hidden: torch.Tensor, *, count: int = 20, recall: float = 0.95) -> float:
        """Look into as few lists as find the share ``recall`` of the best on these targets; the share found."""
        if not 0.0 < recall <= 1.0:
            raise InvalidOption(f"'recall' must be in (0, 1]. Got {recall}")
        self.probes = 1
        while (found := self.recall(hidden, count)) < recall and self.probes < self.lists:
            self.probes = min(self.lists, 2 * self.probes)
        return found


def _faiss() -> Any:
    try:
        import faiss
    except ImportError as error:
        raise InvalidOption(
            "an approximate index needs faiss, which is not installed", hint="pip install 'biqe[ann]'"
        ) from error
    return faiss
