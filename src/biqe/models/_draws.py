"""Random draws of training: dropout masks, and the positives and negatives of a batch. All come from torch's global
generator.

Dropout draws its masks from a pool. Drawing one random number for each hidden value is a noticeable part of a training
step on a processor. A pool of masks is drawn once; each use takes a window of it at a random place, so that one number
is drawn for each call. Two windows overlap now and then, at offsets that never repeat in step with the values they
fall on.

Negatives are drawn uniformly, once for each batch, and shared by all of its targets: a block of n targets against k
entities is one dense product, and each entity is read once.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import nn

from biqe.links.structures import Targets
from biqe.models._device import CPU

POOL = 1 << 23
"""Mask values in the pool: 32 MiB."""
_WIDE = 1 << 62
"""Random integers below this are reduced modulo the number of answers; the bias is negligible."""

_pools: dict[float, torch.Tensor] = {}


def _pool(share: float) -> torch.Tensor:
    if share not in _pools:
        # Its own generator: the pool must not depend on what was drawn before, or resuming would change it.
        generator = torch.Generator().manual_seed(0xB1CE)
        kept = torch.empty(POOL).bernoulli_(1.0 - share, generator=generator)
        _pools[share] = kept.div_(1.0 - share)
    return _pools[share]


class PooledDropout(nn.Module):
    """Zeroes a share of the values while training and scales the rest so that their mean stays."""

    def __init__(self, share: float) -> None:
        super().__init__()
        self.share = share

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if not self.training or self.share == 0.0:
            return x
        size = x.numel()
        if 2 * size > POOL or x.device.type != "cpu":  # too few places for the window to start at; or a GPU's own masks
            return F.dropout(x, self.share)
        pool = _pool(self.share)
        start = int(torch.randint(len(pool) - size + 1, ()))
        return x * pool[start : start + size].view_as(x)

    def extra_repr(self) -> str:
        return f"share={self.share}"


def draw_positives(targets: Targets) -> torch.Tensor:
    """(V,) a true entity of each target, drawn from all of its answers where these are attached; -1 where none is
    known."""
    if targets.offsets is None or targets.answers is None or not len(targets.answers):
        return targets.gold
    numbers = targets.offsets.diff()
    drawn = torch.randint(_WIDE, (len(numbers),), device=numbers.device) % numbers.clamp_min(1)
    places = (targets.offsets[:-1] + drawn).clamp_max(len(targets.answers) - 1)
    return torch.where(numbers > 0, targets.answers[places], targets.gold)


def draw_negatives(count: int, entity_count: int, device: torch.device = CPU) -> torch.Tensor:
    """(min(count, E),) different entities; all of them, in order, where ``count`` is E or more."""
    if count >= entity_count:
        return torch.arange(entity_count, device=device)
    return torch.randperm(entity_count, device=device)[:count]


def true_among(targets: Targets, negatives: torch.Tensor, entity_count: int) -> torch.Tensor:
    """(V, K) where a negative is the gold entity of the target, or, where they are attached, one of its answers."""
    count, device = len(targets.gold), negatives.device
    column = torch.full((entity_count,), -1, device=device)
    column[negatives] = torch.arange(len(negatives), device=device)
    rows, values = torch.arange(count, device=device), targets.gold
    if targets.offsets is not None and targets.answers is not None:
        rows = torch.cat([rows, torch.repeat_interleave(rows, targets.offsets.diff())])
        values = torch.cat([values, targets.answers])
    found = (values >= 0) & (column[values] >= 0)
    hits = torch.zeros(count, len(negatives), dtype=torch.bool, device=device)
    hits[rows[found], column[values[found]]] = True
    return hits
