"""The entities' embeddings and the softmax over them, split over ranks: rank r holds the rows of its entities alone.

Each rank learns from its own queries. A step goes through three exchanges:

    reading     each rank asks the owners for the rows of its tokens, and sends their gradients back     all to all
    projecting  hidden states at the targets of all ranks go to every rank, which scores its own rows    all gather
                log sum_e exp(o_e) is put together from one number for each rank and target              all gather
    gradients   of hidden states are added up, each rank's going back to it; of rows, they stay          reduce scatter

What travels is rows of tokens and targets, never the table or its gradient. Rows are placed as DTensor's Shard(0)
places them, so that distributed checkpoints read them on any number of ranks. Where entities are sampled
(_entity_loss.py), each rank draws from its own rows, and scores these and the true ones.

The library's own parallel loss (torch.distributed.tensor.parallel.loss_parallel) needs the same queries on every rank,
and knows one true entity for each target and no label smoothing. Where it applies, the numbers are the same
(tests/training/ranks_equal.py).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn

from biqe.errors import InvalidOption
from biqe.graph.knowledge_graph import Graph
from biqe.links.softmax import rows_at_once, scratch, single_precision
from biqe.models._contract import ENTITY_ROWS, HasEntityTable, QueryModel, has_entity_table
from biqe.models._entity_loss import EntitySampler, Sample

# Newer versions of the library have other names for these, and warn of the old ones.
all_gather = getattr(dist, "all_gather_single", None) or dist.all_gather_into_tensor
reduce_scatter = getattr(dist, "reduce_scatter_single", None) or dist.reduce_scatter_tensor


@dataclass(frozen=True)
class Rows:
    """Which rows of a table of ``count`` this rank holds. All ranks hold equally many, except that the last ones may
    hold fewer."""

    count: int
    rank: int
    world: int
    group: Any = None
    """Process group of the exchanges, apart from others so that their order does not matter; None for the default."""

    @property
    def most(self) -> int:
        """Rows of a rank, at most."""
        return -(-self.count // self.world)

    @property
    def first(self) -> int:
        """The first row."""
        return self.rank * self.most

    @property
    def last(self) -> int:
        """One after the last row."""
        return min(self.count, self.first + self.most)

    def of(self, table: torch.Tensor) -> torch.Tensor:
        """This rank's rows of a whole ``table``, in memory of their own."""
        return table[self.first : self.last].clone()


class SplitTable:
    """Which weights of a model are split, and the way back to a whole model."""

    names = ENTITY_ROWS

    def __init__(self, model: QueryModel, rows: Rows) -> None:
        self.rows = rows
        self._kind = type(model), (model.config, model.entity_count, model.relation_count)

    def whole_model(self, weights: Mapping[str, torch.Tensor]) -> QueryModel:
        """A model of the same kind that holds ``weights``, those of all rows; they are not copied."""
        kind, sizes = self._kind
        with torch.device("meta"):
            model = kind(*sizes)
        model.load_state_dict(weights, assign=True)
        return model

    def gathered(self, tensors: Mapping[str, torch.Tensor]) -> dict[str, torch.Tensor]:
        """``tensors`` by name. On rank 0 those that are split have all rows; on other ranks they stay as they are."""
        return {name: self._gather(tensor) if name in self.names else tensor for name, tensor in tensors.items()}

    def _gather(self, own: torch.Tensor) -> torch.Tensor:
        rows = self.rows
        padded = own.new_zeros(rows.most, *own.shape[1:])
        padded[: len(own)] = own
        if rows.rank != 0:
            dist.gather(padded, dst=0, group=rows.group)
            return own
        whole = own.new_empty(rows.world * rows.most, *own.shape[1:])
        dist.gather(padded, list(whole.split(rows.most)), dst=0, group=rows.group)
        return whole[: rows.count]


