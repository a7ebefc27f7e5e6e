"""The fused projection and loss against the plain one, in value and in all gradients."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.nn.functional import cross_entropy

from biqe.models import _fused_loss
from biqe.models._fused_loss import fused_cross_entropy


def both(rows, width, entities, smoothing, seed, dtype=torch.float64, scale=1.0):
    generator = torch.Generator().manual_seed(seed)
    draw = lambda *shape: torch.randn(*shape, generator=generator, dtype=dtype) * scale  # noqa: E731
    hidden, weight, bias = draw(rows, width), draw(entities, width), draw(entities)
    gold = torch.randint(entities, (rows,), generator=generator)
    results = []
    for loss in (
        lambda h, w, b: fused_cross_entropy(h, w, b, gold, smoothing),
        lambda h, w, b: cross_entropy(h @ w.T + b, gold, label_smoothing=smoothing),
    ):
        inputs = [part.clone().requires_grad_() for part in (hidden, weight, bias)]
        value = loss(*inputs)
        (3 * value).backward()
        results.append((value.detach(), *(part.grad for part in inputs)))
    return results


@given(st.integers(1, 9), st.integers(1, 6), st.integers(2, 20), st.sampled_from([0.0, 0.1, 0.5]), st.integers(0, 99))
def test_fused_equals_plain(rows, width, entities, smoothing, seed):
    for fused, plain in zip(*both(rows, width, entities, smoothing, seed), strict=True):
        torch.testing.assert_close(fused, plain)


def test_chunks_do_not_show(monkeypatch):
    monkeypatch.setattr(_fused_loss, "CHUNK_BYTES", 3 * 20 * 8)  # three rows of twenty entities
    for fused, plain in zip(*both(10, 5, 20, 0.1, 0), strict=True):
        torch.testing.assert_close(fused, plain)


def test_logits_far_apart_stay_finite():
    """A gold entity whose probability underflows still has a finite loss and gradient."""
    for fused, plain in zip(*both(6, 4, 12, 0.1, 1, torch.float32, 30.0), strict=True):
        assert torch.isfinite(fused).all()
        torch.testing.assert_close(fused, plain, rtol=1e-4, atol=1e-3)


def test_buffers_are_reused():
    both(4, 3, 50, 0.0, 0)
    before = {key: buffer.data_ptr() for key, buffer in _fused_loss._buffers.items()}
    both(4, 3, 50, 0.0, 1)
    assert {key: buffer.data_ptr() for key, buffer in _fused_loss._buffers.items()} == before


@pytest.mark.parametrize("share", [0.1, 0.5])
def test_pooled_dropout_keeps_the_mean_and_stops_in_evaluation(share):
    from biqe.models._dropout import PooledDropout

    torch.manual_seed(0)
    dropout, x = PooledDropout(share), torch.ones(400, 256)
    y = dropout(x)
    assert abs(float(y.mean()) - 1.0) < 0.02
    assert abs(float((y == 0).float().mean()) - share) < 0.02
    assert not torch.equal(y, dropout(x))
    assert torch.equal(dropout.eval()(x), x)
