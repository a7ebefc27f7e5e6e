"""Dropout that draws its masks from a pool instead of the random generator.

Drawing one random number for each hidden value is a noticeable part of a training step on a processor. A pool
of masks is drawn once; each use takes a window of it at a random place, so that one number is drawn a call.
Two windows overlap now and then, at offsets that never repeat in step with the values they fall on.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import nn

POOL = 1 << 23
"""Mask values in the pool: 32 MiB."""

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
        if 2 * size > POOL:  # too few places for the window to start at
            return F.dropout(x, self.share)
        pool = _pool(self.share)
        start = int(torch.randint(len(pool) - size + 1, ()))
        return x * pool[start : start + size].view_as(x)

    def extra_repr(self) -> str:
        return f"share={self.share}"
