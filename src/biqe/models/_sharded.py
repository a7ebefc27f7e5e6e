"""The entities' embeddings and the softmax over them, split over ranks: rank r holds the rows of its entities alone.

Each rank learns from its own queries. A step goes through three exchanges:

    reading     each rank asks the owners for the rows of its tokens, and sends their gradients back     all to all
    projecting  hidden states at the targets of all ranks go to every rank, which scores its own rows    all gather
                log sum_e exp(o_e) is put together from one number a rank and target                     all gather
    gradients   of hidden states are added up, each rank's going back to it; of rows, they stay          reduce scatter

What travels is rows of tokens and targets, never the table or its gradient. The second and third exchange belong to the
loss (_split_loss.py). Rows are placed as DTensor's Shard(0) places them, so that distributed checkpoints read them on
any number of ranks.
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
from biqe.models._contract import QueryModel

# Newer versions of the library have another name for it, and warn of the old one.
all_gather = getattr(dist, "all_gather_single", None) or dist.all_gather_into_tensor


@dataclass(frozen=True)
class Rows:
    """Which rows of a table of ``count`` this rank holds. All hold as many, but the last ones fewer."""

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

    def __init__(self, model: QueryModel, rows: Rows) -> None:
        self.names = model.entity_rows
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
        """``tensors`` by name, on rank 0 with all rows of those that are split; elsewhere those as they are."""
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


def check_split(model: QueryModel, world: int) -> None:
    """Refuse models, and numbers of ranks, with which the entities cannot be split."""
    if not model.entity_rows:
        raise InvalidOption(
            f"the entities of {model.name} cannot be split over ranks",
            hint="leave out --shard-entities: the ranks then share the queries",
        )
    if (world - 1) * -(-model.entity_count // world) >= model.entity_count:
        raise InvalidOption(
            f"{model.entity_count:,} entities cannot be split over {world} ranks: some would have none",
            hint="start fewer ranks, or leave out --shard-entities",
        )


def split(model: QueryModel, rank: int, world: int, timeout: float = 600.0) -> SplitTable:
    """Leave ``model`` this rank's rows of its entities, and let it exchange the others. Called on all ranks at once;
    the weights become those of rank 0. No exchange waits longer than ``timeout`` seconds."""
    check_split(model, world)
    for tensor in model.state_dict().values():
        dist.broadcast(tensor, 0)
    rows = Rows(model.entity_count, rank, world, dist.new_group(timeout=timedelta(seconds=timeout)))
    table = SplitTable(model, rows)
    model.split_entities(rows)
    return table


class SplitEmbedding(nn.Embedding):
    """A table of which this rank holds some rows; the others are asked for."""

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
