"""The processes that train a model, as the training loop sees them: one (``Processes``) or several.

The loop calls the same methods in both cases. With several, every rank runs the loop in step with the others:

    before a step   the ranks agree on the time used, on stopping and on saving; rank 0's clock counts
    gradients       are added up over the ranks, so that all replicas take the same step
    validation      is done by rank 0, and the others learn whether the run goes on
    checkpoints     are written by rank 0; where the entities are split over the ranks, by all of them
"""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

from biqe.models._contract import QueryModel, predictions
from biqe.models._device import half_precision
from biqe.models._entity_loss import sparse_weights
from biqe.models._split_entities import SplitTable, split
from biqe.training import checkpoint
from biqe.training.checkpoint import Place
from biqe.training.clock import Clock
from biqe.training.config import TrainConfig
from biqe.training.optimizers import RunningAverage, clip_gradients, learnt
from biqe.training.ranks import ALONE, Ranks, exchange


def processes_of(model: QueryModel, ranks: Ranks, config: TrainConfig) -> Processes:
    """The processes of a run. With ``shard_entities``, ``model`` keeps only this rank's rows of the entities."""
    if not ranks.several:
        return Processes(model)
    table = None
    if config.shard_entities:
        with exchange("splitting the entities"):
            table = split(model, ranks.rank, ranks.world, config.rank_timeout)
    return SeveralProcesses(model, ranks, table)


