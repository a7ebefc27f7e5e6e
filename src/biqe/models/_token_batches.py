"""Queries as batches of tokens: what the encoder of ``biqe`` reads, padded where it must be and nowhere else."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache, cached_property, partial

import numpy as np
import torch
from numpy.typing import NDArray

from biqe.models._contract import Targets, TargetTable
from biqe.models._cqd.structures import Batch as StructuredBatch
from biqe.models._cqd.structures import StructuredQueries
from biqe.models._plan import EncodedPlans, PlanBatch
from biqe.query.queryset import QuerySet
from biqe.query.token_table import MASK, TokenTable, token_table


@dataclass(frozen=True)
class Batch:
    """B queries, padded to T tokens; n masks that stand for V targets."""

    tokens: torch.Tensor
    """(B, T) token ids; MASK where padded."""
    positions: torch.Tensor
    """(B, T)"""
    relative: torch.Tensor | None
    """(B, T, T) how token i stands to token j, as a bucket; None under the paper's positions."""
    padding: torch.Tensor | None
    """(B, T) true where there is no token; None where every query has T tokens."""
    masks: torch.Tensor
    """(n,) places of the masks in the flattened (B * T) tokens."""
    mask_targets: torch.Tensor
    """(n,) the target that each mask stands for."""
    mask_counts: torch.Tensor
    """(V,) masks of each target."""
    targets: Targets
    """What the masks stand for."""
    plan: PlanBatch | None
    """The same queries as the link predictor walks them; None without one."""
    structured: Callable[[], StructuredBatch] | None
    """Makes the same queries as a search over links solves them; None without one."""
    table: TokenTable
    rows: NDArray[np.integer]
    """(B,) the queries, as rows of ``table``."""


class EncodedQueries:
    """A query set as tokens, cut into batches on demand."""

    def __init__(
        self,
        queries: QuerySet,
        entities: int,
        relative_reach: int | None,
        plans: EncodedPlans | None = None,
        structured: Callable[[], StructuredQueries] | None = None,
    ) -> None:
        self.table = token_table(queries, entities)
        self._plans = plans
        self._structured = None if structured is None else cache(structured)
        self.sizes = self.table.lengths
        self._relative_reach = relative_reach
        self._targets = TargetTable(queries)

    def batch(self, rows: NDArray[np.integer]) -> Batch:
        """The queries ``rows``, in this order, padded to the longest of them."""
        table = self.table
        rows = np.asarray(rows, np.int64)
        lengths = self.sizes[rows]
        longest = int(lengths.max(initial=1))
        column = np.arange(longest)
        real = column < lengths[:, None]  # (B, T)
        where = np.where(real, table.offsets[rows][:, None] + column, 0)
        tokens = np.where(real, table.tokens[where], MASK)
        positions = np.where(real, table.positions[where], 0)
        targets = np.where(real, table.targets[where], -1)

        counts = self._targets.offsets[rows + 1] - self._targets.offsets[rows]
        first = np.cumsum(counts) - counts  # the batch's number of each query's first target
        total = int(counts.sum())
        masks = np.flatnonzero(targets.ravel() >= 0)
        mask_targets = (targets + first[:, None]).ravel()[masks]
        relative = None
        if self._relative_reach is not None:
            paths, elements = table.paths[where], table.elements[where]
            relative = torch.from_numpy(_relative(paths, positions, elements, self._relative_reach))
        return Batch(
            torch.from_numpy(tokens.astype(np.int64)),
            torch.from_numpy(positions.astype(np.int64)),
            relative,
            None if real.all() else torch.from_numpy(~real),
            torch.from_numpy(masks),
            torch.from_numpy(mask_targets.astype(np.int64)),
            torch.from_numpy(np.bincount(mask_targets, minlength=total)),
            self._targets.batch(rows),
            None if self._plans is None else self._plans.batch(rows),
            None if self._structured is None else partial(_structured, self._structured, rows),
            table,
            rows,
        )


def _structured(make: Callable[[], StructuredQueries], rows: NDArray[np.integer]) -> StructuredBatch:
    return make().batch(rows)


def _relative(
    paths: NDArray[np.integer], positions: NDArray[np.integer], elements: NDArray[np.integer], reach: int
) -> NDArray[np.int64]:
    """(B, T, T) bucket of token j as token i sees it; see ``relative_buckets``."""
    distance = np.clip(positions[:, None, :].astype(np.int64) - positions[:, :, None], -reach, reach) + reach
    same_path = paths[:, None, :] == paths[:, :, None]
    same_element = elements[:, None, :] == elements[:, :, None]
    other = np.where(same_element, 2 * (2 * reach + 1), 2 * reach + 1 + distance)
    return np.where(same_path, distance, other)


def relative_buckets(reach: int) -> int:
    """Number of ways in which one token can stand to another: signed distance on one path, signed difference
    between two paths, and the same node or edge seen on two paths."""
    return 2 * (2 * reach + 1) + 1


@dataclass(frozen=True)
class Places:
    """Where N tokens stand in a table of (B, T): all of it, or without the padding, which only attention needs."""

    shape: tuple[int, int]
    masks: torch.Tensor
    """(n,) places of the masks in the table."""
    real: torch.Tensor | None = None
    """(N,) place of each token in the table; None where N is B * T."""

    @classmethod
    def of(cls, batch: Batch, packed: bool) -> Places:
        """With or without the padding."""
        B, T = batch.tokens.shape
        padding = batch.padding if packed else None
        return cls((B, T), batch.masks, None if padding is None else torch.nonzero(~padding.view(-1)).view(-1))

    @cached_property
    def mask_rows(self) -> torch.Tensor:
        """(n,) the masks among the N tokens."""
        return self.masks if self.real is None else torch.searchsorted(self.real, self.masks)

    def spread(self, rows: torch.Tensor) -> torch.Tensor:
        """(N, F) -> (B * T, F), with zeros in the padding."""
        if self.real is None:
            return rows
        B, T = self.shape
        return rows.new_zeros(B * T, rows.shape[1]).index_copy_(0, self.real, rows)

    def gather(self, table: torch.Tensor) -> torch.Tensor:
        """(B * T, F) -> (N, F)"""
        return table if self.real is None else table.index_select(0, self.real)
