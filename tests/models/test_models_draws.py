"""Random draws of training."""

from __future__ import annotations

import pytest
import torch

from biqe.models._draws import PooledDropout


@pytest.mark.parametrize("share", [0.1, 0.5])
def test_pooled_dropout_keeps_the_mean_and_stops_in_evaluation(share):
    torch.manual_seed(0)
    dropout, x = PooledDropout(share), torch.ones(400, 256)
    y = dropout(x)
    assert abs(float(y.mean()) - 1.0) < 0.02
    assert abs(float((y == 0).float().mean()) - share) < 0.02
    assert not torch.equal(y, dropout(x))
    assert torch.equal(dropout.eval()(x), x)
