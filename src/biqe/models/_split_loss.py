"""The softmax over entities that are split over ranks, and its gradients, in one pass, a chunk of targets at a time.

What fused_soft_cross_entropy (_fused_loss.py) computes on one process, each rank computes for the targets of all ranks
and its own entities; one number a rank and target is exchanged on the way. Where entities are sampled
(_sampled_softmax.py), each rank draws from its own rows, and scores these and the true ones.

The library's own parallel loss (torch.distributed.tensor.parallel.loss_parallel) asks for the same queries on every
rank, and knows one true entity a target and no label smoothing. Where it applies, the numbers are the same
(tests/train/ranks_equal.py).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist

from biqe.models._fused_loss import Expert, rows_at_once, scratch
from biqe.models._sampled_softmax import Sample
from biqe.models._sharded import Rows, all_gather

# Newer versions of the library have another name for it, and warn of the old one.
reduce_scatter = getattr(dist, "reduce_scatter_single", None) or dist.reduce_scatter_tensor


@dataclass(frozen=True)
class _Everyone:
    """Targets of all ranks, in the order of the ranks."""

    counts: list[int]
    """Targets of each rank."""
    hidden: torch.Tensor
    """(V, D)"""
    second: torch.Tensor | None
    """(V, F) what the expert knows of them."""
    gate: torch.Tensor | None
    """(V, 1)"""
    lengths: torch.Tensor
    """(V,) true entities of each."""
    answers: torch.Tensor
    """True entities, one target after the other."""
    widest: int
    """Entities that a rank compares with, at most."""

    @classmethod
    def of(
        cls,
        hidden: torch.Tensor,
        expert: Expert | None,
        offsets: torch.Tensor,
        answers: torch.Tensor,
        rows: Rows,
        sample: Sample | None,
    ) -> _Everyone:
        """Gathered from the ranks, in three exchanges."""
        drawn = rows.most if sample is None else len(sample.entities)
        counts, trues, draws = _gathered(torch.tensor([[len(hidden), len(answers), drawn]]), rows).t().tolist()
        numbers = torch.cat([offsets[1:] - offsets[:-1], answers])
        said = _gather_uneven(numbers, [v + a for v, a in zip(counts, trues, strict=True)], rows)
        parts = [hidden] if expert is None else [hidden, expert.hidden, expert.gate]
        together = torch.cat(_gather_uneven(torch.cat([part.detach() for part in parts], 1), counts, rows))
        columns = together.split([part.shape[1] for part in parts], 1)
        return cls(
            counts,
            columns[0].contiguous(),
            columns[1].contiguous() if expert is not None else None,
            columns[2] if expert is not None else None,
            torch.cat([part[:v] for part, v in zip(said, counts, strict=True)]),
            torch.cat([part[v:] for part, v in zip(said, counts, strict=True)]),
            min(rows.most, max(draws) + sum(trues)),
        )

    def own_sum(self, partial: torch.Tensor, rows: Rows) -> torch.Tensor:
        """This rank's rows of ``partial`` (V, ...), added up over the ranks."""
        most = max(self.counts)
        padded = partial.new_zeros(len(self.counts), most, partial.shape[1])
        for into, part in zip(padded, partial.split(self.counts), strict=True):
            into[: len(part)] = part
        own = partial.new_empty(most, partial.shape[1])
        reduce_scatter(own, padded.view(-1, partial.shape[1]), group=rows.group)
        return own[: self.counts[rows.rank]]


def _gathered(own: torch.Tensor, rows: Rows) -> torch.Tensor:
    found = own.new_empty(rows.world * len(own), *own.shape[1:])
    all_gather(found, own.contiguous(), group=rows.group)
    return found


def _gather_uneven(own: torch.Tensor, lengths: list[int], rows: Rows) -> list[torch.Tensor]:
    """What each rank has, of the lengths that are known."""
    padded = own.new_zeros(max(lengths), *own.shape[1:])
    padded[: len(own)] = own
    found = _gathered(padded, rows)
    return [part[:length] for part, length in zip(found.chunk(rows.world), lengths, strict=True)]


@dataclass(frozen=True)
class _Scored:
    """The entities that this rank compares the targets with, out of its own: all, or a sample and what is true."""

    rows: torch.Tensor | None
    """(c,) which of its rows, sorted; None for all."""
    weight: torch.Tensor
    """(c, D)"""
    bias: torch.Tensor
    """(c,)"""
    log_weights: torch.Tensor | None
    """(c,) by which each stands for those that were not drawn; -inf for what is there as an answer alone."""
    spread: torch.Tensor
    """(c,) what label smoothing gives each."""
    true: torch.Tensor
    """The true entities that this rank owns, as columns."""

    @classmethod
    def of(
        cls, weight: torch.Tensor, bias: torch.Tensor, true: torch.Tensor, sample: Sample | None, even: float
    ) -> _Scored:
        """``true`` are rows of ``weight``; ``even`` is what label smoothing gives each entity of all."""
        if sample is None:
            return cls(None, weight, bias, None, bias.new_full((len(bias),), even), true)
        rows = torch.cat([sample.entities, true]).unique()
        log_weights = bias.new_full((len(rows),), -torch.inf)
        log_weights[torch.searchsorted(rows, sample.entities)] = sample.log_weights
        return cls(
            rows, weight[rows], bias[rows], log_weights, log_weights.exp() * even, torch.searchsorted(rows, true)
        )


