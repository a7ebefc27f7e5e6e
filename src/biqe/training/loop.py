"""The training loop, readable in one sitting.

    batch  ->  loss at its targets  ->  clipped gradients  ->  optimiser step  ->  running average of the weights

The learning rate rises during warm-up and then falls linearly to 0 over the run. From time to time the averaged weights
are validated, and the best are kept as the run's model; checkpoints hold the whole state, so that a stopped run goes
on. Whether one process trains or several is the business of ``processes``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Protocol

import torch

from biqe.errors import RunFailed
from biqe.evaluate.machine import peak_resident_bytes
from biqe.models._contract import QueryModel
from biqe.models._device import ahead, device_of
from biqe.training.checkpoint import Place
from biqe.training.clock import Clock
from biqe.training.config import TrainConfig
from biqe.training.memory import FreedMemory, resident_bytes
from biqe.training.optimizers import RunningAverage, optimizer_of
from biqe.training.processes import Processes
from biqe.training.run import Run
from biqe.training.stream import Epoch, Stream

WARMUP_SHARE = 0.1
"""Warm-up takes no more than this share of a run."""


class Listener(Protocol):
    """Shows a run while it goes on."""

    def stepped(self, fraction: float, facts: dict[str, Any]) -> None:
        """Some steps were taken; ``fraction`` of the run is done."""

    def validated(self, facts: dict[str, Any]) -> None:
        """The model was validated."""


@dataclass
class Result:
    """How a run ended."""

    place: Place
    reason: str
    """finished, stopped early, or interrupted."""
    metrics: dict[str, float] = field(default_factory=dict)
    """Of the best validation since the run was started or resumed."""
    validated: bool = True
    """False if the run had nothing to validate on; its last weights are its model then."""
    weighed: Any = None
    """What was found out about links at the end (weigh_links.Weighed); None for models without links."""
    signal: int | None = None
    """The signal that interrupted it, if this process received one."""


def train(
    run: Run,
    model: QueryModel,
    stream: Stream,
    *,
    validate: Callable[[QueryModel], dict[str, float]] | None,
    keep: Callable[[QueryModel, dict[str, Any]], None],
    listener: Listener,
    processes: Processes,
    keep_interrupted: bool = False,
) -> Result:
    """Train ``model`` to the end of the run, from its last checkpoint if it has one.

    The first metric that ``validate`` returns chooses the best model, which ``keep`` writes. Without ``validate`` the
    last weights are kept. Ctrl-C and SIGTERM end the loop after the step under way, with a checkpoint; with
    ``keep_interrupted``, what was learnt until then is validated and kept first.
    """
    config = run.train_config
    state = _State(run, model, validate, keep, listener, processes)
    place, clock, result = state.place, state.clock, state.result
    model.train()
    with processes.signals, _flushed_denormals():
        for epoch, queries, batch in _batches(stream, place, clock, device_of(model)):
            processes.before_step(batch, queries, clock)
            fraction = clock.fraction(place.epoch + place.batch / len(epoch))
            if fraction >= 1.0:
                break
            # Before the step, not after it: a run that was stopped when a validation was due begins with it.
            if place.step and fraction * config.validations >= place.validations + 1:
                goes_on = state.validate(fraction)
                state.save()
                if not goes_on:
                    result.reason = "stopped early"
                    break
            elif processes.save_due(clock):
                state.save()
            loss = take_step(processes, batch, state.optimizer, state.average, config, place.step, fraction)
            place.step += 1
            place.batch += 1
            clock.count(processes.queries, loss)
            if processes.stop_asked:
                result.reason, result.signal = "interrupted", processes.signals.number
                break
            state.memory.stepped()
            if clock.report_due():
                state.report(fraction)
        if result.reason == "finished" or (result.reason == "interrupted" and keep_interrupted):
            state.validate(1.0)
        place.finished = result.reason != "interrupted"
        state.save()
    run.log(
        "ended",
        reason=result.reason,
        step=place.step,
        seconds=round(clock.seconds(), 1),
        peak_resident_mib=peak_resident_bytes() >> 20,
    )
    return result


def take_step(
    processes: Processes,
    batch: Any,
    optimizer: torch.optim.Optimizer,
    average: RunningAverage,
    config: TrainConfig,
    step: int,
    fraction: float,
) -> float:
    """Step number ``step``, when ``fraction`` of the run is done; its loss."""
    warmed_up = min(1.0, max((step + 1) / max(1, config.warmup_steps), fraction / WARMUP_SHARE))
    rate = config.learning_rate * warmed_up * (1.0 - fraction)
    for group in optimizer.param_groups:
        group["lr"] = rate
    loss, norm = processes.backward(batch, optimizer, config, step)
    if not torch.isfinite(norm):
        raise RunFailed(
            f"the loss is no longer a number at step {step:,} (rate {rate:.2g})",
            hint="start a new run with a lower rate, -O learning_rate=VALUE; going on with this one "
            "leads to the same step",
        )
    average.before_step()
    optimizer.step()
    # Early weights are forgotten quickly, so that the average is worth validating from the start.
    average.after_step(min(config.average, (1 + step) / (10 + step)))
    return float(loss)


def _batches(stream: Stream, place: Place, clock: Clock, device: torch.device) -> Iterator[tuple[Epoch, int, Any]]:
    """Batches from where the run stands, epoch after epoch: the epoch, the number of queries, and the batch."""
    while clock.fraction(place.epoch) < 1.0:
        epoch = stream.epoch(place.epoch)
        for queries, batch in ahead(epoch.from_batch(place.batch), device):
            yield epoch, queries, batch
        place.epoch, place.batch = place.epoch + 1, 0


class _State:
    """What a run changes while it trains, and what is done with it from time to time."""

    def __init__(
        self,
        run: Run,
        model: QueryModel,
        validate: Callable[[QueryModel], dict[str, float]] | None,
        keep: Callable[[QueryModel, dict[str, Any]], None],
        listener: Listener,
        processes: Processes,
    ) -> None:
        self._run, self._config = run, run.train_config
        self._validate, self._keep, self._listener, self._processes = validate, keep, listener, processes
        self.optimizer = optimizer_of(model, self._config)
        self.place, saved = processes.restore(run.checkpoints, self.optimizer)
        self.average = RunningAverage(model, saved)
        self.clock = Clock(self._config, self.place.seconds, shared=processes.ranks.several)
        self.memory = FreedMemory()
        self.result = Result(self.place, "finished", validated=validate is not None)
        if saved is not None:
            self._log("resumed")

    def save(self) -> None:
        """Write a checkpoint."""
        self.place.seconds = self.clock.seconds()
        self._processes.save(self._run.checkpoints, self.place, self.average, self.optimizer)
        self._log("checkpoint")
        self.clock.saved()

    def report(self, fraction: float) -> None:
        """Log and show the steps since the last report."""
        facts = self._log(
            "steps", fraction=round(fraction, 4), **self.clock.rates(), resident_mib=resident_bytes() >> 20
        )
        self._listener.stepped(fraction, facts)

    def validate(self, fraction: float) -> bool:
        """Validate the average and keep it if it is the best so far; whether the run goes on."""
        if self.clock.counted:
            self.report(fraction)
        self.memory.release()
        self.place.validations += 1
        return self._processes.with_average(self.average, lambda averaged: self._judge(averaged, fraction))

    def _judge(self, averaged: QueryModel, fraction: float) -> bool:
        place, where = self.place, {"step": self.place.step, "epoch": self.place.epoch}
        if self._validate is None:
            self._keep(averaged, where)
            self._log("kept")
            return True
        averaged.eval()
        with torch.inference_mode():
            metrics = self._validate(averaged)
        averaged.train()
        place.since_best += 1
        value = next(iter(metrics.values()))
        if value > place.best:
            place.best, place.since_best = value, 0
            self.result.metrics = metrics
            self._keep(averaged, {**where, **metrics})
        facts = self._log("validation", fraction=round(fraction, 4), **metrics, best=place.best)
        self._listener.validated(facts)
        return not self._config.patience or place.since_best < self._config.patience

    def _log(self, event: str, **facts: Any) -> dict[str, Any]:
        place = self.place
        facts = {"step": place.step, "epoch": place.epoch, "seconds": round(self.clock.seconds(), 1), **facts}
        self._run.log(event, **facts)
        return facts


@contextmanager
def _flushed_denormals() -> Iterator[None]:
    """Round denormal numbers to 0: moments of rarely seen entities decay into them, and they are slow."""
    torch.set_flush_denormal(True)
    try:
        yield
    finally:
        torch.set_flush_denormal(False)
