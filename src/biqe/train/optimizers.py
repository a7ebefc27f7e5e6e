"""What turns gradients into steps; those of a table of which a step touches few rows cost only these rows.

A weight whose gradient is sparse keeps moments for every row, and a clock for every row that ticks when it is touched.
So a row that is touched at every step moves as under the ordinary optimiser, and any other as if the steps that do not
touch it did not exist: its moments do not fade and its weights do not decay while it rests.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from biqe.models._contract import QueryModel
from biqe.train.config import TrainConfig


def learnt(model: QueryModel) -> dict[str, torch.nn.Parameter]:
    """The weights that training changes, by name."""
    return {name: weight for name, weight in model.named_parameters() if weight.requires_grad}


def optimizer_of(model: QueryModel, config: TrainConfig) -> torch.optim.Optimizer:
    """AdamW or Adagrad over what ``model`` learns; biases and norms do not decay."""
    decayed = [weight for weight in learnt(model).values() if weight.dim() > 1]
    plain = [weight for weight in learnt(model).values() if weight.dim() <= 1]
    groups = [{"params": decayed, "weight_decay": config.weight_decay}, {"params": plain, "weight_decay": 0.0}]
    if config.optimizer == "adagrad":
        return RowAdagrad(groups, lr=config.learning_rate, fused=True)
    return RowAdamW(groups, lr=config.learning_rate, betas=(0.9, 0.98), fused=True)


def clip_gradients(model: QueryModel, most: float) -> torch.Tensor:
    """Scale all gradients so that their norm together is at most ``most``; the norm before. Rows of sparse gradients
    that were given more than once are added up."""
    weights = list(model.parameters())
    if not any(_is_sparse(weight) for weight in weights):
        return torch.nn.utils.clip_grad_norm_(weights, most)
    values = []
    for weight in weights:
        if weight.grad is not None and weight.grad.is_sparse:
            weight.grad = weight.grad.coalesce()
            values.append(weight.grad.values())
        elif weight.grad is not None:
            values.append(weight.grad)
    norm = torch.nn.utils.get_total_norm(values)
    torch._foreach_mul_(values, torch.clamp(most / (norm + 1e-6), max=1.0))
    return norm


def _is_sparse(weight: torch.Tensor) -> bool:
    return weight.grad is not None and weight.grad.is_sparse


def touched_rows(weight: torch.Tensor) -> torch.Tensor | None:
    """Rows of ``weight`` that its gradient touches, sorted; None where it touches all."""
    gradient = weight.grad
    return None if gradient is None or not gradient.is_sparse else gradient.coalesce().indices()[0]


class RowAdamW(torch.optim.AdamW):
    """AdamW; weights with sparse gradients are updated by rows."""

    @torch.no_grad()
    def step(self, closure: Callable[[], Any] | None = None) -> Any:  # type: ignore[override]
        """One step. Sparse gradients are used up by it."""
        for group, weight, rows, gradient in _sparse(self):
            self._step_rows(group, weight, rows, gradient)
        return super().step(closure)

    def _step_rows(
        self, group: dict[str, Any], weight: torch.Tensor, rows: torch.Tensor, gradient: torch.Tensor
    ) -> None:
        state, rate, (fade_first, fade_second) = self.state[weight], group["lr"], group["betas"]
        if not state:
            state["step"] = torch.zeros(len(weight))
            state["exp_avg"], state["exp_avg_sq"] = torch.zeros_like(weight), torch.zeros_like(weight)
        clock = state["step"].index_select(0, rows).add_(1)
        first = state["exp_avg"].index_select(0, rows).lerp_(gradient, 1 - fade_first)
        second = state["exp_avg_sq"].index_select(0, rows).mul_(fade_second)
        second.addcmul_(gradient, gradient, value=1 - fade_second)
        one_each = (-1, *[1] * (weight.dim() - 1))
        begun = (1 - fade_first ** clock.double()).to(weight.dtype).view(one_each)
        begun_second = (1 - fade_second ** clock.double()).sqrt_().to(weight.dtype).view(one_each)
        moved = weight.index_select(0, rows).mul_(1 - rate * group["weight_decay"])
        moved.addcdiv_(first / begun, second.sqrt().div_(begun_second).add_(group["eps"]), value=-rate)
        weight.index_copy_(0, rows, moved)
        state["step"].index_copy_(0, rows, clock)
        state["exp_avg"].index_copy_(0, rows, first)
        state["exp_avg_sq"].index_copy_(0, rows, second)


class RowAdagrad(torch.optim.Adagrad):
    """Adagrad; weights with sparse gradients are updated by rows."""

    @torch.no_grad()
    def step(self, closure: Callable[[], Any] | None = None) -> Any:  # type: ignore[override]
        """One step. Sparse gradients are used up by it."""
        for group, weight, rows, gradient in _sparse(self):
            squares = self.state[weight]["sum"]
            before = weight.index_select(0, rows)
            gradient = gradient.add(before, alpha=group["weight_decay"])
            total = squares.index_select(0, rows).addcmul_(gradient, gradient)
            weight.index_copy_(0, rows, before.addcdiv_(gradient, total.sqrt().add_(group["eps"]), value=-group["lr"]))
            squares.index_copy_(0, rows, total)
        return super().step(closure)


def _sparse(optimizer: torch.optim.Optimizer) -> list[tuple[dict[str, Any], torch.Tensor, torch.Tensor, torch.Tensor]]:
    """Group, weight, rows and gradient of these rows, of all weights with sparse gradients, which lose them."""
    found = []
    for group in optimizer.param_groups:
        for weight in group["params"]:
            if _is_sparse(weight):
                gradient = weight.grad.coalesce()
                found.append((group, weight, gradient.indices()[0], gradient.values()))
                weight.grad = None
    return found
