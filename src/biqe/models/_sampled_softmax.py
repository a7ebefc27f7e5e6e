"""Cross-entropy over a sample of the entities, in time that does not depend on how many there are.

A step draws one sample S for all of its targets: half of the draws uniformly, half as often as entities stand in
triples. With n and m draws of the two kinds, and f_j the share of triples' ends that entity j holds,

    pi_j = 1 - (1 - 1/E)^n (1 - f_j)^m                     the chance that j is in S
    Z    = sum over j of exp(o_j)                          the sum that the full softmax divides by
    Z'   = sum over true a of exp(o_a)  +  sum over j in S, not true, of exp(o_j) / pi_j

Z' is an unbiased estimate of Z whatever the logits are (Horvitz and Thompson's): what is drawn rarely counts for more
when it is drawn. True answers are always there, once, with weight 1, and are taken out of S. The loss is log Z' - o_a;
its mean over samples lies below the full loss by about Var(Z') / (2 Z^2), and is equal to it when S holds all entities.
Label smoothing spreads over all entities, so its sum of logits is estimated with the same weights.

Only sampled and true rows of the entity table are read, and the gradient is a sparse tensor of these rows.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch

from biqe.graph.knowledge_graph import Graph
from biqe.models._fused_loss import Expert, rows_at_once, scratch


@dataclass(frozen=True)
class Sample:
    """Entities drawn for one step."""

    entities: torch.Tensor
    """(K,) ids, sorted, all different."""
    log_weights: torch.Tensor
    """(K,) logarithms of 1 / pi, by which each stands for those that were not drawn."""


class EntitySampler:
    """Draws entities, half of them uniformly, half by frequency. All draws come from torch's global generator."""

    def __init__(self, frequency: torch.Tensor, negatives: int) -> None:
        """``frequency`` (E,) says how often each entity occurs; ``negatives`` is the number of draws."""
        self.entity_count = len(frequency)
        self.negatives = negatives
        total = frequency.sum(dtype=torch.float64)
        share = frequency.double() / total.clamp_min(1.0)
        self._by_frequency = negatives // 2 if total > 0 else 0
        self._uniform = negatives - self._by_frequency
        self._up_to = share.cumsum(0)
        one_more = torch.full((self.entity_count,), -1.0 / max(2, self.entity_count), dtype=torch.float64)
        missed = self._uniform * one_more.log1p() + self._by_frequency * torch.log1p(-share)
        self._log_weights = -torch.log(-torch.expm1(missed)).float()

    @classmethod
    def of(cls, graph: Graph, negatives: int, first: int = 0, last: int | None = None) -> EntitySampler:
        """By the triples of ``graph``, at either end. Of the entities from ``first`` to before ``last`` alone, where
        these are given; their numbers then begin with 0."""
        ends = (torch.from_numpy(graph.triples[:, column].copy()) for column in (0, 2))
        frequency: torch.Tensor = sum(torch.bincount(end, minlength=graph.entity_count) for end in ends)  # type: ignore[assignment]
        return cls(frequency[first:last], negatives)

    def draw(self) -> Sample:
        """A sample; all entities, each for itself alone, where as many are to be drawn as there are."""
        if self.negatives >= self.entity_count:
            return Sample(torch.arange(self.entity_count), torch.zeros(self.entity_count))
        uniform = torch.randint(self.entity_count, (self._uniform,))
        # Rounding may leave the last sum a little below 1.
        places = torch.rand(self._by_frequency, dtype=torch.float64) * self._up_to[-1]
        frequent = torch.searchsorted(self._up_to, places, right=True).clamp_max_(self.entity_count - 1)
        entities = torch.cat([uniform, frequent]).unique()
        return Sample(entities, self._log_weights[entities])


@dataclass(frozen=True)
class _True:
    """The n true entities of one chunk of rows, flat."""

    owner: torch.Tensor
    """(n,) row within the chunk."""
    weight: torch.Tensor
    """(n, D) embeddings."""
    logits: torch.Tensor
    """(n,)"""
    second: torch.Tensor | None
    """(n,) what the expert adds, before its gate."""


