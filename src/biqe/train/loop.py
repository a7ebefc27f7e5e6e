"""The training loop, readable in one sitting.

Each step: a batch of one size, the loss at its targets, AdamW or Adagrad with warm-up and linear decay to 0 over
the run, a running average of the weights. Now and then: a validation of that average, whose best is kept as the
run's model; a checkpoint of everything.
"""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Protocol

import torch

from biqe.errors import RunFailed
from biqe.evaluate.machine import peak_resident_bytes
from biqe.models._contract import QueryModel
from biqe.train import checkpoint
from biqe.train.checkpoint import Place
from biqe.train.config import TrainConfig
from biqe.train.memory import Fragments, resident_bytes
from biqe.train.run import Run
from biqe.train.stream import Stream

LOG_SECONDS = 2.0
"""How often the trace gets a line about steps."""


class Listener(Protocol):
    """Whoever wants to show the run while it goes on."""

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
    """Of the best validation of this part of the run."""


def train(
    run: Run,
    model: QueryModel,
    stream: Stream,
    *,
    validate: Callable[[QueryModel], dict[str, float]],
    keep: Callable[[dict[str, torch.Tensor], dict[str, Any]], None],
    listener: Listener,
) -> Result:
    """Train ``model`` from the run's last checkpoint, or from the start, to the end of the run.

    ``validate`` gives metrics, of which the first chooses the best model; ``keep`` writes weights as the run's model.
    Ctrl-C, or a polite kill, ends the loop after the step under way, with a checkpoint.
    """
    config = run.train_config
    optimizer = _optimizer(model, config)
    place, average = Place(), {name: weight.detach().clone() for name, weight in _learnt(model).items()}
    newest = checkpoint.latest(run.checkpoints)
    if newest is not None:
        place, average = checkpoint.load(newest, model, optimizer)
        run.log("resumed", step=place.step, epoch=place.epoch, seconds=round(place.seconds, 1))
    clock, memory = _Clock(place, config.clock), Fragments()
    result = Result(place, "finished")

    def save() -> None:
        place.seconds = clock.seconds()
        checkpoint.save(run.checkpoints, place, model, average, optimizer)
        run.log("checkpoint", step=place.step, epoch=place.epoch, seconds=round(place.seconds, 1))
        clock.saved = time.monotonic()

    def report(fraction: float) -> None:
        """Tell what the steps since the last report were like."""
        facts = {"step": place.step, "epoch": place.epoch, "seconds": round(clock.seconds(), 1),
                 "fraction": round(fraction, 4), **clock.rates(), "resident_mib": resident_bytes() >> 20}  # fmt: skip
        run.log("steps", **facts)
        listener.stepped(fraction, facts)

    def check(fraction: float) -> bool:
        """Validate the average; whether the run goes on."""
        if clock.counted:
            report(fraction)
        memory.release()
        own = {name: weight.detach().clone() for name, weight in _learnt(model).items()}
        model.load_state_dict(average, strict=False)
        model.eval()
        with torch.inference_mode():
            metrics = validate(model)
        model.load_state_dict(own, strict=False)
        model.train()
        place.validations += 1
        place.since_best += 1
        chosen_by = next(iter(metrics.values()))
        if chosen_by > place.best:
            place.best, place.since_best = chosen_by, 0
            result.metrics = metrics
            keep({**model.state_dict(), **average}, {"step": place.step, "epoch": place.epoch, **metrics})
        facts = {"step": place.step, "epoch": place.epoch, "seconds": round(clock.seconds(), 1),
                 "fraction": round(fraction, 4), **metrics, "best": place.best}  # fmt: skip
        run.log("validation", **facts)
        listener.validated(facts)
        return not config.patience or place.since_best < config.patience

    model.train()
    torch.set_flush_denormal(True)  # moments of rarely seen entities decay into denormals, which are slow
    stop = _StopSignals()
    try:
        while (fraction := _fraction(config, place.epoch, clock)) < 1.0:
            epoch = stream.epoch(place.epoch)
            for queries, batch in epoch.from_batch(place.batch):
                fraction = _fraction(config, place.epoch + place.batch / len(epoch), clock)
                if fraction >= 1.0:
                    break
                loss = _step(model, batch, optimizer, average, config, place, fraction)
                place.step += 1
                place.batch += 1
                clock.count(queries, loss)
                if stop.asked:
                    result.reason = "interrupted"
                    break
                memory.stepped()
                if clock.due(LOG_SECONDS):
                    report(fraction)
                fraction = _fraction(config, place.epoch + place.batch / len(epoch), clock)
                if fraction * config.validations >= place.validations + 1 and fraction < 1.0:
                    go_on = check(fraction)
                    save()
                    if not go_on:
                        result.reason = "stopped early"
                        break
                elif time.monotonic() - clock.saved > 60 * config.checkpoint_minutes:
                    save()
            if result.reason != "finished" or fraction >= 1.0:
                break
            place.epoch, place.batch = place.epoch + 1, 0
        if result.reason == "finished":
            check(1.0)
        place.finished = result.reason != "interrupted"
        save()
    finally:
        stop.restore()
        torch.set_flush_denormal(False)
    run.log("ended", reason=result.reason, step=place.step, seconds=round(clock.seconds(), 1),
            peak_resident_mib=peak_resident_bytes() >> 20)  # fmt: skip
    return result


