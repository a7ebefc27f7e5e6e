"""The running average of the weights, which is what a run validates and keeps.

    average  <-  decay * average + (1 - decay) * weight          after every step

A row that a step does not touch keeps its weight w, so that its average goes on towards w by a factor that can be made
up for later: after steps with decays d1, d2, ... it is w + d1 d2 ... (average - w). So a step costs what it touches.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

import torch

from biqe.models._contract import QueryModel
from biqe.train.optimizers import learnt, touched_rows

_FADED = "faded"
"""Name, in a checkpoint, of the sum of logarithms of all decays; with a weight's name, of what the sum was when each
row of it was last brought up to date."""


class RunningAverage:
    """Averages of the weights that ``model`` learns, by name."""

    def __init__(self, model: QueryModel, saved: Mapping[str, torch.Tensor] | None = None) -> None:
        """Begin with the weights as they are, or with what a checkpoint holds."""
        self._model = model
        self._faded = 0.0
        self._faded_at: dict[str, torch.Tensor] = {}
        if saved is None:
            self._weights = {name: weight.detach().clone() for name, weight in learnt(model).items()}
        else:
            self._weights = {name: saved[name] for name in learnt(model)}
            if _FADED in saved:
                self._faded = float(saved[_FADED])
                prefix = f"{_FADED}."
                self._faded_at = {n.removeprefix(prefix): t for n, t in saved.items() if n.startswith(prefix)}
        self._rows: dict[str, torch.Tensor] = {}

    def weights(self) -> dict[str, torch.Tensor]:
        """The average, all rows brought up to date."""
        for name, seen in self._faded_at.items():
            self._catch_up(name, torch.arange(len(seen)))
        return self._weights

    def tensors(self) -> dict[str, torch.Tensor]:
        """All of it as it is, for a checkpoint: rows that rest stay as they are, so that saving changes nothing."""
        if not self._faded_at:
            return self._weights
        faded = {_FADED: torch.tensor(self._faded, dtype=torch.float64)}
        return {**self._weights, **faded, **{f"{_FADED}.{name}": seen for name, seen in self._faded_at.items()}}

    def before_step(self) -> None:
        """Gradients are there and weights are about to change: rows that will be touched are brought up to date."""
        self._rows = {}
        for name, weight in learnt(self._model).items():
            rows = touched_rows(weight)
            if rows is not None:
                if name not in self._faded_at:
                    self._faded_at[name] = torch.full((len(weight),), self._faded, dtype=torch.float64)
                self._catch_up(name, rows)
                self._rows[name] = rows

    @torch.no_grad()
    def after_step(self, decay: float) -> None:
        """Weights have changed: follow them."""
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
