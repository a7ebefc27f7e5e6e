"""The clock of a run: what it counts, and what is due."""

from __future__ import annotations

import time

import pytest

from biqe.errors import InvalidOption
from biqe.training import session
from biqe.training.clock import Clock
from biqe.training.config import TrainConfig


def test_the_processor_clock_counts_work_and_not_waiting():
    wall, processor = (Clock(TrainConfig(epochs=1, clock=kind), used=5.0) for kind in ("wall", "processor"))
    time.sleep(0.5)
    assert wall.seconds() >= 5.5 and processor.seconds() < 5.4
    begun = time.thread_time()
    while time.thread_time() - begun < 0.3:
        sum(range(1000))
    assert processor.seconds() >= 5.3


def test_a_shared_clock_stands_still_until_the_ranks_agree():
    clock = Clock(TrainConfig(minutes=1), used=6.0, shared=True)
    time.sleep(0.02)
    assert clock.seconds() == 6.0 and clock.fraction(0) == 0.1 and clock.live() > 6.0
    clock.agree(90.0)
    assert clock.seconds() == 90.0 and clock.fraction(0) == 1.0


def test_rates_are_those_since_the_last_report():
    clock = Clock(TrainConfig(epochs=2))
    assert not clock.counted and clock.fraction(0.5) == 0.25
    clock.count(10, 3.0)
    clock.count(10, 1.0)
    assert clock.counted and clock.rates()["loss"] == 2.0
    assert not clock.counted and clock.rates()["loss"] == 0.0


def test_a_run_says_by_which_clock_it_was_measured():
    with pytest.raises(InvalidOption, match="'clock' must be wall or processor"):
        TrainConfig(minutes=1, clock="sand")
    assert session._budget(TrainConfig(minutes=2, clock="processor")) == "2 minutes of processor time"
