"""Projection onto all entities and cross-entropy, in one pass, a chunk of rows at a time.

The plain road makes a (V, E) matrix of logits, keeps it for the backward pass and makes a second one of
gradients. Here a chunk of rows is projected, turned into probabilities, and used at once for both gradients;
the same few buffers serve every chunk of every step. Label smoothing costs nothing, since its gradient has a
closed form: it moves every hidden row by the mean entity and every entity by the mean hidden row.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch

CHUNK_BYTES = 24 << 20
"""Size of one buffer of logits. Larger ones give longer products; above 32 MiB memory is mapped anew each time."""
FEWEST_ROWS = 128
"""Rows of a chunk where entities are too many for that: each chunk reads the whole table three times, so that a few
rows at a time wait for memory."""
MOST_BYTES = 256 << 20
"""Size that a buffer never exceeds, unless one row does."""

_buffers: dict[tuple[int, torch.dtype], torch.Tensor] = {}


def aligned(columns: int) -> int:
    """Columns of a buffer whose rows all begin at the border of a cache line: a product that is written to rows that do
    not takes half as long again (benchmarks/entity_products.py)."""
    return -(-columns // 16) * 16


def scratch(slot: int, rows: int, columns: int, dtype: torch.dtype) -> torch.Tensor:
    """(rows, columns) of a buffer that is made once and used again; one a ``slot`` at a time. Rows are as far apart as
    ``aligned`` says."""
    key, width = (slot, dtype), aligned(columns)
    buffer = _buffers.get(key)
    if buffer is None or buffer.numel() < rows * width:
        buffer = _buffers[key] = torch.empty(rows * width, dtype=dtype)
    return buffer[: rows * width].view(rows, width)[:, :columns]


def rows_at_once(count: int, row_bytes: int) -> int:
    """Rows of a chunk, of ``count`` in all, where each has ``row_bytes`` of logits."""
    return max(1, min(count, max(CHUNK_BYTES // row_bytes, min(FEWEST_ROWS, MOST_BYTES // row_bytes))))


@dataclass(frozen=True)
class Expert:
    """A second opinion that is added to the logits: ``gate * (hidden @ weight.T)``. Only the gate is learnt."""

    hidden: torch.Tensor
    """(V, F)"""
    weight: torch.Tensor
    """(E, F)"""
    gate: torch.Tensor
    """(V, 1)"""

    def logits(self) -> torch.Tensor:
        """(V, E) what it adds."""
        return self.gate * (self.hidden @ self.weight.t())


class _FusedCrossEntropy(torch.autograd.Function):
    @staticmethod
    def forward(  # type: ignore[override]
        ctx: Any,
        hidden: torch.Tensor,  # (V, D)
        weight: torch.Tensor,  # (E, D)
        bias: torch.Tensor | None,  # (E,)
        gate: torch.Tensor | None,  # (V, 1)
        offsets: torch.Tensor,  # (V+1,)
        answers: torch.Tensor,  # true entities of each row, one row after the other
        smoothing: float,
        expert: Expert | None,
        weights: torch.Tensor | None,  # (V,)
    ) -> torch.Tensor:
        count, entities = len(hidden), len(weight)
        counts = hidden.new_ones(count) if weights is None else weights  # what each row counts
        rows, width = rows_at_once(count, entities * hidden.element_size()), aligned(entities)
        grad_hidden = torch.empty_like(hidden)
        grad_weight = torch.empty_like(weight) if count else torch.zeros_like(weight)  # the first chunk fills it
        grad_bias = None if bias is None else torch.zeros_like(bias)
        grad_gate = None if gate is None else torch.empty_like(gate)
        log_sum = hidden.new_empty(count)
        answer_logit = hidden.new_zeros(())
        lengths = offsets[1:] - offsets[:-1]
        share = (1.0 - smoothing) / lengths.clamp_min(1).to(hidden.dtype)
        shares = share.repeat_interleave(lengths)  # what the loss gives each true entity
        counted_shares = shares if weights is None else (share * weights).repeat_interleave(lengths)
        places = torch.arange(count).remainder_(rows).mul_(width).repeat_interleave(lengths).add_(answers)
        borders = offsets[torch.arange(0, count + rows, rows).clamp_max_(count)].tolist()
        for chunk, start in enumerate(range(0, count, rows)):
            part = slice(start, min(start + rows, count))
            h, buffer = hidden[part], scratch(0, min(rows, count - start), width, hidden.dtype)
            buffer[:, entities:] = float("-inf")
            logits = buffer[:, :entities]
            if bias is None:
                torch.mm(h, weight.t(), out=logits)
            else:
                torch.addmm(bias, h, weight.t(), out=logits)
            if expert is not None and gate is not None:
                second = torch.mm(expert.hidden[part], expert.weight.t(), out=scratch(2, len(h), entities, h.dtype))
                logits.addcmul_(second, gate[part])
            true = slice(borders[chunk], borders[chunk + 1])
            answer_logit += buffer.view(-1)[places[true]] @ counted_shares[true]
            probabilities = torch.softmax(buffer, 1, out=scratch(1, len(h), width, h.dtype))
            # The largest logit has probability 1 / sum(exp(logit - top)), which never underflows.
            log_sum[part] = buffer.amax(1) - probabilities.amax(1).log_()
            probabilities.view(-1).index_add_(0, places[true], shares[true], alpha=-1)
            p = probabilities[:, :entities]
            torch.mm(p, weight, out=grad_hidden[part])
            counted = h if weights is None else h * weights[part].unsqueeze(1)
            grad_weight.addmm_(p.t(), counted, beta=0 if start == 0 else 1)
            if grad_bias is not None:
                grad_bias.addmv_(p.t(), counts[part])
            if grad_gate is not None and gate is not None:
                grad_gate[part] = torch.linalg.vecdot(p, second).sub_(second.mean(1), alpha=smoothing).unsqueeze(1)
                if smoothing:
                    answer_logit += smoothing * ((gate[part, 0] * counts[part]) @ second.mean(1))
        total = counts.sum()
        loss = (log_sum @ counts - answer_logit) / total
        if smoothing:
            mean_hidden, mean_weight = (counts @ hidden) / total, weight.mean(0)
            loss = loss - smoothing * (mean_hidden @ mean_weight)
            grad_hidden.sub_(mean_weight, alpha=smoothing)
            grad_weight.sub_(mean_hidden * total, alpha=smoothing / entities)
            if bias is not None and grad_bias is not None:
                loss = loss - smoothing * bias.mean()
                grad_bias.sub_(total * (smoothing / entities))
        if weights is not None:
            grad_hidden.mul_(weights.unsqueeze(1))
            if grad_gate is not None:
                grad_gate.mul_(weights.unsqueeze(1))
        ctx.save_for_backward(grad_hidden, grad_weight, grad_bias, grad_gate)
        ctx.total = total
        return loss

    @staticmethod
    def backward(ctx: Any, grad_output: torch.Tensor) -> tuple[torch.Tensor | None, ...]:  # type: ignore[override]
        scale = grad_output / ctx.total
        gradients = (None if gradient is None else gradient.mul_(scale) for gradient in ctx.saved_tensors)
        return (*gradients, None, None, None, None, None)


def fused_cross_entropy(
    hidden: torch.Tensor,
    weight: torch.Tensor,
    bias: torch.Tensor | None,
    gold: torch.Tensor,
    smoothing: float = 0.0,
    expert: Expert | None = None,
) -> torch.Tensor:
    """Mean cross-entropy of ``hidden @ weight.T + bias``, and what ``expert`` adds, against ``gold``, with label
    smoothing.

    Equal to ``torch.nn.functional.cross_entropy`` on those logits, in value and gradients. The gradients are
    made in the forward pass and handed out once: a second backward over one forward is not supported.
    """
    return fused_soft_cross_entropy(hidden, weight, bias, torch.arange(len(gold) + 1), gold, smoothing, expert)


def fused_soft_cross_entropy(
    hidden: torch.Tensor,
    weight: torch.Tensor,
    bias: torch.Tensor | None,
    offsets: torch.Tensor,
    answers: torch.Tensor,
    smoothing: float = 0.0,
    expert: Expert | None = None,
    weights: torch.Tensor | None = None,
) -> torch.Tensor:
    """The same where row v has the true entities ``answers[offsets[v]:offsets[v + 1]]``, each with an equal share.

    A row without any is only pushed towards what the smoothing spreads. Entities of one row must differ. ``weights``
    (V,) say how much each row counts in the mean; left out, all count alike. They have no gradient.
    """
    gate = None if expert is None else expert.gate
    return _FusedCrossEntropy.apply(  # type: ignore[no-any-return]
        hidden, weight, bias, gate, offsets, answers, smoothing, expert, weights
    )


def repeat_rows(offsets: torch.Tensor, answers: torch.Tensor, rows: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Offsets and entities of the slices ``rows``, in this order; a slice may be taken more than once."""
    lengths = (offsets[1:] - offsets[:-1])[rows]
    taken = torch.zeros(len(rows) + 1, dtype=offsets.dtype)
    torch.cumsum(lengths, 0, out=taken[1:])
    within = torch.arange(int(taken[-1])) - taken[:-1].repeat_interleave(lengths)
    return taken, answers[offsets[rows].repeat_interleave(lengths) + within]
