"""The clock of a run: time used, the share of the run that is done, and what is due."""

from __future__ import annotations

import time

import torch

from biqe.training.config import TrainConfig

REPORT_SECONDS = 2.0
"""How often the trace gets a line about steps."""


class Clock:
    """Time used over all parts of a run, and what was done since the last report."""

    def __init__(self, config: TrainConfig, used: float = 0.0, *, shared: bool = False) -> None:
        """``used``: seconds before this part of the run. ``shared``: the time is what ``agree`` said last."""
        self._config = config
        self._now = time.monotonic if config.clock == "wall" else _processor_seconds
        self._started = self._now() - used
        self._agreed = used if shared else None
        self._saved = time.monotonic()
        self._reset()

    def live(self) -> float:
        """Seconds used, by the clock of this process, now."""
        return self._now() - self._started

    def agree(self, seconds: float) -> None:
        """Stand still at ``seconds``, on which all ranks agree, until the next call."""
        self._agreed = seconds

    def seconds(self) -> float:
        """Seconds used."""
        return self.live() if self._agreed is None else self._agreed

    def fraction(self, epochs: float) -> float:
        """How much of the run is done after ``epochs`` epochs, from 0 to 1."""
        if self._config.minutes is not None:
            return min(1.0, self.seconds() / (60 * (self._config.minutes - self._config.links_minutes)))
        assert self._config.epochs is not None
        return min(1.0, epochs / self._config.epochs)

    def saved(self) -> None:
        """A checkpoint was written."""
        self._saved = time.monotonic()

    def save_due(self) -> bool:
        """Whether the last checkpoint is older than the settings allow."""
        return time.monotonic() - self._saved > 60 * self._config.checkpoint_minutes

    def count(self, queries: int, loss: float) -> None:
        """A step was taken."""
        self._queries += queries
        self._loss += loss
        self._steps += 1

    @property
    def counted(self) -> bool:
        """Whether steps were taken since the last report."""
        return self._steps > 0

    def report_due(self) -> bool:
        return time.monotonic() - self._reported >= REPORT_SECONDS

    def rates(self) -> dict[str, float]:
        """Mean loss and queries a second since the last call."""
        rate = self._queries / max(1e-9, time.monotonic() - self._reported)
        loss = self._loss / max(1, self._steps)
        self._reset()
        return {"loss": round(loss, 4), "queries_per_second": round(rate, 1)}

    def _reset(self) -> None:
        self._reported = time.monotonic()
        self._queries, self._steps, self._loss = 0, 0, 0.0


def _processor_seconds() -> float:
    """Seconds that this process would have taken so far with the cores to itself, as nearly as can be told.

    The thread that takes the steps works through all of them, and waits at the end of a matrix product only for
    threads that were kept from their core; what those used is in the time of the process.
    """
    return max(time.thread_time(), time.process_time() / torch.get_num_threads())