class Processes:
    """One process that trains ``model`` alone."""

    ranks = ALONE

    def __init__(self, model: QueryModel) -> None:
        self.model = model
        self.queries = 0
        """Queries of the next step, over all ranks."""
        self.signals = StopSignals()
        """Entered while the loop runs, so that Ctrl-C and SIGTERM do not cut a step in two."""

    def restore(self, folder: Path, optimizer: torch.optim.Optimizer) -> tuple[Place, dict[str, torch.Tensor] | None]:
        """Load the newest checkpoint of ``folder``: where the run stands, and the average; None without one."""
        newest = checkpoint.latest(folder)
        return (Place(), None) if newest is None else checkpoint.load(newest, self.model, optimizer)

    def before_step(self, batch: Any, queries: int, clock: Clock) -> None:
        """Agree with the other ranks on what follows; ``queries`` is the size of this rank's ``batch``."""
        self.queries = queries

    @property
    def stop_asked(self) -> bool:
        """Whether the run is to stop after the step under way."""
        return self.signals.asked

    def save_due(self, clock: Clock) -> bool:
        """Whether it is time for a checkpoint."""
        return clock.save_due()

    def backward(
        self, batch: Any, optimizer: torch.optim.Optimizer, config: TrainConfig, step: int
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Compute the gradients of a step, clipped to norm ``config.clip``; the loss, and the norm before clipping."""
        optimizer.zero_grad(set_to_none=getattr(self.model, "uses_all_weights", False))
        with half_precision(self.model, config.precision):
            loss = self.model.loss(batch, label_smoothing=config.label_smoothing)
        loss.backward()
        return loss.detach(), clip_gradients(self.model, config.clip)

    def with_average(self, average: RunningAverage, work: Callable[[QueryModel], bool]) -> bool:
        """The result of ``work`` on the model with its average weights."""
        with _holding(self.model, average.weights()):
            return work(self.model)

    def save(self, folder: Path, place: Place, average: RunningAverage, optimizer: torch.optim.Optimizer) -> None:
        """Write a checkpoint."""
        checkpoint.save(folder, place, self.model, average.tensors(), optimizer)


class SeveralProcesses(Processes):
    """This process and the others of its run. ``table`` says which weights of ``model`` are split over the ranks."""

    def __init__(self, model: QueryModel, ranks: Ranks, table: SplitTable | None = None) -> None:
        super().__init__(model)
        self.ranks = ranks
        self.table = table
        # torchrun passes on a signal that the terminal has sent already, so a second one must not end the process.
        self.signals = StopSignals(patient=True)
        self._share = 1.0
        self._stop = self._save = False

    def restore(self, folder: Path, optimizer: torch.optim.Optimizer) -> tuple[Place, dict[str, torch.Tensor] | None]:
        """Load the checkpoint that rank 0 sees as the newest, on every rank."""
        newest = checkpoint.newest(folder, self.ranks)
        if newest is None:
            return Place(), None
        return self.ranks.all_or_none(lambda: checkpoint.load(newest, self.model, optimizer, self.table))

    @cached_property
    def _replicas(self) -> Replicas:
        """Made at the first step, when all ranks hold their weights."""
        return Replicas(self.model, self.ranks, () if self.table is None else self.table.names)

    def before_step(self, batch: Any, queries: int, clock: Clock) -> None:
        """One exchange of all that the ranks must know before a step."""
        own = predictions(self.model, batch)
        told = self.ranks.gather_numbers([own, queries, clock.live(), self.signals.asked, clock.save_due()])
        self._share = own / max(1.0, sum(row[0] for row in told))
        self.queries = int(sum(row[1] for row in told))
        clock.agree(told[0][2])
        self._stop = any(row[3] for row in told)
        self._save = told[0][4] > 0

    @property
    def stop_asked(self) -> bool:
        """Whether any rank had been asked to stop before this step."""
        return self._stop

    def save_due(self, clock: Clock) -> bool:
        """Whether rank 0 finds that a checkpoint is due."""
        return self._save

    def backward(
        self, batch: Any, optimizer: torch.optim.Optimizer, config: TrainConfig, step: int
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Compute gradients and add them up over the ranks; the loss is that of this rank's targets, unless the
        entities are split."""
        # Dropout and samples of this step and rank: the same again after a restart.
        state = np.random.SeedSequence([config.seed, step, self.ranks.rank, 4]).generate_state(2)
        torch.manual_seed(int(state[0]) << 32 | int(state[1]))
        optimizer.zero_grad(set_to_none=False)
        return self._replicas.backward(batch, config, self._share)

    def with_average(self, average: RunningAverage, work: Callable[[QueryModel], bool]) -> bool:
        """The result of ``work`` on rank 0, on every rank."""
        table, weights = self.table, average.weights()
        if table is None:

            def on_replica() -> bool:
                with _holding(self.model, weights):
                    return work(self.model)

            return self.ranks.from_first(on_replica)
        with exchange("gathering the weights to validate"):
            whole = table.gathered({**self.model.state_dict(), **weights})
        return self.ranks.from_first(lambda: work(table.whole_model(whole)))

    def save(self, folder: Path, place: Place, average: RunningAverage, optimizer: torch.optim.Optimizer) -> None:
        """Write a checkpoint: on rank 0, or each rank its part of a split model."""
        state = (folder, place, self.model, average.tensors(), optimizer)
        if self.table is None:
            self.ranks.from_first(lambda: checkpoint.save(*state).name)
        else:
            checkpoint.save_split(*state, self.table, self.ranks)


@contextmanager
def _holding(model: QueryModel, weights: dict[str, torch.Tensor]) -> Iterator[None]:
    """Let ``model`` hold other ``weights`` while the block runs."""
    own = {name: weight.detach().clone() for name, weight in learnt(model).items()}
    model.load_state_dict(weights, strict=False)
    try:
        yield
    finally:
        model.load_state_dict(own, strict=False)


class Replicas:
    """``model`` as one of the equal replicas that the ranks hold. Made on all ranks at once: rank 0's weights count.

    The loss of a step is the mean over the targets of all ranks, so a rank's own mean is weighted by its share of the
    targets. PyTorch's DistributedDataParallel adds up gradients while others are still being computed. Two kinds of
    weights stay outside it: those with sparse gradients, which are added up as they are, and those that are split over
    the ranks (``split``, models/_split_entities.py), whose gradients are complete where they are computed.
    """

    def __init__(self, model: QueryModel, ranks: Ranks, split: tuple[str, ...] = ()) -> None:
        self.model = model
        self.split = split
        self._sparse = tuple(name for name in sparse_weights(model) if name not in split)
        module = _Loss(model)
        # What is never learnt is the same on all ranks from the start.
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
        self._parallel.register_comm_hook(None, _sum_over_ranks)

    def backward(self, batch: Any, config: TrainConfig, share: float) -> tuple[torch.Tensor, torch.Tensor]:
        """Gradients of the mean over the targets of all ranks, clipped; ``share`` is this rank's part of the targets.
        Returns the loss (of this rank's targets; of all where the model is split) and the norm."""
        with exchange("computing gradients"):
            loss: torch.Tensor = self._parallel(batch, config.label_smoothing, config.precision)
            # A split model has weighted the targets of all ranks already.
            (loss if self.split else loss * share).backward()
        return loss.detach(), self._clip(config.clip)

    def _clip(self, most: float) -> torch.Tensor:
        """Scale the gradients, added up over the ranks, to norm ``most`` at most; the norm before."""
        weights = dict(self.model.named_parameters())
        with exchange("adding up gradients"):
            for name in self._sparse:
                gradient = weights[name].grad
                if gradient is not None:
                    summed = gradient.coalesce().cpu()  # NCCL adds up no sparse gradients
                    dist.all_reduce(summed)
                    weights[name].grad = summed.to(gradient.device)
            if not self.split:
                return clip_gradients(self.model, most)
            squares = torch.zeros(2, dtype=torch.float64)  # of weights that all ranks hold, of this rank's rows
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


class _Loss(torch.nn.Module):
    """The loss as a forward pass, which is what DistributedDataParallel wraps."""

    def __init__(self, model: QueryModel) -> None:
        super().__init__()
        self.model = model

    def forward(self, batch: Any, label_smoothing: float, precision: str) -> torch.Tensor:
        with half_precision(self.model, precision):
            return self.model.loss(batch, label_smoothing=label_smoothing)


def _sum_over_ranks(_, bucket):  # type: ignore[no-untyped-def]  # the library compares annotations, and finds strings here
    """Sum gradients where the library would average them: each rank's share is in its loss already."""
    return dist.all_reduce(bucket.buffer(), async_op=True).get_future().then(lambda done: done.value()[0])


class StopSignals:
    """While entered, notes Ctrl-C and SIGTERM instead of stopping at once; a second signal stops at once, unless
    ``patient``. Handlers are set even where the interrupt was ignored, as shells do for programs in the background."""

    def __init__(self, patient: bool = False) -> None:
        self.asked = False
        self.number: int | None = None
        self._patient = patient
        self._before: dict[int, Any] = {}

    def __enter__(self) -> StopSignals:
        if threading.current_thread() is threading.main_thread():
            for number in (signal.SIGINT, signal.SIGTERM):
                self._before[number] = signal.signal(number, self._note)
        return self

    def __exit__(self, *error: Any) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def _note(self, number: int, frame: Any) -> None:
        if self.asked and not self._patient:
            raise KeyboardInterrupt
        self.asked, self.number = True, number