class _StopSignals:
    """Notes an interrupt or a polite kill, so that a step is never cut in two; a second one ends at once.

    Handlers are set even where the interrupt was ignored before, as shells do for programs in the background.
    """

    def __init__(self) -> None:
        self.asked = False
        self._before: dict[int, Any] = {}
        if threading.current_thread() is threading.main_thread():
            for number in (signal.SIGINT, signal.SIGTERM):
                self._before[number] = signal.signal(number, self._note)

    def _note(self, number: int, frame: Any) -> None:
        if self.asked:
            raise KeyboardInterrupt
        self.asked = True

    def restore(self) -> None:
        """Put the handlers back that were there before."""
        for number, handler in self._before.items():
            signal.signal(number, handler)


def _step(
    model: QueryModel,
    batch: Any,
    optimizer: torch.optim.Optimizer,
    average: dict[str, torch.Tensor],
    config: TrainConfig,
    place: Place,
    fraction: float,
) -> float:
    """One step; its loss."""
    rate = config.learning_rate * min(1.0, (place.step + 1) / max(1, config.warmup_steps)) * (1.0 - fraction)
    for group in optimizer.param_groups:
        group["lr"] = rate
    loss = model.loss(batch, label_smoothing=config.label_smoothing)
    optimizer.zero_grad(set_to_none=False)
    loss.backward()
    norm = torch.nn.utils.clip_grad_norm_(model.parameters(), config.clip)
    if not torch.isfinite(norm):
        raise RunFailed(f"the loss is no longer a number at step {place.step:,} (rate {rate:.2g})",
                        hint="start a new run with a lower learning rate; the last checkpoint is whole")  # fmt: skip
    optimizer.step()
    # Early weights are forgotten quickly, so that the average is worth validating from the start.
    decay = min(config.average, (1 + place.step) / (10 + place.step))
    current = _learnt(model)
    with torch.no_grad():
        torch._foreach_lerp_([average[name] for name in current], list(current.values()), 1.0 - decay)
    return float(loss.detach())


def _learnt(model: QueryModel) -> dict[str, torch.nn.Parameter]:
    """The weights that training changes, by name."""
    return {name: weight for name, weight in model.named_parameters() if weight.requires_grad}


def _optimizer(model: QueryModel, config: TrainConfig) -> torch.optim.Optimizer:
    decayed = [weight for weight in _learnt(model).values() if weight.dim() > 1]
    plain = [weight for weight in _learnt(model).values() if weight.dim() <= 1]
    groups = [{"params": decayed, "weight_decay": config.weight_decay}, {"params": plain, "weight_decay": 0.0}]
    if config.optimizer == "adagrad":
        return torch.optim.Adagrad(groups, lr=config.learning_rate, fused=True)
    return torch.optim.AdamW(groups, lr=config.learning_rate, betas=(0.9, 0.98), fused=True)


def _fraction(config: TrainConfig, epochs: float, clock: _Clock) -> float:
    """How much of the run is done after ``epochs`` of them, from 0 to 1."""
    if config.minutes is not None:
        return min(1.0, clock.seconds() / (60 * config.minutes))
    assert config.epochs is not None
    return min(1.0, epochs / config.epochs)


class _Clock:
    """Time used over all parts of a run, and what was done since the last look."""

    def __init__(self, place: Place, kind: str) -> None:
        self._now = time.monotonic if kind == "wall" else _processor_seconds
        self._started = self._now() - place.seconds
        self.saved = time.monotonic()
        self._reset()

    def _reset(self) -> None:
        self._looked = time.monotonic()
        self._queries, self._losses = 0, [0.0, 0]

    def seconds(self) -> float:
        return self._now() - self._started

    def count(self, queries: int, loss: float) -> None:
        self._queries += queries
        self._losses[0] += loss
        self._losses[1] += 1

    @property
    def counted(self) -> bool:
        """Whether anything was done since the last look."""
        return self._losses[1] > 0

    def due(self, seconds: float) -> bool:
        return time.monotonic() - self._looked >= seconds

    def rates(self) -> dict[str, float]:
        """Mean loss and queries a second since the last call."""
        rate = self._queries / max(1e-9, time.monotonic() - self._looked)
        loss = self._losses[0] / max(1, self._losses[1])
        self._reset()
        return {"loss": round(loss, 4), "queries_per_second": round(rate, 1)}


def _processor_seconds() -> float:
    """Seconds that this process would have taken so far with the cores to itself, as nearly as can be told.

    The thread that takes the steps works through all of them, and waits at the end of a matrix product only for
    threads that were kept from their core; what those used is in the time of the process.
    """
    return max(time.thread_time(), time.process_time() / torch.get_num_threads())