def check_split(model: QueryModel, world: int) -> HasEntityTable:
    """``model``, where its entities can be split over ``world`` ranks; refused where not."""
    if not has_entity_table(model):
        raise InvalidOption(
            f"the entities of {model.name} cannot be split over ranks",
            hint="leave out --shard-entities: the ranks then share the queries",
        )
    entities = len(model.entity_bias)
    if (world - 1) * -(-entities // world) >= entities:
        raise InvalidOption(
            f"{entities:,} entities cannot be split over {world} ranks: some would have none",
            hint="start fewer ranks, or leave out --shard-entities",
        )
    return model


def split(model: QueryModel, rank: int, world: int, timeout: float = 600.0) -> SplitTable:
    """Leave ``model`` this rank's rows of its entities, and let it exchange the others. Called on all ranks at once;
    the weights become those of rank 0. No exchange waits longer than ``timeout`` seconds. To be called before
    ``sample_entities``."""
    splits = check_split(model, world)
    for tensor in model.state_dict().values():
        dist.broadcast(tensor, 0)
    rows = Rows(model.entity_count, rank, world, dist.new_group(timeout=timedelta(seconds=timeout)))
    table = SplitTable(model, rows)
    splits.embed_entities = SplitEmbedding(splits.embed_entities, rows)
    splits.entity_bias = nn.Parameter(rows.of(splits.entity_bias.detach()))
    splits.entity_loss = SplitEntityLoss(rows)
    return table


class SplitEmbedding(nn.Embedding):
    """A table of which this rank holds some rows and asks other ranks for the rest."""

    def __init__(self, whole: nn.Embedding, rows: Rows) -> None:
        own = rows.of(whole.weight.detach())
        super().__init__(len(own), own.shape[1], sparse=whole.sparse, _weight=own)
        self.num_embeddings = rows.count
        self.rows = rows

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        """(n, D) rows of (n,) ids, wherever they are."""
        rows = self.rows
        wanted, where = ids.unique(return_inverse=True)
        asked = torch.bincount(torch.div(wanted, rows.most, rounding_mode="floor"), minlength=rows.world)
        asking = torch.empty_like(asked)
        dist.all_to_all_single(asking, asked, group=rows.group)
        to, back = asked.tolist(), asking.tolist()
        theirs = wanted.new_empty(sum(back))
        dist.all_to_all_single(theirs, wanted, back, to, group=rows.group)
        given = F.embedding(theirs - rows.first, self.weight, sparse=self.sparse)
        found: torch.Tensor = _Exchange.apply(given, to, back, rows.group)
        return F.embedding(where, found)


class _Exchange(torch.autograd.Function):
    """Rows to the ranks that asked for them, and gradients of these rows back to their owners."""

    @staticmethod
    def forward(  # type: ignore[override]
        ctx: Any, given: torch.Tensor, receive: list[int], send: list[int], group: Any
    ) -> torch.Tensor:
        ctx.receive, ctx.send, ctx.group = receive, send, group
        found = given.new_empty(sum(receive), given.shape[1])
        dist.all_to_all_single(found, given.contiguous(), receive, send, group=group)
        return found

    @staticmethod
    def backward(ctx: Any, grad: torch.Tensor) -> tuple[torch.Tensor | None, ...]:  # type: ignore[override]
        returned = grad.new_empty(sum(ctx.send), grad.shape[1])
        dist.all_to_all_single(returned, grad.contiguous(), ctx.send, ctx.receive, group=ctx.group)
        return returned, None, None, None


class SplitEntityLoss:
    """Cross-entropy over the targets of all ranks, each rank holding its ``rows`` of the entities; over all of them, or
    with ``sampler`` over samples that the ranks draw from their own rows."""

    def __init__(self, rows: Rows, sampler: EntitySampler | None = None) -> None:
        self.rows = rows
        self.sampler = sampler

    def sampled(self, graph: Graph, negatives: int) -> SplitEntityLoss:
        """The same with about ``negatives`` entities drawn at each step, by all ranks together."""
        rows = self.rows
        return SplitEntityLoss(rows, EntitySampler.of(graph, -(-negatives // rows.world), rows.first, rows.last))

    def __call__(
        self,
        hidden: torch.Tensor,
        weight: torch.Tensor,
        bias: torch.Tensor,
        offsets: torch.Tensor,
        answers: torch.Tensor,
        smoothing: float,
    ) -> torch.Tensor:
        """Mean loss over the targets of all ranks, the same on every rank. Gradients are those of this rank's targets
        and rows."""
        sample = None if self.sampler is None else self.sampler.draw(weight.device)
        return split_cross_entropy(hidden, weight, bias, offsets, answers, smoothing, self.rows, sample)


@dataclass(frozen=True)
class _Everyone:
    """Targets of all ranks, in the order of the ranks."""

    counts: list[int]
    """Targets of each rank."""
    hidden: torch.Tensor
    """(V, D)"""
    lengths: torch.Tensor
    """(V,) true entities of each."""
    answers: torch.Tensor
    """True entities, one target after the other."""
    widest: int
    """Entities that a rank compares with, at most."""

    @classmethod
    def of(
        cls, hidden: torch.Tensor, offsets: torch.Tensor, answers: torch.Tensor, rows: Rows, sample: Sample | None
    ) -> _Everyone:
        """Gathered from the ranks, in three exchanges."""
        drawn = rows.most if sample is None else len(sample.entities)
        counts, trues, draws = _gathered(torch.tensor([[len(hidden), len(answers), drawn]]), rows).t().tolist()
        numbers = torch.cat([offsets[1:] - offsets[:-1], answers])
        theirs = _gather_uneven(numbers, [v + a for v, a in zip(counts, trues, strict=True)], rows)
        return cls(
            counts,
            torch.cat(_gather_uneven(hidden.detach(), counts, rows)),
            torch.cat([part[:v] for part, v in zip(theirs, counts, strict=True)]),
            torch.cat([part[v:] for part, v in zip(theirs, counts, strict=True)]),
            min(rows.most, max(draws) + sum(trues)),
        )

    def own_sum(self, partial: torch.Tensor, rows: Rows) -> torch.Tensor:
        """This rank's rows of ``partial`` (V, D), added up over the ranks."""
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
    """What each rank has; ``lengths`` are known."""
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
    """(c,) by which each stands for those that were not drawn; -inf for entities that were not drawn but are true."""
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
        offsets: torch.Tensor,  # (v+1,)
        answers: torch.Tensor,
        smoothing: float,
        rows: Rows,
        sample: Sample | None,
    ) -> torch.Tensor:
        everyone = _Everyone.of(hidden, offsets, answers, rows, sample)
        H, total, even = everyone.hidden, len(everyone.hidden), smoothing / rows.count
        owner = torch.arange(total, device=H.device).repeat_interleave(everyone.lengths)
        shares = ((1.0 - smoothing) / everyone.lengths.clamp_min(1).to(H.dtype)).repeat_interleave(everyone.lengths)
        here = (everyone.answers >= rows.first) & (everyone.answers < rows.last)
        owner, given = owner[here], shares[here] + even
        scored = _Scored.of(weight, bias, everyone.answers[here] - rows.first, sample, even)
        table, width = scored.weight, len(scored.weight)
        grad_hidden, grad_table, grad_bias = torch.empty_like(H), torch.zeros_like(table), torch.zeros_like(scored.bias)
        # Sums over the targets of the logits that the loss rewards (this rank's part) and of log sum exp (whole).
        rewarded, log_sum = H.new_zeros(()), H.new_zeros(())
        # Equally many chunks on every rank, so that their exchanges meet.
        step = rows_at_once(total, everyone.widest * H.element_size())
        for start in range(0, total, step):
            part = slice(start, min(start + step, total))
            h = H[part]
            logits = torch.addmm(scored.bias, h, table.t(), out=scratch(0, len(h), width, h))
            true = slice(*torch.searchsorted(owner, owner.new_tensor([part.start, part.stop])).tolist())
            places, spread = (owner[true] - start, scored.true[true]), scored.spread[scored.true[true]]
            at_true = logits[places]
            rewarded += at_true @ (given[true] - spread)
            if smoothing:
                rewarded += (logits @ scored.spread).sum()
            if scored.log_weights is not None:
                logits.add_(scored.log_weights)
                logits[places] = at_true
            of_all_ranks = _gathered(logits.logsumexp(1).unsqueeze(0), rows).logsumexp(0)
            log_sum += of_all_ranks.sum()
            p = torch.sub(logits, of_all_ranks.unsqueeze(1), out=scratch(1, len(h), width, h)).exp_()
            if smoothing:
                p.sub_(scored.spread)
            p.index_put_(places, spread - given[true], accumulate=True)
            torch.mm(p, table, out=grad_hidden[part])
            grad_table.addmm_(p.t(), h)
            grad_bias.add_(p.sum(0))
        dist.all_reduce(rewarded, group=rows.group)
        ctx.save_for_backward(everyone.own_sum(grad_hidden, rows), grad_table, grad_bias)
        ctx.total, ctx.rows, ctx.own = total, scored.rows, len(weight)
        return (log_sum - rewarded) / total

    @staticmethod
    def backward(ctx: Any, grad_output: torch.Tensor) -> tuple[torch.Tensor | None, ...]:  # type: ignore[override]
        hidden, table, bias = (gradient.mul_(grad_output / ctx.total) for gradient in ctx.saved_tensors)
        if ctx.rows is not None:
            at = ctx.rows.unsqueeze(0)
            table = torch.sparse_coo_tensor(at, table, (ctx.own, table.shape[1]), check_invariants=False)
            bias = torch.sparse_coo_tensor(at, bias, (ctx.own,), check_invariants=False)
        return hidden, table, bias, None, None, None, None, None


def split_cross_entropy(
    hidden: torch.Tensor,
    weight: torch.Tensor,
    bias: torch.Tensor,
    offsets: torch.Tensor,
    answers: torch.Tensor,
    smoothing: float,
    rows: Rows,
    sample: Sample | None = None,
) -> torch.Tensor:
    """``soft_cross_entropy`` over the targets of all ranks, ``weight`` and ``bias`` being this rank's ``rows``. With
    ``sample``, drawn from this rank's rows, it is ``sampled_cross_entropy`` over the samples of all ranks."""
    with single_precision(hidden.device):
        return _SplitCrossEntropy.apply(
            hidden.to(weight.dtype), weight, bias, offsets, answers, smoothing, rows, sample
        )  # type: ignore[no-any-return]
