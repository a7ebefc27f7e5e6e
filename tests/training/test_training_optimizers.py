"""Updates by rows against the ordinary optimisers, and the running average against its definition."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from biqe.training.optimizers import RowAdagrad, RowAdamW, RunningAverage, clip_gradients

ROWS, WIDTH = 7, 3
KINDS = {
    "adamw": (RowAdamW, torch.optim.AdamW, {"lr": 0.1, "betas": (0.9, 0.98), "weight_decay": 0.05}),
    "adagrad": (RowAdagrad, torch.optim.Adagrad, {"lr": 0.1, "weight_decay": 0.0}),
    "adagrad with decay": (RowAdagrad, torch.optim.Adagrad, {"lr": 0.1, "weight_decay": 0.1}),
}


class Table(torch.nn.Module):
    """A table of which steps touch some rows, and a weight that every step touches."""

    def __init__(self, *shape: int) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.table = torch.nn.Parameter(torch.randn(*shape))
        self.other = torch.nn.Parameter(torch.randn(4))


def set_sparse(weight: torch.Tensor, rows: list[int], values: torch.Tensor) -> None:
    """A gradient in which rows may stand twice, as a sum of lookups leaves it."""
    weight.grad = torch.sparse_coo_tensor(torch.tensor([rows]), values, weight.shape, check_invariants=True)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("shape", [(ROWS, WIDTH), (ROWS,)])
@settings(max_examples=15)
@given(touched=st.lists(st.sets(st.integers(0, ROWS - 1), min_size=1), min_size=1, max_size=8))
def test_a_row_moves_as_if_only_the_steps_that_touch_it_existed(kind, shape, touched):
    """Each row by itself under the ordinary optimiser, over the steps that touch it, is the other road. A row that is
    touched at every step is thereby as under the ordinary optimiser."""
    ours, theirs, options = KINDS[kind]
    model = Table(*shape)
    alone = [torch.nn.Parameter(model.table.detach()[row].clone()) for row in range(ROWS)]
    optimizer, each = (
        ours([model.table, model.other], fused=True, **options),
        [theirs([row], **options) for row in alone],
    )
    draw = torch.Generator().manual_seed(1)
    for step, rows in enumerate(touched):
        rate = 0.1 / (step + 1)
        values = torch.randn(len(rows), *shape[1:], generator=draw)
        set_sparse(model.table, [*rows, *rows], torch.cat([0.25 * values, 0.75 * values]))
        model.other.grad = torch.ones(4)
        optimizer.param_groups[0]["lr"] = rate
        optimizer.step()
        assert model.table.grad is None
        for row, value in zip(rows, values, strict=True):
            alone[row].grad = value
            each[row].param_groups[0]["lr"] = rate
            each[row].step()
    torch.testing.assert_close(model.table.detach(), torch.stack([row.detach() for row in alone]), rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("most", [0.1, 100.0])
def test_clipping_is_that_of_dense_gradients(most):
    model, dense = Table(ROWS, WIDTH), Table(ROWS, WIDTH)
    values = torch.randn(3, WIDTH)
    set_sparse(model.table, [1, 4, 1], values)
    dense.table.grad = model.table.grad.to_dense()
    model.other.grad, dense.other.grad = torch.ones(4), torch.ones(4)
    expected = torch.nn.utils.clip_grad_norm_(dense.parameters(), most)
    torch.testing.assert_close(clip_gradients(model, most), expected)
    torch.testing.assert_close(model.table.grad.to_dense(), dense.table.grad)
    torch.testing.assert_close(model.other.grad, dense.other.grad)


@settings(max_examples=30)
@given(
    touched=st.lists(st.sets(st.integers(0, ROWS - 1)), min_size=1, max_size=10),
    decay=st.sampled_from([0.0, 0.5, 0.999]),
    looks=st.sets(st.integers(0, 9)),
)
def test_the_average_of_rows_that_rest_is_made_up_for(touched, decay, looks):
    """Against the definition, every row at every step; looking at it, saving and loading it change nothing."""
    model = Table(ROWS, WIDTH)
    average = RunningAverage(model)
    expected = {name: weight.detach().clone() for name, weight in model.named_parameters()}
    draw = torch.Generator().manual_seed(2)
    for step, rows in enumerate(touched):
        values = torch.randn(len(rows), WIDTH, generator=draw)
        set_sparse(model.table, sorted(rows), values)
        average.before_step()
        with torch.no_grad():
            model.table[sorted(rows)] += values
            model.other += 1.0
        average.after_step(decay)
        for name, weight in model.named_parameters():
            expected[name].lerp_(weight.detach(), 1.0 - decay)
        if step in looks:
            saved = {name: tensor.clone() for name, tensor in average.tensors().items()}
            average = RunningAverage(model, saved)
    for name, tensor in average.weights().items():
        torch.testing.assert_close(tensor, expected[name], rtol=1e-4, atol=1e-5)
