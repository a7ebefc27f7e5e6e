"""Positives and negatives of a batch: what is drawn, and which negatives are answers after all.

Negatives are drawn uniformly, once a batch, and shared by all of its targets: a block of n targets against k
entities is one dense product, and each entity is read once. All draws come from torch's global generator.
"""

from __future__ import annotations

import torch

from biqe.models._contract import Targets

_WIDE = 1 << 62
"""Random integers below this are reduced modulo the number of answers; the unevenness is out of sight."""


def draw_positives(targets: Targets, count: int = 1) -> torch.Tensor:
    """(V, count) true entities of each target; -1 where none is known.

    Where all answers are attached they are drawn from those, with replacement; else the gold entity is the only
    one, and the result is (V, 1).
    """
    if targets.offsets is None or targets.answers is None:
        return targets.gold.unsqueeze(1)
    numbers = targets.offsets.diff().unsqueeze(1)  # (V, 1)
    drawn = torch.randint(_WIDE, (len(numbers), count)) % numbers.clamp_min(1)
    if not len(targets.answers):
        return targets.gold.unsqueeze(1).expand(-1, count)
    last = len(targets.answers) - 1
    chosen = targets.answers[(targets.offsets[:-1].unsqueeze(1) + drawn).clamp_max(last)]
    return torch.where(numbers > 0, chosen, targets.gold.unsqueeze(1))


def draw_negatives(count: int, entity_count: int) -> torch.Tensor:
    """(min(count, E),) entities without repetition; all of them, in order, where ``count`` reaches that far."""
    if count >= entity_count:
        return torch.arange(entity_count)
    return torch.randperm(entity_count)[:count]


def true_among(targets: Targets, negatives: torch.Tensor, entity_count: int) -> torch.Tensor:
    """(V, K) where a negative is the gold entity of the target, or, where they are attached, one of its answers."""
    count = len(targets.gold)
    column = torch.full((entity_count,), -1)
    column[negatives] = torch.arange(len(negatives))
    rows, values = torch.arange(count), targets.gold
    if targets.offsets is not None and targets.answers is not None:
        rows = torch.cat([rows, torch.repeat_interleave(rows, targets.offsets.diff())])
        values = torch.cat([values, targets.answers])
    found = (values >= 0) & (column[values] >= 0)
    hits = torch.zeros(count, len(negatives), dtype=torch.bool)
    hits[rows[found], column[values[found]]] = True
    return hits
