"""Settings of a run: what is refused, and how."""

from __future__ import annotations

import pytest

from biqe.errors import InvalidOption
from biqe.training.config import TrainConfig


@pytest.mark.parametrize(
    ("values", "complaint"),
    [
        ({}, "either 'minutes' or 'epochs'"),
        ({"minutes": 1, "epochs": 1}, "not both"),
        ({"minutes": -1}, "above 0"),
        ({"epochs": 1, "label_smoothing": 1.0}, "label_smoothing"),
        ({"epochs": 1, "hide_share": 0.7, "reveal_share": 0.7}, "together"),
        ({"epochs": 1, "batch_tokens": 0}, "at least 1"),
        ({"epochs": float("nan")}, "above 0"),
        ({"epochs": float("inf")}, "finite"),
        ({"epochs": 1, "weight_decay": float("nan")}, "finite"),
        ({"epochs": 1, "learning_rate": float("inf")}, "finite"),
        ({"epochs": 1, "seed": 2**63}, "at most"),
        ({"epochs": 1, "threads": 100_000}, "at most 1,024"),
    ],
)
def test_settings_are_checked(values, complaint):
    with pytest.raises(InvalidOption, match=complaint) as refused:
        TrainConfig(**values)
    assert refused.value.hint


def test_every_default_is_allowed_and_named_in_the_hint():
    TrainConfig(epochs=1)
    with pytest.raises(InvalidOption) as refused:
        TrainConfig(epochs=1, batch_tokens=-1)
    assert refused.value.hint == "-O batch_tokens=VALUE takes a whole number from 1 up; the default is 6000"
    with pytest.raises(InvalidOption) as refused:
        TrainConfig(epochs=1, negatives=0)
    assert refused.value.hint.startswith("--negatives takes")