class _SampledCrossEntropy(torch.autograd.Function):
    @staticmethod
    def forward(  # type: ignore[override]
        ctx: Any,
        hidden: torch.Tensor,  # (V, D)
        weight: torch.Tensor,  # (E, D)
        bias: torch.Tensor,  # (E,)
        gate: torch.Tensor | None,  # (V, 1)
        offsets: torch.Tensor,  # (V+1,)
        answers: torch.Tensor,  # true entities of each row, one row after the other
        sample: Sample,
        smoothing: float,
        expert: Expert | None,
    ) -> torch.Tensor:
        count, entities, width = len(hidden), len(weight), hidden.shape[1]
        drawn, log_weights = sample.entities, sample.log_weights
        table, shift = weight[drawn], bias[drawn] + log_weights  # (K, D), (K,)
        spread = log_weights.exp() * (smoothing / entities)  # (K,) what smoothing gives each drawn entity
        second_table = None if expert is None else expert.weight[drawn]
        true, where = answers.unique(return_inverse=True)
        lengths = offsets[1:] - offsets[:-1]
        owner = torch.arange(count).repeat_interleave(lengths)
        share = (1.0 - smoothing) / lengths.clamp_min(1).to(hidden.dtype) + smoothing / entities
        shares = share.repeat_interleave(lengths)  # what the loss gives each true entity
        column = torch.searchsorted(drawn, answers).clamp_max_(len(drawn) - 1)
        is_hit = drawn[column] == answers

        grad_hidden, grad_table = torch.empty_like(hidden), torch.zeros_like(table)
        grad_shift, grad_gate = torch.zeros_like(shift), None if gate is None else torch.empty_like(gate)
        grad_true, grad_true_bias = hidden.new_zeros(len(true), width), hidden.new_zeros(len(true))
        loss = hidden.new_zeros(())
        rows = rows_at_once(count, hidden.element_size() * _floats_a_row(len(drawn), width, lengths))
        for start in range(0, count, rows):
            part = slice(start, min(start + rows, count))
            h, n = hidden[part], min(rows, count - start)
            flat = slice(int(offsets[start]), int(offsets[start + n]))
            logits = torch.addmm(shift, h, table.t(), out=scratch(0, n, len(drawn), h.dtype))
            second = None
            if expert is not None and gate is not None and second_table is not None:
                second = torch.mm(expert.hidden[part], second_table.t(), out=scratch(2, n, len(drawn), h.dtype))
                logits.addcmul_(second, gate[part])
            found = _true_logits(h, weight, bias, answers[flat], owner[flat] - start, expert, gate, part)
            hits = is_hit[flat]
            at = found.owner[hits], column[flat][hits]  # true ones among the drawn
            if smoothing:
                given = logits[at] - log_weights[at[1]]
                loss -= (logits @ spread).sum() - n * (spread @ log_weights) - given @ spread[at[1]]
            logits[at] = -torch.inf
            top = logits.amax(1).scatter_reduce_(0, found.owner, found.logits, "amax")
            p = torch.sub(logits, top.unsqueeze(1), out=scratch(1, n, len(drawn), h.dtype)).exp_()
            p_true = (found.logits - top[found.owner]).exp_()
            total = p.sum(1).index_add_(0, found.owner, p_true)
            loss += (top + total.log()).sum() - found.logits @ shares[flat]
            p.div_(total.unsqueeze(1))
            if smoothing:
                p.sub_(spread)
                p[at] = 0.0
            g_true = p_true.div_(total[found.owner]).sub_(shares[flat])  # (n,)
            torch.mm(p, table, out=grad_hidden[part])
            grad_hidden[part].index_add_(0, found.owner, g_true.unsqueeze(1) * found.weight)
            grad_table.addmm_(p.t(), h)
            grad_shift.add_(p.sum(0))
            grad_true.index_add_(0, where[flat], g_true.unsqueeze(1) * h[found.owner])
            grad_true_bias.index_add_(0, where[flat], g_true)
            if grad_gate is not None and second is not None and found.second is not None:
                grad_gate[part, 0] = torch.linalg.vecdot(p, second).index_add_(0, found.owner, g_true * found.second)
        ctx.save_for_backward(
            grad_hidden, torch.cat([grad_table, grad_true]), torch.cat([grad_shift, grad_true_bias]), grad_gate
        )
        ctx.rows, ctx.shape, ctx.count = torch.cat([drawn, true]).unsqueeze(0), weight.shape, count
        return loss / count

    @staticmethod
    def backward(ctx: Any, grad_output: torch.Tensor) -> tuple[torch.Tensor | None, ...]:  # type: ignore[override]
        scale = grad_output / ctx.count
        grad_hidden, *of_rows, grad_gate = ctx.saved_tensors
        shapes = (ctx.shape, ctx.shape[:1])
        grad_weight, grad_bias = (
            torch.sparse_coo_tensor(ctx.rows, values.mul_(scale), shape, check_invariants=False)
            for values, shape in zip(of_rows, shapes, strict=True)
        )
        if grad_gate is not None:
            grad_gate.mul_(scale)
        return grad_hidden.mul_(scale), grad_weight, grad_bias, grad_gate, None, None, None, None, None


def _floats_a_row(drawn: int, width: int, lengths: torch.Tensor) -> int:
    """Size of the largest buffer that one row needs a part of."""
    return max(drawn, int(width * lengths.float().mean()) if len(lengths) else 1)


def _true_logits(
    h: torch.Tensor,
    weight: torch.Tensor,
    bias: torch.Tensor,
    answers: torch.Tensor,
    owner: torch.Tensor,
    expert: Expert | None,
    gate: torch.Tensor | None,
    part: slice,
) -> _True:
    rows = weight[answers]
    logits = torch.linalg.vecdot(h[owner], rows).add_(bias[answers])
    second = None
    if expert is not None and gate is not None:
        second = torch.linalg.vecdot(expert.hidden[part][owner], expert.weight[answers])
        logits.addcmul_(second, gate[part, 0][owner])
    return _True(owner, rows, logits, second)


def sampled_soft_cross_entropy(
    hidden: torch.Tensor,
    weight: torch.Tensor,
    bias: torch.Tensor,
    offsets: torch.Tensor,
    answers: torch.Tensor,
    sample: Sample,
    smoothing: float = 0.0,
    expert: Expert | None = None,
) -> torch.Tensor:
    """``fused_soft_cross_entropy`` with the sum over all entities estimated from ``sample``.

    Gradients of ``weight`` and ``bias`` are sparse: one row for each drawn or true entity, or two for one that is both.
    """
    gate = None if expert is None else expert.gate
    return _SampledCrossEntropy.apply(  # type: ignore[no-any-return]
        hidden, weight, bias, gate, offsets, answers, sample, smoothing, expert
    )
