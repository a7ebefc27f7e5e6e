"""Projection onto all entities and cross-entropy, in one pass, a chunk of rows at a time.

The plain road makes a (V, E) matrix of logits, keeps it for the backward pass and makes a second one of
gradients. Here a chunk of rows is projected, turned into probabilities, and used at once for both gradients;
the same two buffers serve every chunk of every step. Label smoothing costs nothing, since its gradient has a
closed form: it moves every hidden row by the mean entity and every entity by the mean hidden row.
"""

from __future__ import annotations

from typing import Any

import torch

CHUNK_BYTES = 8 << 20
"""Size of one buffer of logits. It should stay within the processor's last cache."""

_buffers: dict[tuple[int, torch.dtype], torch.Tensor] = {}


def _scratch(slot: int, rows: int, columns: int, dtype: torch.dtype) -> torch.Tensor:
    key = (slot, dtype)
    buffer = _buffers.get(key)
    if buffer is None or buffer.numel() < rows * columns:
        buffer = _buffers[key] = torch.empty(rows * columns, dtype=dtype)
    return buffer[: rows * columns].view(rows, columns)


class _FusedCrossEntropy(torch.autograd.Function):
    @staticmethod
    def forward(  # type: ignore[override]
        ctx: Any,
        hidden: torch.Tensor,  # (V, D)
        weight: torch.Tensor,  # (E, D)
        bias: torch.Tensor,  # (E,)
        gold: torch.Tensor,  # (V,)
        smoothing: float,
    ) -> torch.Tensor:
        count, entities = len(hidden), len(weight)
        rows = max(1, min(count, CHUNK_BYTES // (entities * hidden.element_size())))
        grad_hidden = torch.empty_like(hidden)
        grad_weight = torch.zeros_like(weight)
        grad_bias = torch.zeros_like(bias)
        mean_weight, mean_bias = weight.mean(0), bias.mean()
        log_sum = hidden.new_empty(count)
        gold_logit = hidden.new_empty(count)
        ones = hidden.new_ones(rows)
        for start in range(0, count, rows):
            part = slice(start, min(start + rows, count))
            h, y = hidden[part], gold[part].unsqueeze(1)
            logits = torch.addmm(bias, h, weight.t(), out=_scratch(0, len(h), entities, h.dtype))
            gold_logit[part] = logits.gather(1, y).squeeze(1)
            top, where = logits.max(1, keepdim=True)
            p = torch.softmax(logits, 1, out=_scratch(1, len(h), entities, h.dtype))
            # The largest logit has probability 1 / sum(exp(logit - top)), which never underflows.
            log_sum[part] = (top - p.gather(1, where).log()).squeeze(1)
            p.scatter_add_(1, y, p.new_full((len(h), 1), smoothing - 1.0))
            torch.mm(p, weight, out=grad_hidden[part])
            grad_weight.addmm_(p.t(), h)
            grad_bias.addmv_(p.t(), ones[: len(h)])
        loss = log_sum.mean() - (1.0 - smoothing) * gold_logit.mean()
        if smoothing:
            mean_hidden = hidden.mean(0)
            loss = loss - smoothing * (mean_hidden @ mean_weight + mean_bias)
            grad_hidden.sub_(mean_weight, alpha=smoothing)
            grad_weight.sub_(mean_hidden, alpha=smoothing * count / entities)
            grad_bias.sub_(smoothing * count / entities)
        ctx.save_for_backward(grad_hidden, grad_weight, grad_bias)
        ctx.count = count
        return loss

    @staticmethod
    def backward(ctx: Any, grad_output: torch.Tensor) -> tuple[torch.Tensor | None, ...]:  # type: ignore[override]
        grad_hidden, grad_weight, grad_bias = ctx.saved_tensors
        scale = grad_output / ctx.count
        return grad_hidden.mul_(scale), grad_weight.mul_(scale), grad_bias.mul_(scale), None, None


def fused_cross_entropy(
    hidden: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor, gold: torch.Tensor, smoothing: float = 0.0
) -> torch.Tensor:
    """Mean cross-entropy of ``hidden @ weight.T + bias`` against ``gold``, with label smoothing.

    Equal to ``torch.nn.functional.cross_entropy`` on those logits, in value and gradients. The gradients are
    made in the forward pass and handed out once: a second backward over one forward is not supported.
    """
    return _FusedCrossEntropy.apply(hidden, weight, bias, gold, smoothing)  # type: ignore[no-any-return]
