"""The training loop, readable in one sitting.

Each step: a batch of one size, the loss at its targets, AdamW or Adagrad with warm-up and linear decay to 0 over
the run, a running average of the weights. Now and then: a validation of that average, whose best is kept as the
run's model; a checkpoint of everything.

Where several ranks train together, all of them go through this loop in step. Rank 0's clock is the clock of all, and
it alone validates, writes and shows; the others learn from it what was decided.
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
from biqe.models._contract import QueryModel, predictions
from biqe.models._split_entities import SplitTable
from biqe.train import checkpoint
from biqe.train.average import RunningAverage
from biqe.train.checkpoint import Place
from biqe.train.config import TrainConfig
from biqe.train.memory import Fragments, resident_bytes
from biqe.train.optimizers import clip_gradients, learnt, optimizer_of
from biqe.train.ranks import ALONE, Pulse, Ranks, exchange
from biqe.train.replicas import Replicas
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
    validated: bool = True
    """Whether the run had anything to validate on; else its last weights are its model."""
    signal: int | None = None
    """What interrupted it, where this process was told."""


def train(
    run: Run,
    model: QueryModel,
    stream: Stream,
    *,
    validate: Callable[[QueryModel], dict[str, float]] | None,
    keep: Callable[[dict[str, torch.Tensor], dict[str, Any]], None],
    listener: Listener,
    ranks: Ranks = ALONE,
    split: SplitTable | None = None,
) -> Result:
    """Train ``model`` from the run's last checkpoint, or from the start, to the end of the run.

    ``validate`` gives metrics, of which the first chooses the best model; ``keep`` writes weights as the run's model.
    Where ``validate`` is None, the last weights are kept.
    Ctrl-C, or a polite kill, ends the loop after the step under way, with a checkpoint. ``split`` says which weights of
    ``model`` are split over the ranks, and how.
    """
    config = run.train_config
    optimizer = optimizer_of(model, config)
    place, average = Place(), RunningAverage(model)
    newest = checkpoint.newest(run.checkpoints, ranks)
    if newest is not None:
        place, saved = ranks.all_or_none(lambda: checkpoint.load(newest, model, optimizer, split))
        average = RunningAverage(model, saved)
        run.log("resumed", step=place.step, epoch=place.epoch, seconds=round(place.seconds, 1))
    replicas = Replicas(model, ranks, () if split is None else split.names) if ranks.several else None
    clock, memory = _Clock(place, config.clock), Fragments()
    if ranks.several:
        clock.agree(place.seconds)
    result = Result(place, "finished", validated=validate is not None)

    def save() -> None:
        place.seconds = clock.seconds()
        if split is not None:
            checkpoint.save_split(run.checkpoints, place, model, average.tensors(), optimizer, split, ranks)
        else:
            ranks.from_first(lambda: checkpoint.save(run.checkpoints, place, model, average.tensors(), optimizer).name)
        run.log("checkpoint", step=place.step, epoch=place.epoch, seconds=round(place.seconds, 1))
        clock.saved = time.monotonic()

    def report(fraction: float) -> None:
        """Tell what the steps since the last report were like."""
        facts = {
            "step": place.step,
            "epoch": place.epoch,
            "seconds": round(clock.seconds(), 1),
            "fraction": round(fraction, 4),
            **clock.rates(),
            "resident_mib": resident_bytes() >> 20,
        }
        run.log("steps", **facts)
        listener.stepped(fraction, facts)

    def check(fraction: float) -> bool:
        """Validate the average, on rank 0; whether the run goes on, on every rank."""
        if clock.counted:
            report(fraction)
        memory.release()
        place.validations += 1
        averaged = average.weights()
        if split is None:
            return ranks.from_first(lambda: judge(fraction, model, averaged))
        with exchange("gathering the weights to validate"):
            whole = split.gathered({**model.state_dict(), **averaged})
        return ranks.from_first(lambda: judge(fraction, split.whole_model(whole), whole))

    def judge(fraction: float, judged: QueryModel, averaged: dict[str, torch.Tensor]) -> bool:
        """Validate ``averaged`` in the place of the weights of ``judged``; whether the run goes on."""
        if validate is None:
            keep({**judged.state_dict(), **averaged}, {"step": place.step, "epoch": place.epoch})
            run.log("kept", step=place.step, epoch=place.epoch, seconds=round(clock.seconds(), 1))
            return True
        own = {name: weight.detach().clone() for name, weight in learnt(judged).items()} if judged is model else {}
        judged.load_state_dict(averaged, strict=False)
        judged.eval()
        with torch.inference_mode():
            metrics = validate(judged)
        judged.load_state_dict(own, strict=False)
        judged.train()
        place.since_best += 1
        chosen_by = next(iter(metrics.values()))
        if chosen_by > place.best:
            place.best, place.since_best = chosen_by, 0
            result.metrics = metrics
            keep({**judged.state_dict(), **averaged}, {"step": place.step, "epoch": place.epoch, **metrics})
        facts = {
            "step": place.step,
            "epoch": place.epoch,
            "seconds": round(clock.seconds(), 1),
            "fraction": round(fraction, 4),
            **metrics,
            "best": place.best,
        }
        run.log("validation", **facts)
        listener.validated(facts)
        return not config.patience or place.since_best < config.patience

    model.train()
    torch.set_flush_denormal(True)  # moments of rarely seen entities decay into denormals, which are slow
    # torchrun passes on a signal that the terminal has sent already: a second one means nothing there.
    stop = _StopSignals(patient=ranks.several)
    try:
        while (fraction := _fraction(config, place.epoch, clock)) < 1.0:
            epoch = stream.epoch(place.epoch)
            for queries, batch in epoch.from_batch(place.batch):
                if ranks.several:
                    pulse = ranks.pulse(
                        predictions=predictions(model, batch),
                        queries=queries,
                        seconds=clock.live(),
                        stop=stop.asked,
                        save=clock.save_due(config),
                    )
                    clock.agree(pulse.seconds)
                else:
                    pulse = None
                fraction = _fraction(config, place.epoch + place.batch / len(epoch), clock)
                if fraction >= 1.0:
                    break
                # Before the step, not after it: a run that was stopped when a validation was due begins with it.
                if place.step and fraction * config.validations >= place.validations + 1:
                    go_on = check(fraction)
                    save()
                    if not go_on:
                        result.reason = "stopped early"
                        break
                elif clock.save_due(config) if pulse is None else pulse.save:
                    save()
                loss = _step(model, batch, optimizer, average, config, place, fraction, replicas, pulse)
                place.step += 1
                place.batch += 1
                clock.count(queries if pulse is None else pulse.queries, loss)
                if stop.asked if pulse is None else pulse.stop:
                    result.reason, result.signal = "interrupted", stop.number
                    break
                memory.stepped()
                if clock.due(LOG_SECONDS):
                    report(fraction)
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
    run.log(
        "ended",
        reason=result.reason,
        step=place.step,
        seconds=round(clock.seconds(), 1),
        peak_resident_mib=peak_resident_bytes() >> 20,
    )
    return result


class _StopSignals:
    """Notes an interrupt or a polite kill, so that a step is never cut in two; a second one ends at once.

    Handlers are set even where the interrupt was ignored before, as shells do for programs in the background.
    """

    def __init__(self, patient: bool = False) -> None:
        """``patient``: however often it is asked, the step is ended first."""
        self.asked = False
        self.number: int | None = None
        self._patient = patient
        self._before: dict[int, Any] = {}
        if threading.current_thread() is threading.main_thread():
            for number in (signal.SIGINT, signal.SIGTERM):
                self._before[number] = signal.signal(number, self._note)

    def _note(self, number: int, frame: Any) -> None:
        if self.asked and not self._patient:
            raise KeyboardInterrupt
        self.asked, self.number = True, number

    def restore(self) -> None:
        """Put the handlers back that were there before."""
        for number, handler in self._before.items():
            signal.signal(number, handler)


def _step(
    model: QueryModel,
    batch: Any,
    optimizer: torch.optim.Optimizer,
    average: RunningAverage,
    config: TrainConfig,
    place: Place,
    fraction: float,
    replicas: Replicas | None = None,
    pulse: Pulse | None = None,
) -> float:
    """One step; its loss. With several ranks, of this rank's queries, unless the table of entities is split."""
    rate = config.learning_rate * min(1.0, (place.step + 1) / max(1, config.warmup_steps)) * (1.0 - fraction)
    for group in optimizer.param_groups:
        group["lr"] = rate
    if replicas is None or pulse is None:
        loss = model.loss(batch, label_smoothing=config.label_smoothing)
        optimizer.zero_grad(set_to_none=getattr(model, "uses_all_weights", False))
        loss.backward()
        norm = clip_gradients(model, config.clip)
    else:
        replicas.seed(config.seed, place.step)
        optimizer.zero_grad(set_to_none=False)
        loss, norm = replicas.backward(batch, config.label_smoothing, pulse.share, config.clip)
    if not torch.isfinite(norm):
        raise RunFailed(
            f"the loss is no longer a number at step {place.step:,} (rate {rate:.2g})",
            hint="start a new run with a lower rate, -O learning_rate=VALUE; going on with this one "
            "leads to the same step",
        )
    average.before_step()
    optimizer.step()
    # Early weights are forgotten quickly, so that the average is worth validating from the start.
    average.after_step(min(config.average, (1 + place.step) / (10 + place.step)))
    return float(loss.detach())


def _fraction(config: TrainConfig, epochs: float, clock: _Clock) -> float:
    """How much of the run is done after ``epochs`` of them, from 0 to 1."""
    if config.minutes is not None:
        return min(1.0, clock.seconds() / (60 * (config.minutes - config.links_minutes)))
    assert config.epochs is not None
    return min(1.0, epochs / config.epochs)


class _Clock:
    """Time used over all parts of a run, and what was done since the last look."""

    def __init__(self, place: Place, kind: str) -> None:
        self._now = time.monotonic if kind == "wall" else _processor_seconds
        self._started = self._now() - place.seconds
        self._agreed: float | None = None
        self.saved = time.monotonic()
        self._reset()

    def _reset(self) -> None:
        self._looked = time.monotonic()
        self._queries, self._losses = 0, [0.0, 0]

    def live(self) -> float:
        """Time used by this process, now."""
        return self._now() - self._started

    def agree(self, seconds: float) -> None:
        """Stand still at ``seconds``, which all ranks agree on, until the next time."""
        self._agreed = seconds

    def seconds(self) -> float:
        return self.live() if self._agreed is None else self._agreed

    def save_due(self, config: TrainConfig) -> bool:
        return time.monotonic() - self.saved > 60 * config.checkpoint_minutes

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
