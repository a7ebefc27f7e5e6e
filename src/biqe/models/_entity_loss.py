"""The loss over a sample of the entities, in time that does not depend on how many there are.

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
from typing import Any, Protocol, runtime_checkable

import torch

from biqe.graph.knowledge_graph import Graph
from biqe.links.softmax import rows_at_once, scratch, single_precision
from biqe.models._contract import (
    ENTITY_ROWS,
    ComparesWithSample,
    EntityLoss,
    HasEntityTable,
    QueryModel,
    has_entity_table,
)
from biqe.models._device import CPU, on_device


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
        """By how often entities stand at either end of the triples of ``graph``. With ``first`` and ``last``, only of
        the entities from the one to before the other, whose numbers then begin with 0."""
        ends = (torch.from_numpy(graph.triples[:, column].copy()) for column in (0, 2))
        frequency: torch.Tensor = sum(torch.bincount(end, minlength=graph.entity_count) for end in ends)  # type: ignore[assignment]
        return cls(frequency[first:last], negatives)

    def draw(self, device: torch.device = CPU) -> Sample:
        """A sample, drawn by the processor and brought to ``device``; all entities, each with weight 1, where as many
        are to be drawn as there are."""
        if self.negatives >= self.entity_count:
            every = torch.arange(self.entity_count, device=device)
            return Sample(every, torch.zeros(self.entity_count, device=device))
        uniform = torch.randint(self.entity_count, (self._uniform,))
        # Rounding may leave the last sum a little below 1.
        places = torch.rand(self._by_frequency, dtype=torch.float64) * self._up_to[-1]
        frequent = torch.searchsorted(self._up_to, places, right=True).clamp_max_(self.entity_count - 1)
        entities = torch.cat([uniform, frequent]).unique()
        return on_device(Sample(entities, self._log_weights[entities]), device)


class SampledEntityLoss:
    """Cross-entropy with the sum over all entities estimated from a sample that is drawn at every call."""

    def __init__(self, sampler: EntitySampler) -> None:
        self.sampler = sampler

    def __call__(
        self,
        hidden: torch.Tensor,
        weight: torch.Tensor,
        bias: torch.Tensor,
        offsets: torch.Tensor,
        answers: torch.Tensor,
        smoothing: float,
    ) -> torch.Tensor:
        """Mean loss. Gradients of ``weight`` and ``bias`` are sparse."""
        sample = self.sampler.draw(weight.device)
        return sampled_cross_entropy(hidden, weight, bias, offsets, answers, sample, smoothing)


@runtime_checkable
class _CanSample(Protocol):
    """A loss that has a way of its own to sample entities."""

    def sampled(self, graph: Graph, negatives: int) -> EntityLoss: ...


def sample_entities(model: HasEntityTable, graph: Graph, negatives: int) -> None:
    """From now on the loss of ``model`` compares with about ``negatives`` entities at each step instead of all."""
    loss = model.entity_loss
    if isinstance(loss, _CanSample):  # split over ranks: each draws its part of the entities from its own rows
        model.entity_loss = loss.sampled(graph, negatives)
    else:
        model.entity_loss = SampledEntityLoss(EntitySampler.of(graph, negatives))
    model.embed_entities.sparse = True


def sparse_weights(model: QueryModel) -> tuple[str, ...]:
    """Names of the weights whose gradients are sparse, because entities are sampled: they hold only the rows that a
    batch touched."""
    if has_entity_table(model):
        return ENTITY_ROWS if model.embed_entities.sparse else ()
    return model.sparse_weights if isinstance(model, ComparesWithSample) else ()


class _SampledCrossEntropy(torch.autograd.Function):
    @staticmethod
    def forward(  # type: ignore[override]
        ctx: Any,
        hidden: torch.Tensor,  # (V, D)
        weight: torch.Tensor,  # (E, D)
        bias: torch.Tensor,  # (E,)
        offsets: torch.Tensor,  # (V+1,)
        answers: torch.Tensor,  # true entities of each row, one row after the other
        sample: Sample,
        smoothing: float,
    ) -> torch.Tensor:
        count, entities, width = len(hidden), len(weight), hidden.shape[1]
        drawn, log_weights = sample.entities, sample.log_weights
        table, shift = weight[drawn], bias[drawn] + log_weights  # (K, D), (K,)
        spread = log_weights.exp() * (smoothing / entities)  # (K,) what smoothing gives each drawn entity
        true, where = answers.unique(return_inverse=True)
        lengths = offsets[1:] - offsets[:-1]
        owners = torch.arange(count, device=hidden.device).repeat_interleave(lengths)
        share = (1.0 - smoothing) / lengths.clamp_min(1).to(hidden.dtype) + smoothing / entities
        shares = share.repeat_interleave(lengths)  # what the loss gives each true entity
        column = torch.searchsorted(drawn, answers).clamp_max_(len(drawn) - 1)
        is_hit = drawn[column] == answers

        grad_hidden, grad_table, grad_shift = torch.empty_like(hidden), torch.zeros_like(table), torch.zeros_like(shift)
        grad_true, grad_true_bias = hidden.new_zeros(len(true), width), hidden.new_zeros(len(true))
        loss = hidden.new_zeros(())
        rows = rows_at_once(count, hidden.element_size() * _floats_per_row(len(drawn), width, lengths))
        for start in range(0, count, rows):
            part = slice(start, min(start + rows, count))
            h, n = hidden[part], min(rows, count - start)
            flat = slice(int(offsets[start]), int(offsets[start + n]))
            logits = torch.addmm(shift, h, table.t(), out=scratch(0, n, len(drawn), h))
            owner, of_true = owners[flat] - start, weight[answers[flat]]  # (m,), (m, D)
            true_logits = torch.linalg.vecdot(h[owner], of_true).add_(bias[answers[flat]])  # (m,)
            hits = is_hit[flat]
            at = owner[hits], column[flat][hits]  # true ones among the drawn
            if smoothing:
                given = logits[at] - log_weights[at[1]]
                loss -= (logits @ spread).sum() - n * (spread @ log_weights) - given @ spread[at[1]]
            logits[at] = -torch.inf
            top = logits.amax(1).scatter_reduce_(0, owner, true_logits, "amax")
            p = torch.sub(logits, top.unsqueeze(1), out=scratch(1, n, len(drawn), h)).exp_()
            p_true = (true_logits - top[owner]).exp_()
            total = p.sum(1).index_add_(0, owner, p_true)
            loss += (top + total.log()).sum() - true_logits @ shares[flat]
            p.div_(total.unsqueeze(1))
            if smoothing:
                p.sub_(spread)
                p[at] = 0.0
            g_true = p_true.div_(total[owner]).sub_(shares[flat])  # (m,)
            torch.mm(p, table, out=grad_hidden[part])
            grad_hidden[part].index_add_(0, owner, g_true.unsqueeze(1) * of_true)
            grad_table.addmm_(p.t(), h)
            grad_shift.add_(p.sum(0))
            grad_true.index_add_(0, where[flat], g_true.unsqueeze(1) * h[owner])
            grad_true_bias.index_add_(0, where[flat], g_true)
        ctx.save_for_backward(grad_hidden, torch.cat([grad_table, grad_true]), torch.cat([grad_shift, grad_true_bias]))
        ctx.rows, ctx.shape, ctx.count = torch.cat([drawn, true]).unsqueeze(0), weight.shape, count
        return loss / count

    @staticmethod
    def backward(ctx: Any, grad_output: torch.Tensor) -> tuple[torch.Tensor | None, ...]:  # type: ignore[override]
        scale = grad_output / ctx.count
        grad_hidden, *of_rows = ctx.saved_tensors
        shapes = (ctx.shape, ctx.shape[:1])
        grad_weight, grad_bias = (
            torch.sparse_coo_tensor(ctx.rows, values.mul_(scale), shape, check_invariants=False)
            for values, shape in zip(of_rows, shapes, strict=True)
        )
        return grad_hidden.mul_(scale), grad_weight, grad_bias, None, None, None, None


def _floats_per_row(drawn: int, width: int, lengths: torch.Tensor) -> int:
    """Numbers that one row needs in the largest buffer."""
    return max(drawn, int(width * lengths.float().mean()) if len(lengths) else 1)


def sampled_cross_entropy(
    hidden: torch.Tensor,
    weight: torch.Tensor,
    bias: torch.Tensor,
    offsets: torch.Tensor,
    answers: torch.Tensor,
    sample: Sample,
    smoothing: float = 0.0,
) -> torch.Tensor:
    """``soft_cross_entropy`` with the sum over all entities estimated from ``sample``.

    Gradients of ``weight`` and ``bias`` are sparse: one row for each drawn or true entity, or two for one that is both.
    """
    with single_precision(hidden.device):
        return _SampledCrossEntropy.apply(hidden.to(weight.dtype), weight, bias, offsets, answers, sample, smoothing)  # type: ignore[no-any-return]
