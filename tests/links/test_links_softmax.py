"""Products with all entities, and the loss over them, against the plain ones, in value and in all gradients."""

from __future__ import annotations

from contextlib import nullcontext

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.nn.functional import cross_entropy, linear

from biqe.links import softmax
from biqe.links.softmax import FEW_ROWS, bfloat16_products, repeat_rows, soft_cross_entropy, with_all


def both(rows, width, entities, smoothing, seed, dtype=torch.float64, scale=1.0):
    generator = torch.Generator().manual_seed(seed)
    draw = lambda *shape: torch.randn(*shape, generator=generator, dtype=dtype) * scale  # noqa: E731
    hidden, weight, bias = draw(rows, width), draw(entities, width), draw(entities)
    gold = torch.randint(entities, (rows,), generator=generator)
    results = []
    for loss in (
        lambda h, w, b: soft_cross_entropy(h, w, b, torch.arange(rows + 1), gold, smoothing),
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
    monkeypatch.setattr(softmax, "CHUNK_BYTES", 3 * 20 * 8)  # three rows of twenty entities
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
            value = soft_cross_entropy(h, w, b, offsets, answers, smoothing)
        else:
            value = cross_entropy(h @ w.T + (0 if b is None else b), shares, label_smoothing=smoothing)
        value.backward()
        results.append([value.detach(), h.grad, w.grad, *([] if b is None else [b.grad])])
    for ours, plain in zip(*results, strict=True):
        torch.testing.assert_close(ours, plain, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
@pytest.mark.parametrize("chunk_rows", [100, 2])
def test_a_row_that_counts_twice_is_a_row_that_is_there_twice(monkeypatch, smoothing, chunk_rows):
    monkeypatch.setattr(softmax, "CHUNK_BYTES", chunk_rows * 12 * 8)
    draw = lambda *shape: torch.randn(*shape, dtype=torch.float64)  # noqa: E731
    hidden, weight, bias, often = draw(4, 5), draw(12, 5), draw(12), torch.tensor([2, 1, 3, 1])
    gold = torch.randint(12, (4,))
    results = []
    for weighed in (True, False):
        h, w, b = (part.clone().requires_grad_() for part in (hidden, weight, bias))
        if weighed:
            value = soft_cross_entropy(h, w, b, torch.arange(5), gold, smoothing, often.double())
        else:
            logits = (h @ w.T + b).repeat_interleave(often, 0)
            value = cross_entropy(logits, gold.repeat_interleave(often), label_smoothing=smoothing)
        (2 * value).backward()
        results.append([value.detach(), h.grad, w.grad, b.grad])
    for ours, plain in zip(*results, strict=True):
        torch.testing.assert_close(ours, plain)


def test_soft_chunks_do_not_show(monkeypatch):
    hidden, weight, bias = torch.randn(10, 5), torch.randn(20, 5), torch.randn(20)
    offsets = torch.tensor([0, 2, 2, 3, 7, 8, 9, 9, 12, 13, 14])
    answers = torch.tensor([1, 4, 0, 2, 3, 5, 9, 7, 7, 1, 2, 19, 0, 5])
    whole = soft_cross_entropy(hidden, weight, bias, offsets, answers, 0.1)
    monkeypatch.setattr(softmax, "CHUNK_BYTES", 3 * 20 * 4)
    torch.testing.assert_close(soft_cross_entropy(hidden, weight, bias, offsets, answers, 0.1), whole)


def test_rows_are_repeated_with_their_entities():
    offsets, answers = repeat_rows(
        torch.tensor([0, 2, 2, 5]), torch.tensor([4, 8, 1, 2, 3]), torch.tensor([2, 1, 0, 2])
    )
    assert offsets.tolist() == [0, 3, 3, 5, 8] and answers.tolist() == [1, 2, 3, 4, 8, 1, 2, 3]


def test_buffers_are_reused():
    both(4, 3, 50, 0.0, 0)
    before = {key: buffer.data_ptr() for key, buffer in softmax._buffers.items()}
    both(4, 3, 50, 0.0, 1)
    assert {key: buffer.data_ptr() for key, buffer in softmax._buffers.items()} == before


@pytest.fixture
def every_table_is_large(monkeypatch):
    monkeypatch.setattr(softmax, "SMALL_TABLE", 0)


@pytest.mark.usefixtures("every_table_is_large")
@pytest.mark.parametrize("entities", [1, 16, 37])
@pytest.mark.parametrize("rows", [0, 1, 2, 9, FEW_ROWS, FEW_ROWS + 1, 3 * FEW_ROWS])
@pytest.mark.parametrize("has_bias", [False, True])
def test_products_with_all_are_the_plain_product(rows, entities, has_bias):
    torch.manual_seed(0)
    hidden, table = torch.randn(rows, 8), torch.randn(entities, 8)
    bias = torch.randn(entities) if has_bias else None
    with torch.inference_mode():
        found = with_all(hidden, table, bias)
    assert found.shape == (rows, entities) and found.is_contiguous()
    assert torch.allclose(found, linear(hidden, table, bias), atol=1e-5)


@pytest.mark.usefixtures("every_table_is_large")
def test_few_rows_of_a_huge_table_are_the_plain_product_too(monkeypatch):
    monkeypatch.setattr(softmax, "FEW_RESULTS", 100)
    hidden, table = torch.randn(5, 8), torch.randn(50, 8)
    with torch.inference_mode():
        assert torch.allclose(with_all(hidden, table), hidden @ table.t(), atol=1e-5)
        assert torch.allclose(with_all(hidden[:1], table), hidden[:1] @ table.t(), atol=1e-5)


@pytest.mark.usefixtures("every_table_is_large")
def test_gradients_flow_through_products_with_all():
    hidden, table = torch.randn(3, 8, requires_grad=True), torch.randn(20, 8, requires_grad=True)
    with_all(hidden, table).square().sum().backward()
    own = hidden.grad.clone(), table.grad.clone()
    hidden.grad = table.grad = None
    (hidden @ table.t()).square().sum().backward()
    assert torch.allclose(own[0], hidden.grad, atol=1e-4) and torch.allclose(own[1], table.grad, atol=1e-4)


@pytest.fixture
def by_halves(monkeypatch):
    """A processor that multiplies bfloat16 faster, and tables that are large from a few numbers on."""
    monkeypatch.setattr(softmax, "processor_multiplies_bfloat16", lambda: True)
    monkeypatch.setattr(softmax, "SMALL_TABLE", 1)
    monkeypatch.setattr(softmax, "CHUNK_BYTES", 16 * 300 * 4)  # sixteen rows of three hundred entities


@pytest.mark.parametrize(("smoothing", "weighted", "biased"), [(0.0, True, False), (0.1, False, True)])
def test_products_in_bfloat16_give_the_loss_and_its_gradients_to_a_hundredth(by_halves, smoothing, weighted, biased):
    generator = torch.Generator().manual_seed(0)
    hidden, weight = torch.randn(50, 32, generator=generator), torch.randn(300, 32, generator=generator)
    bias = torch.randn(300, generator=generator) if biased else None
    answers, weights = torch.randint(300, (50,), generator=generator), torch.arange(1.0, 51.0) if weighted else None
    found = []
    for within in (nullcontext, bfloat16_products):
        inputs = [None if part is None else part.clone().requires_grad_() for part in (hidden, weight, bias)]
        with within():
            value = soft_cross_entropy(*inputs, torch.arange(51), answers, smoothing, weights)
        value.backward()
        found.append([value.detach(), *(part.grad for part in inputs if part is not None)])
    single, half = found
    assert single[0] == pytest.approx(float(half[0]), rel=1e-3)
    for one, other in zip(single[1:], half[1:], strict=True):
        assert other.dtype == torch.float32
        assert float((one - other).norm()) < 0.01 * float(one.norm())
        assert not torch.equal(one, other)


def test_products_are_in_single_precision_where_nobody_asks_for_less(by_halves):
    fused = both(10, 5, 20, 0.1, 0, torch.float32)[0]
    with bfloat16_products():
        half = both(10, 5, 20, 0.1, 0, torch.float32)[0]
    again = both(10, 5, 20, 0.1, 0, torch.float32)[0]
    assert all(torch.equal(one, other) for one, other in zip(fused, again, strict=True))
    assert not torch.equal(fused[2], half[2])


def test_small_tables_and_other_processors_stay_in_single_precision(monkeypatch):
    single = both(10, 5, 20, 0.1, 0, torch.float32)[0]
    for name, value in (("processor_multiplies_bfloat16", lambda: True), ("SMALL_TABLE", 1)):
        with monkeypatch.context() as patch, patch.context() as inner:
            inner.setattr(softmax, "processor_multiplies_bfloat16", lambda: False)
            inner.setattr(softmax, name, value)
            with bfloat16_products():
                found = both(10, 5, 20, 0.1, 0, torch.float32)[0]
        assert all(torch.equal(one, other) for one, other in zip(single, found, strict=True))