class _SplitCrossEntropy(torch.autograd.Function):
    @staticmethod
    def forward(  # type: ignore[override]
        ctx: Any,
        hidden: torch.Tensor,  # (v, D) of this rank's targets
        weight: torch.Tensor,  # (e, D) of this rank's entities
        bias: torch.Tensor,  # (e,)
        gate: torch.Tensor | None,  # (v, 1)
        offsets: torch.Tensor,  # (v+1,)
        answers: torch.Tensor,
        smoothing: float,
        expert: Expert | None,
        rows: Rows,
        sample: Sample | None,
    ) -> torch.Tensor:
        everyone = _Everyone.of(hidden, expert, offsets, answers, rows, sample)
        H, total, even = everyone.hidden, len(everyone.hidden), smoothing / rows.count
        owner = torch.arange(total).repeat_interleave(everyone.lengths)
        shares = ((1.0 - smoothing) / everyone.lengths.clamp_min(1).to(H.dtype)).repeat_interleave(everyone.lengths)
        here = (everyone.answers >= rows.first) & (everyone.answers < rows.last)
        owner, given = owner[here], shares[here] + even
        scored = _Scored.of(weight, bias, everyone.answers[here] - rows.first, sample, even)
        table, width = scored.weight, len(scored.weight)
        second_table = None
        if expert is not None:
            second_table = expert.weight[rows.first : rows.last]
            second_table = second_table if scored.rows is None else second_table[scored.rows]
        grad_hidden, grad_table, grad_bias = torch.empty_like(H), torch.zeros_like(table), torch.zeros_like(scored.bias)
        grad_gate = None if gate is None else H.new_empty(total, 1)
        wanted, log_sum = H.new_zeros(()), H.new_zeros(())  # logits as the loss wants them, of this rank's; and of all
        # As many chunks on every rank, so that their exchanges meet.
        step = rows_at_once(total, everyone.widest * H.element_size())
        for start in range(0, total, step):
            part = slice(start, min(start + step, total))
            h = H[part]
            logits = torch.addmm(scored.bias, h, table.t(), out=scratch(0, len(h), width, h.dtype))
            second = None
            if everyone.second is not None and everyone.gate is not None and second_table is not None:
                second = torch.mm(everyone.second[part], second_table.t(), out=scratch(2, len(h), width, h.dtype))
                logits.addcmul_(second, everyone.gate[part])
            true = slice(*torch.searchsorted(owner, torch.tensor([part.start, part.stop])).tolist())
            places, spread = (owner[true] - start, scored.true[true]), scored.spread[scored.true[true]]
            at_true = logits[places]
            wanted += at_true @ (given[true] - spread)
            if smoothing:
                wanted += (logits @ scored.spread).sum()
            if scored.log_weights is not None:
                logits.add_(scored.log_weights)
                logits[places] = at_true
            all_of_it = _gathered(logits.logsumexp(1).unsqueeze(0), rows).logsumexp(0)
            log_sum += all_of_it.sum()
            p = torch.sub(logits, all_of_it.unsqueeze(1), out=scratch(1, len(h), width, h.dtype)).exp_()
            if smoothing:
                p.sub_(scored.spread)
            p.index_put_(places, spread - given[true], accumulate=True)
            torch.mm(p, table, out=grad_hidden[part])
            grad_table.addmm_(p.t(), h)
            grad_bias.add_(p.sum(0))
            if grad_gate is not None and second is not None:
                grad_gate[part] = torch.linalg.vecdot(p, second).unsqueeze(1)
        dist.all_reduce(wanted, group=rows.group)
        partial = grad_hidden if grad_gate is None else torch.cat([grad_hidden, grad_gate], 1)
        returned = everyone.own_sum(partial, rows)
        own_gate = None if grad_gate is None else returned[:, -1:].contiguous()
        ctx.save_for_backward(returned[:, : H.shape[1]].contiguous(), grad_table, grad_bias, own_gate)
        ctx.total, ctx.rows, ctx.own = total, scored.rows, len(weight)
        return (log_sum - wanted) / total

    @staticmethod
    def backward(ctx: Any, grad_output: torch.Tensor) -> tuple[torch.Tensor | None, ...]:  # type: ignore[override]
        scale = grad_output / ctx.total
        hidden, table, bias, gate = ctx.saved_tensors
        for gradient in (hidden, table, bias) if gate is None else (hidden, table, bias, gate):
            gradient.mul_(scale)
        if ctx.rows is not None:
            at = ctx.rows.unsqueeze(0)
            table = torch.sparse_coo_tensor(at, table, (ctx.own, table.shape[1]), check_invariants=False)
            bias = torch.sparse_coo_tensor(at, bias, (ctx.own,), check_invariants=False)
        return hidden, table, bias, gate, None, None, None, None, None, None


def split_soft_cross_entropy(
    hidden: torch.Tensor,
    weight: torch.Tensor,
    bias: torch.Tensor,
    offsets: torch.Tensor,
    answers: torch.Tensor,
    smoothing: float,
    expert: Expert | None,
    rows: Rows,
    sample: Sample | None = None,
) -> torch.Tensor:
    """``fused_soft_cross_entropy`` over the targets of all ranks, ``weight`` and ``bias`` being this rank's ``rows``.

    The loss is the same on every rank. Gradients of ``hidden`` and of the gate are those of this rank's own targets.
    With ``sample``, of this rank's rows, it is ``sampled_soft_cross_entropy`` over the samples of all ranks.
    """
    gate = None if expert is None else expert.gate
    return _SplitCrossEntropy.apply(  # type: ignore[no-any-return]
        hidden, weight, bias, gate, offsets, answers, smoothing, expert, rows, sample
    )
