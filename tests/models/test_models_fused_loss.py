"""The fused projection and loss against the plain one, in value and in all gradients."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.nn.functional import cross_entropy

from biqe.models import _fused_loss
from biqe.models._fused_loss import Expert, fused_cross_entropy, fused_soft_cross_entropy, repeat_rows


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


@given(st.integers(1, 9), st.integers(2, 12), st.sampled_from([0.0, 0.1]), st.booleans(), st.integers(0, 99))
def test_soft_equals_plain(rows, entities, smoothing, biased, seed):
    """Several true entities a row, an equal share for each: torch's own loss against class probabilities."""
    generator = torch.Generator().manual_seed(seed)
    hidden, weight = torch.randn(rows, 4, generator=generator), torch.randn(entities, 4, generator=generator)
    bias = torch.randn(entities, generator=generator) if biased else None
    true = torch.rand(rows, entities, generator=generator) < 0.3
    true[:, 0] |= ~true.any(1)  # torch's loss wants probabilities that add up to 1
    offsets = torch.cat([torch.zeros(1, dtype=torch.long), true.sum(1).cumsum(0)])
    answers = true.nonzero()[:, 1]
    shares = true / true.sum(1, keepdim=True)
    results = []
    for fused in (True, False):
        h, w = hidden.clone().requires_grad_(), weight.clone().requires_grad_()
        b = None if bias is None else bias.clone().requires_grad_()
        if fused:
            value = fused_soft_cross_entropy(h, w, b, offsets, answers, smoothing)
        else:
            value = cross_entropy(h @ w.T + (0 if b is None else b), shares, label_smoothing=smoothing)
        value.backward()
        results.append([value.detach(), h.grad, w.grad, *([] if b is None else [b.grad])])
    for ours, plain in zip(*results, strict=True):
        torch.testing.assert_close(ours, plain, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
@pytest.mark.parametrize("chunk_rows", [100, 2])
def test_a_row_that_counts_twice_is_a_row_that_is_there_twice(monkeypatch, smoothing, chunk_rows):
    monkeypatch.setattr(_fused_loss, "CHUNK_BYTES", chunk_rows * 12 * 8)
    draw = lambda *shape: torch.randn(*shape, dtype=torch.float64)  # noqa: E731
    hidden, weight, bias, opinion, table = draw(4, 5), draw(12, 5), draw(12), draw(4, 3), draw(12, 3)
    gate, often = torch.rand(4, 1, dtype=torch.float64), torch.tensor([2, 1, 3, 1])
    gold = torch.randint(12, (4,))
    results = []
    for weighed in (True, False):
        h, w, b, g = (part.clone().requires_grad_() for part in (hidden, weight, bias, gate))
        if weighed:
            value = fused_soft_cross_entropy(
                h, w, b, torch.arange(5), gold, smoothing, Expert(opinion, table, g), weights=often.double()
            )
        else:
            logits = (h @ w.T + b + g * (opinion @ table.T)).repeat_interleave(often, 0)
            value = cross_entropy(logits, gold.repeat_interleave(often), label_smoothing=smoothing)
        (2 * value).backward()
        results.append([value.detach(), h.grad, w.grad, b.grad, g.grad])
    for ours, plain in zip(*results, strict=True):
        torch.testing.assert_close(ours, plain)


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
@pytest.mark.parametrize("chunk_rows", [100, 3])
def test_an_expert_adds_its_logits(monkeypatch, smoothing, chunk_rows):
    monkeypatch.setattr(_fused_loss, "CHUNK_BYTES", chunk_rows * 12 * 8)
    draw = lambda *shape: torch.randn(*shape, dtype=torch.float64)  # noqa: E731
    hidden, weight, bias, gate = draw(7, 4), draw(12, 4), draw(12), draw(7, 1)
    second, table, gold = draw(7, 5), draw(12, 5), torch.randint(12, (7,))
    results = []
    for fused in (True, False):
        inputs = h, w, b, g = [part.clone().requires_grad_() for part in (hidden, weight, bias, gate)]
        expert = Expert(second, table, g)
        if fused:
            value = fused_cross_entropy(h, w, b, gold, smoothing, expert)
        else:
            value = cross_entropy(h @ w.T + b + expert.logits(), gold, label_smoothing=smoothing)
        value.backward()
        results.append([value.detach(), *(part.grad for part in inputs)])
    for ours, plain in zip(*results, strict=True):
        torch.testing.assert_close(ours, plain)


def test_soft_chunks_do_not_show(monkeypatch):
    hidden, weight, bias = torch.randn(10, 5), torch.randn(20, 5), torch.randn(20)
    offsets = torch.tensor([0, 2, 2, 3, 7, 8, 9, 9, 12, 13, 14])
    answers = torch.tensor([1, 4, 0, 2, 3, 5, 9, 7, 7, 1, 2, 19, 0, 5])
    whole = fused_soft_cross_entropy(hidden, weight, bias, offsets, answers, 0.1)
    monkeypatch.setattr(_fused_loss, "CHUNK_BYTES", 3 * 20 * 4)
    torch.testing.assert_close(fused_soft_cross_entropy(hidden, weight, bias, offsets, answers, 0.1), whole)


def test_rows_are_repeated_with_their_entities():
    offsets, answers = repeat_rows(
        torch.tensor([0, 2, 2, 5]), torch.tensor([4, 8, 1, 2, 3]), torch.tensor([2, 1, 0, 2])
    )
    assert offsets.tolist() == [0, 3, 3, 5, 8] and answers.tolist() == [1, 2, 3, 4, 8, 1, 2, 3]


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
