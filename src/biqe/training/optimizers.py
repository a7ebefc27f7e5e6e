"""Optimisers and the running average of the weights. A step costs only the rows that it touches.

A weight with a sparse gradient has moments and a step counter for each row. A row that every step touches moves as
under the ordinary optimiser. Any other row moves as if only the steps that touch it existed: between them its moments
do not fade and its weights do not decay.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

import torch

from biqe.models._contract import QueryModel
from biqe.models._device import device_of
from biqe.training.config import TrainConfig


def learnt(model: QueryModel) -> dict[str, torch.nn.Parameter]:
    """The weights that training changes, by name."""
    return {name: weight for name, weight in model.named_parameters() if weight.requires_grad}


def optimizer_of(model: QueryModel, config: TrainConfig) -> torch.optim.Optimizer:
    """AdamW or Adagrad over what ``model`` learns; biases and norms do not decay."""
    decayed = [weight for weight in learnt(model).values() if weight.dim() > 1]
    plain = [weight for weight in learnt(model).values() if weight.dim() <= 1]
    groups = [{"params": decayed, "weight_decay": config.weight_decay}, {"params": plain, "weight_decay": 0.0}]
    device = device_of(model).type
    if config.optimizer == "adagrad":
        return RowAdagrad(groups, lr=config.learning_rate, fused=device == "cpu")
    return RowAdamW(groups, lr=config.learning_rate, betas=(0.9, 0.98), fused=device in ("cpu", "cuda", "mps"))


def clip_gradients(model: QueryModel, most: float) -> torch.Tensor:
    """Scale all gradients so that their total norm is at most ``most``; the norm before. Duplicate rows of sparse
    gradients are added up."""
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
        """One step. Sparse gradients are None afterwards."""
        for group, weight, rows, gradient in _sparse(self):
            self._step_rows(group, weight, rows, gradient)
        return super().step(closure)

    def _step_rows(
        self, group: dict[str, Any], weight: torch.Tensor, rows: torch.Tensor, gradient: torch.Tensor
    ) -> None:
        state, rate, (fade_first, fade_second) = self.state[weight], group["lr"], group["betas"]
        if not state:
            state["step"] = torch.zeros(len(weight), device=weight.device)
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
        """One step. Sparse gradients are None afterwards."""
        for group, weight, rows, gradient in _sparse(self):
            squares = self.state[weight]["sum"]
            before = weight.index_select(0, rows)
            gradient = gradient.add(before, alpha=group["weight_decay"])
            total = squares.index_select(0, rows).addcmul_(gradient, gradient)
            weight.index_copy_(0, rows, before.addcdiv_(gradient, total.sqrt().add_(group["eps"]), value=-group["lr"]))
            squares.index_copy_(0, rows, total)
        return super().step(closure)


def _sparse(optimizer: torch.optim.Optimizer) -> list[tuple[dict[str, Any], torch.Tensor, torch.Tensor, torch.Tensor]]:
    """Group, weight, rows and gradients of these rows, for all weights with sparse gradients, which are then None."""
    found = []
    for group in optimizer.param_groups:
        for weight in group["params"]:
            if _is_sparse(weight):
                gradient = weight.grad.coalesce()
                found.append((group, weight, gradient.indices()[0], gradient.values()))
                weight.grad = None
    return found


FADED = "faded"
"""Name, in a checkpoint, of the sum of the logarithms of all decays so far; ``faded.NAME`` is the value of that sum
when each row of the weight NAME was last brought up to date."""


class RunningAverage:
    """The running average of the weights, which is what a run validates and keeps.

        average  <-  decay * average + (1 - decay) * weight          after every step

    A row that no step touches keeps its weight w, so its average can be brought up to date later: after steps with
    decays d1, d2, ... it is w + d1 d2 ... (average - w).
    """

    def __init__(self, model: QueryModel, saved: Mapping[str, torch.Tensor] | None = None) -> None:
        """Begin with the current weights, or with ``saved`` from a checkpoint."""
        self._model = model
        self._faded = 0.0
        self._faded_at: dict[str, torch.Tensor] = {}
        if saved is None:
            self._weights = {name: weight.detach().clone() for name, weight in learnt(model).items()}
        else:
            saved = {name: tensor.to(device_of(model)) for name, tensor in saved.items()}
            self._weights = {name: saved[name] for name in learnt(model)}
            if FADED in saved:
                self._faded = float(saved[FADED])
                prefix = f"{FADED}."
                self._faded_at = {n.removeprefix(prefix): t for n, t in saved.items() if n.startswith(prefix)}
        self._rows: dict[str, torch.Tensor] = {}

    def weights(self) -> dict[str, torch.Tensor]:
        """The average by name, all rows up to date."""
        for name, seen in self._faded_at.items():
            self._catch_up(name, torch.arange(len(seen), device=seen.device))
        return self._weights

    def tensors(self) -> dict[str, torch.Tensor]:
        """The state for a checkpoint. Rows are not brought up to date, so that saving changes nothing."""
        if not self._faded_at:
            return self._weights
        faded = {FADED: torch.tensor(self._faded, dtype=torch.float64)}
        return {**self._weights, **faded, **{f"{FADED}.{name}": seen for name, seen in self._faded_at.items()}}

    def before_step(self) -> None:
        """Bring the rows that the step will touch up to date: gradients are there, weights are not changed yet."""
        self._rows = {}
        for name, weight in learnt(self._model).items():
            rows = touched_rows(weight)
            if rows is not None:
                if name not in self._faded_at:
                    self._faded_at[name] = rows.new_full((len(weight),), self._faded, dtype=torch.float64)
                self._catch_up(name, rows)
                self._rows[name] = rows

    @torch.no_grad()
    def after_step(self, decay: float) -> None:
        """Move the average towards the changed weights."""
        current = learnt(self._model)
        self._faded += math.log(max(decay, 1e-300))  # decay 0 forgets everything, which e^-690 does as well
        whole = [name for name in current if name not in self._faded_at]
        torch._foreach_lerp_([self._weights[name] for name in whole], [current[name] for name in whole], 1.0 - decay)
        for name, rows in self._rows.items():
            moved = self._weights[name].index_select(0, rows).lerp_(current[name].index_select(0, rows), 1.0 - decay)
            self._weights[name].index_copy_(0, rows, moved)
            self._faded_at[name][rows] = self._faded

    @torch.no_grad()
    def _catch_up(self, name: str, rows: torch.Tensor) -> None:
        average, weight, seen = self._weights[name], learnt(self._model)[name], self._faded_at[name]
        for part in rows.split(1 << 16):
            left = (self._faded - seen[part]).exp_().to(average.dtype).view(-1, *[1] * (average.dim() - 1))
            resting = weight.index_select(0, part)
            average.index_copy_(0, part, resting.lerp(average.index_select(0, part), left))
            seen[part] = self._faded
