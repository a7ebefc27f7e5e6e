"""One model on several ranks: each learns from its own queries, and all take the same step.

The loss of a step is the mean over the targets of all ranks, so a rank's own mean counts by its number of targets.
PyTorch's DistributedDataParallel adds up the gradients while they are still being made. Two kinds of weights stay
outside it: those of which a step touches few rows, whose sparse gradients are added up as they are, and those that are
split over the ranks (models/_split_entities.py), whose gradients are whole where they are made.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

from biqe.models._contract import QueryModel
from biqe.models._entity_loss import sparse_weights
from biqe.train.optimizers import clip_gradients
from biqe.train.ranks import Ranks, exchange


class Replicas:
    """``model`` as one of the replicas that the ranks hold. Made on all ranks at once: rank 0's weights count."""

    def __init__(self, model: QueryModel, ranks: Ranks, split: tuple[str, ...] = ()) -> None:
        self.model = model
        self.ranks = ranks
        self.split = split
        """Names of the weights of which this rank holds some rows only."""
        self._sparse = tuple(name for name in sparse_weights(model) if name not in split)
        module = _Loss(model)
        # What is never learnt is the same everywhere from the start.
        fixed = (name for name, weight in model.named_parameters() if not weight.requires_grad)
        outside = [f"model.{name}" for name in (*self._sparse, *split, *fixed)]
        DistributedDataParallel._set_params_and_buffers_to_ignore_for_model(module, outside)  # type: ignore[no-untyped-call]
        weights = dict(model.named_parameters())
        with exchange("comparing their weights"):
            for name in self._sparse:
                dist.broadcast(weights[name].detach(), 0)
            self._parallel = DistributedDataParallel(
                module,
                gradient_as_bucket_view=True,
                find_unused_parameters=not getattr(model, "uses_all_weights", False),
            )
        self._parallel.register_comm_hook(None, _added_up)

    def backward(
        self, batch: Any, label_smoothing: float, share: float, clip: float
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Make gradients of the mean over the targets of all ranks, of norm at most ``clip``. ``share`` is this rank's
        part of the targets. The loss, of this rank's targets or, where the model is split, of all; and the norm."""
        with exchange("making gradients"):
            loss: torch.Tensor = self._parallel(batch, label_smoothing)
            # A split model knows the targets of all ranks, and has weighed them already.
            (loss if self.split else loss * share).backward()
        return loss.detach(), self._clip(clip)

    def _clip(self, most: float) -> torch.Tensor:
        """Scale the gradients, added up over the ranks, so that their norm is at most ``most``; the norm before."""
        weights = dict(self.model.named_parameters())
        with exchange("adding up gradients"):
            for name in self._sparse:
                gradient = weights[name].grad
                if gradient is not None:
                    gradient = weights[name].grad = gradient.coalesce()
                    dist.all_reduce(gradient)
            if not self.split:
                return clip_gradients(self.model, most)
            squares = torch.zeros(2, dtype=torch.float64)
            values = []
            for name, weight in weights.items():
                if weight.grad is not None:
                    gradient = weight.grad = weight.grad.coalesce() if weight.grad.is_sparse else weight.grad
                    values.append(gradient.values() if gradient.is_sparse else gradient)
                    squares[int(name in self.split)] += float(values[-1].norm()) ** 2
            dist.all_reduce(squares[1:])
        norm = squares.sum().sqrt()
        torch._foreach_mul_(values, float(torch.clamp(most / (norm + 1e-6), max=1.0)))
        return norm

    def seed(self, seed: int, step: int) -> None:
        """Draw this step's dropout and samples from a stream of this rank's own, the same after a restart."""
        state = np.random.SeedSequence([seed, step, self.ranks.rank, 4]).generate_state(2)
        torch.manual_seed(int(state[0]) << 32 | int(state[1]))


class _Loss(torch.nn.Module):
    """The loss as a forward pass, which is what DistributedDataParallel wraps."""

    def __init__(self, model: QueryModel) -> None:
        super().__init__()
        self.model = model

    def forward(self, batch: Any, label_smoothing: float) -> torch.Tensor:
        return self.model.loss(batch, label_smoothing=label_smoothing)


def _added_up(_, bucket):  # type: ignore[no-untyped-def]  # the library compares annotations, and finds strings here
    """The sum over the ranks where the library would take the mean: shares are in the loss already."""
    return dist.all_reduce(bucket.buffer(), async_op=True).get_future().then(lambda done: done.value()[0])
